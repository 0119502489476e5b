"""What several rings' tests are made of: fakes of our own, a raw client, a raw upstream, and the leak check.

leaks.py      what a test left behind: descriptors, threads, children, tasks
gates.py      a place where a fake waits until the test lets it go on
turns.py      an upstream and an answer for `engine.turn`, as scripts
lockstep.py   a ServerConnection on a lockstep stream, its client's end, and a handler that does what it is told
farend.py     the upstream's end of a pool's connections, on lockstep streams
http.py       a client on any trio stream that reads HTTP/1.1 to the letter
chat.py       Chat Completions bytes, as an upstream sends them
gateway.py    the whole gateway in the test's own process and nursery
upstream.py   an upstream on a real socket that sends exact bytes and counts how it was left
process.py    the gateway as the process that an operator starts
"""
