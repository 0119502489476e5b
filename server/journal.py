"""One record a turn, whatever its exit: one JSON line with ids, sizes, times and the end. Never a prompt or an answer.

Lines are written by a thread, since a pipe or a disk can block; what waits is bounded, and what is lost is counted.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import Literal

import msgspec
import trio
from msgspec import Struct

from engine.events import UsageReported

MOST_WAITING = 10_000
"""Records. At 500 bytes each the journal holds at most 5 MB for a reader that does not keep up."""

Ending = Literal["completed", "failed", "refused", "client_left", "client_stalled", "cancelled"]


class Blame(Struct, frozen=True):
    origin: str
    kind: str


class Record(Struct):
    """One turn. Times in milliseconds, sizes in bytes of the HTTP message bodies and heads sent."""

    at: float
    """Unix time of the request."""
    id: str
    tenant: str | None = None
    dialect: str | None = None
    model: str | None = None
    upstream: list[str] = msgspec.field(default_factory=list)
    """The upstreams tried, the answering one last."""
    stream: bool = False
    status: int | None = None
    end: Ending = "cancelled"
    fault: Blame | None = None
    finish: list[str] = msgspec.field(default_factory=list)
    usage: UsageReported | None = None
    bytes_in: int = 0
    bytes_out: int = 0
    bursts: int = 0
    first_byte_ms: float | None = None
    ms: float = 0.0


class Journal:
    """Takes records without waiting; `run` writes them to a file descriptor until it is cancelled."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting: deque[bytes] = deque(maxlen=MOST_WAITING)
        self._has_news = trio.Event()
        self._encoder = msgspec.json.Encoder()
        self._writing = threading.Lock()
        """Held by the thread that has taken lines until they are written, so that the last flush waits for it."""
        self.lost = 0
        """Records that had to make room for newer ones."""

    def write(self, record: Record) -> None:
        self.lost += len(self._waiting) == MOST_WAITING
        self._waiting.append(self._encoder.encode(record))
        self._has_news.set()

    async def run(self) -> None:
        """Write what comes, in the order it came. A reader that is gone ends the journal, not the gateway."""
        while True:
            await self._has_news.wait()
            self._has_news = trio.Event()
            if not await trio.to_thread.run_sync(self.flush, abandon_on_cancel=True):
                return

    def flush(self) -> bool:
        """Write all that waits, blocking; False if nobody takes it any more."""
        with self._writing:
            lines: list[bytes] = []
            while self._waiting:
                lines.append(self._waiting.popleft())
            data = b"".join(line + b"\n" for line in lines)
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            except OSError:
                return False
            return True
