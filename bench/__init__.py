"""Measurements of a running gateway from outside: load, probes, and nginx beside it in the same run.

Everything here is a client, an upstream or a stopwatch. Nothing imports the gateway: it is started as
a process and judged by its sockets and by what the kernel says of it.
"""
