"""The case runner: exact inputs from public bug reports, played against the real gateway.

case         one JSON file: what the upstream sends, what the client asks, what must be observed
entry        one play of a case: the case as written, or one of its other dialects, requests or variants
exchange     one client request within an entry (`steps` have several), with its script and its checks
script       what the fake upstream answers: exact bytes, one network write each
moment       when the client does something unusual: after so many events, bytes or milliseconds
observation  everything seen, as one dictionary; the checks look at paths of it
"""
