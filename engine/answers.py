"""Where a turn's bursts go: a client's dialect on its response, as a stream or whole.

Both hold the status line back until the first burst, so that what goes wrong before it has a status of its own.
"""

from __future__ import annotations

from typing import Protocol, assert_never

from engine.errors import Fault, Kind, TurnError
from engine.events import Burst, Completed, Failed, Finished, UsageReported
from engine.wire.response import Rendered, Response

Headers = list[tuple[bytes, bytes]]

STREAM_HEADERS: Headers = [
    # Not `no-cache`: that lets a relay store a stream and play it again.
    (b"cache-control", b"no-store"),
    # nginx buffers what it proxies, unless it is told not to.
    (b"x-accel-buffering", b"no"),
]


class StreamWriter(Protocol):
    """A client dialect's stream: bursts to bytes, sans-I/O."""

    content_type: bytes
    keep_alive: bytes

    def encode(self, burst: Burst) -> bytes: ...


class WholeWriter(Protocol):
    """A client dialect's answer in one piece, sans-I/O."""

    content_type: bytes

    def add(self, burst: Burst) -> None: ...

    def result(self) -> bytes: ...


MOST_WHOLE_BYTES = 64 * 1024 * 1024
"""Bytes of an answer for a client that wants it whole: it is all held, so an endless one must end somewhere."""
TOO_LONG = Fault(Kind.UPSTREAM_PROTOCOL, f"The answer is longer than {MOST_WHOLE_BYTES} bytes: ask for it as a stream.")


class Seen:
    """What a turn said, in numbers and names: for the journal, which never sees a text."""

    def __init__(self) -> None:
        self.finish: list[str] = []
        self.usage: UsageReported | None = None
        self.fault: Fault | None = None
        self.is_whole = False

    def look_at(self, burst: Burst) -> None:
        if burst.end is None:
            return
        for frame in burst.frames:
            for event in frame.events:
                if isinstance(event, Finished):
                    self.finish.append(event.said or str(event.reason))
                elif isinstance(event, UsageReported):
                    self.usage = event
        if isinstance(burst.end, Failed):
            self.fault = burst.end.fault
        else:
            self.is_whole = True


class StreamAnswer:
    """A stream of server-sent events, a burst a write."""

    def __init__(self, response: Response, writer: StreamWriter, headers: Headers) -> None:
        self._response = response
        self._writer = writer
        self._headers = [(b"content-type", writer.content_type), *STREAM_HEADERS, *headers]
        self.seen = Seen()

    async def deliver(self, burst: Burst) -> None:
        """See `engine.turn.Answer`. A failure that is the first thing to say is raised, for a status of its own."""
        self._look_at(burst)
        self._begin()
        await self._response.write(self._writer.encode(burst), last=burst.end is not None)

    async def keep_alive(self) -> None:
        """A comment. From the first one on, the status is 200 whatever comes."""
        self._begin()
        await self._response.write(self._writer.keep_alive)

    def _look_at(self, burst: Burst) -> None:
        self.seen.look_at(burst)
        if isinstance(burst.end, Failed) and not self._response.has_started and not burst.has_events():
            raise TurnError(burst.end.fault)

    def _begin(self) -> None:
        if not self._response.has_started:
            self._response.begin_stream(200, self._headers)


class WholeAnswer:
    """One document, written when the last burst has come."""

    def __init__(self, response: Response, writer: WholeWriter, headers: Headers) -> None:
        self._response = response
        self._writer = writer
        self._headers = [(b"content-type", writer.content_type), *headers]
        self._held = 0
        self.seen = Seen()

    async def deliver(self, burst: Burst) -> None:
        """See `engine.turn.Answer`. A failure is raised, for a status of its own: half a document is none."""
        self.seen.look_at(burst)
        self._held += sum(len(frame.data) for frame in burst.frames)
        if self._held > MOST_WHOLE_BYTES:
            raise TurnError(TOO_LONG)
        match burst.end:
            case None:
                self._writer.add(burst)
            case Completed():
                self._writer.add(burst)
                await self._response.send_whole(Rendered(200, self._headers, self._writer.result()))
            case Failed(fault):
                raise TurnError(fault)
            case _ as never:
                assert_never(never)

    async def keep_alive(self) -> None:
        """There is nothing to show before the document."""
