"""Tidegate's engine: a turn between a client and an upstream, without configuration or policy.

Words used everywhere (each is defined where it lives):

    turn      one client request and all that it causes, up to the last byte of the answer    turn.py
    dialect   one vendor's language, as pure functions                                        dialects/
    prompt    a request, parsed far enough to be routed                                       prompt.py
    event     a piece of an answer in neutral words                                           events.py
    frame     one piece of a stream on the wire, with the events it says                      events.py
    burst     all the frames that one read brought; the unit that crosses the channel         events.py
    upstream  where answers come from: an async context manager over bursts                   turn.py
    answer    where a turn's bursts go: a client's dialect on its connection                  answers.py
    fault     what went wrong and whose fault it is                                           errors.py
    drain     the client taking what we wrote                                                 deadlines.py

Start with turn.py.
"""
