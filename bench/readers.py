"""Clients that read too little: stalled ones, and slow ones that are alive."""

import select

from bench.client import connect
from bench.script import Script
from bench.stage import Stage, numbered_request

SLOW_BYTES, SLOW_SECONDS = 1024, 0.2
# A receiving kernel that was full says nothing until much of its buffer has been read: with its usual 128 KiB,
# and loopback's segments of 64 KiB, 25 s at that pace. Until then no sender can tell this reader from a stalled
# one. With these it says so every 3 s.
SEGMENT, BUFFER = 1460, 8192


class Stalled:
    """Asks and never reads."""

    def __init__(self, stage: Stage, number: int, script: Script) -> None:
        self.sock = connect(stage.peer.port)
        self.sock.send(numbered_request(number, script))

    def state(self) -> str:
        """What its kernel knows of the connection, without reading."""
        poll = select.poll()
        poll.register(self.sock, select.POLLRDHUP)
        mask = poll.poll(0)[0][1] if poll.poll(0) else 0
        if mask & (select.POLLERR | select.POLLHUP):
            return "reset"
        return "ended" if mask & select.POLLRDHUP else "open"


class Slow:
    """Reads a little at a time, for ever; `ended` once the connection has."""

    def __init__(self, stage: Stage, number: int, script: Script) -> None:
        self.read = 0
        self.ended = False
        self._loop = stage.loop
        self._sock = connect(stage.peer.port, segment=SEGMENT, buffer=BUFFER)
        self._sock.send(numbered_request(number, script))
        self._take()

    def _take(self) -> None:
        if self.ended:
            return
        try:
            data = self._sock.recv(SLOW_BYTES)
        except BlockingIOError:
            self._loop.later(SLOW_SECONDS, self._take)
            return
        except ConnectionError:
            data = b""
        self.read += len(data)
        self.ended = not data
        if data:
            self._loop.later(SLOW_SECONDS, self._take)

    def close(self) -> None:
        self.ended = True
        self._sock.close()
