"""An upstream that speaks a dialect over HTTP/1.1: one request, its answer read as it is produced, and tidied up.

Here the upstream's slowness is judged: `connect` in the pool, `first_event` around everything until the answer says
something, `idle` around each later read that has to wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import NoReturn, Protocol

import trio
from msgspec import Struct

from engine.deadlines import Deadline, Deadlines, seconds
from engine.errors import Fault, Kind, TurnError
from engine.events import Burst, Failed
from engine.prompt import Prompt
from engine.turn import TRUNCATED
from engine.wire.http1 import END_OF_HEAD, clean_value, render_head
from engine.wire.http1_client import BadResponse, ClientConnection, ConnectionLost, ResponseHead
from engine.wire.pool import Lease, Pool

TAIL = 0.25
"""Seconds to wait, after the end mark, for the body's own end: it makes the connection reusable. The client has its
answer by then; a server that keeps the connection open after `[DONE]` costs this, and the connection."""
MOST_WHOLE_BYTES = 64 * 1024 * 1024
"""Bytes of an answer that comes in one piece, though a stream was asked for."""
ERROR_BODY = 5.0
"""Seconds for an error answer's body; the status alone is an answer, too."""
MOST_HELD_BYTES = 1024 * 1024
"""Bytes of chunks that say nothing yet (a role, an annotation), which are held back until one does."""
MOST_ERROR_BYTES = 64 * 1024
"""Bytes of an error answer that are read; what is beyond is never fetched."""


class Reader(Protocol):
    """A dialect's side of a stream: body bytes to bursts, sans-I/O."""

    def feed(self, data: bytes) -> Burst: ...

    def close(self) -> Burst: ...


class Dialect(Struct, frozen=True):
    """What an HTTP upstream needs to know of the dialect it speaks, as functions."""

    path: bytes
    """Below the base URL."""
    body: Callable[[Prompt, str], bytes]
    """The request body for a prompt and the model's name at this upstream."""
    reader: Callable[[Prompt], Reader]
    take_apart: Callable[[bytes], bytes]
    """An answer in one piece, as the stream that would have said it. Raises ValueError."""
    read_refusal: Callable[[int, Mapping[bytes, bytes], bytes], Fault]


class HttpUpstream:
    """One server, one dialect, one set of credentials."""

    def __init__(
        self,
        pool: Pool,
        dialect: Dialect,
        deadlines: Deadlines,
        *,
        host: bytes,
        base_path: bytes,
        headers: list[tuple[bytes, bytes]],
    ) -> None:
        self.pool = pool
        self.dialect = dialect
        self.deadlines = deadlines
        fields = [
            (b"host", host),
            (b"content-type", b"application/json"),
            (b"accept", b"text/event-stream, application/json"),
            (b"accept-encoding", b"identity"),  # a compressed stream comes late, in lumps
            *headers,
        ]
        self._head = render_head(b"POST " + base_path + dialect.path + b" HTTP/1.1", fields)[: -len(END_OF_HEAD)]

    def open(self, prompt: Prompt, model: str, passed_on: list[tuple[bytes, bytes]]) -> HttpCall:
        """One answer of `model`, as an async context manager over bursts. `passed_on`: header fields of the client."""
        body = self.dialect.body(prompt, model)
        fields = [b"\r\n%b: %b" % (name, clean_value(value)) for name, value in passed_on]
        head = b"".join((self._head, *fields, b"\r\ncontent-length: %d" % len(body), END_OF_HEAD))
        return HttpCall(self, prompt, head, body)


class HttpCall:
    """One request and its answer. Entering it sends the request and reads until the answer says something."""

    def __init__(self, upstream: HttpUpstream, prompt: Prompt, head: bytes, body: bytes) -> None:
        self._dialect = upstream.dialect
        self._deadlines = upstream.deadlines
        self._idle = seconds(upstream.deadlines.idle)
        self._lease: Lease = upstream.pool.lease()
        self._reader = upstream.dialect.reader(prompt)
        self._head = head
        self._body = body
        self._connection: ClientConnection | None = None
        self._first: Burst | None = None
        self._has_ended = False

    async def __aenter__(self) -> HttpCall:
        self._connection = await self._lease.__aenter__()
        try:
            with trio.move_on_after(seconds(self._deadlines.first_event)) as patience:
                await self._begin()
        except BaseException:
            self._lease.give_back()
            raise
        if patience.cancelled_caught:
            self._lease.give_back()
            raise _late(Deadline.FIRST_EVENT, self._deadlines.first_event)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._has_ended and not self._live().is_complete:
                await self._read_tail()  # noqa: ASYNC102 — only after a regular end; a cancel just ends it
        finally:
            self._lease.give_back()

    async def receive(self) -> Burst | None:
        """The next burst (see `engine.turn.BurstSource`)."""
        burst, self._first = self._first, None
        while burst is None and not self._has_ended:
            burst = await self._next()
            if burst is None:  # comments alone: others must have their turn, however fast they come
                await trio.lowlevel.checkpoint()
        if burst is not None and burst.end is not None:
            self._has_ended = True
        return burst

    async def _begin(self) -> None:
        try:
            head = await self._exchange_heads()
            if head.status != 200:
                await self._refuse(head)
            first = await self._first_burst(head)
        except (ConnectionLost, BadResponse) as error:
            raise TurnError(_fault_of(error)) from error
        if isinstance(first.end, Failed) and not first.has_events():
            raise TurnError(first.end.fault)
        self._first = first

    async def _exchange_heads(self) -> ResponseHead:
        """Send the request; once more if an idle connection turns out to have been closed under it."""
        connection = self._live()
        try:
            return await self._exchange_on(connection)
        except ConnectionLost as lost:
            if not lost.was_untouched or not connection.served:
                raise
        self._connection = await self._lease.replace()
        return await self._exchange_on(self._connection)

    async def _exchange_on(self, connection: ClientConnection) -> ResponseHead:
        await connection.send(self._head, self._body)
        return await connection.receive_head()

    async def _first_burst(self, head: ResponseHead) -> Burst:
        """Read on until the answer says something; a role alone is no answer yet."""
        data = await self._live().receive_body()
        if not _is_stream(head, data):
            return await self._whole(data)
        held: list[Burst] = []
        taken = 0
        while True:
            burst = self._reader.feed(data) if data else self._reader.close()
            taken += len(data) if burst.frames else 0
            held.append(burst)
            if taken > MOST_HELD_BYTES:
                raise BadResponse(f"it sent {MOST_HELD_BYTES} bytes of chunks that say nothing")
            if burst.says_something():
                frames = tuple(frame for each in held for frame in each.frames)
                return Burst(frames, burst.end)
            if not data:
                raise ConnectionLost(was_untouched=False)
            data = await self._more()

    async def _whole(self, data: bytes) -> Burst:
        """An answer in one piece, though a stream was asked for."""
        body = await self._read_up_to(MOST_WHOLE_BYTES + 1, data)
        if len(body) > MOST_WHOLE_BYTES:
            raise BadResponse(f"the answer is larger than {MOST_WHOLE_BYTES} bytes")
        try:
            stream = self._dialect.take_apart(body)
        except ValueError as error:
            raise BadResponse(f"the answer is neither a stream nor a JSON answer: {error}") from None
        return self._reader.feed(stream)

    async def _refuse(self, head: ResponseHead) -> NoReturn:
        if head.status < 400:
            raise BadResponse(f"the status {head.status} is not one of an answer")
        body = bytearray()
        with suppress(ConnectionLost, BadResponse), trio.move_on_after(ERROR_BODY):
            while len(body) < MOST_ERROR_BYTES and (more := await self._more()):
                body += more
        raise TurnError(self._dialect.read_refusal(head.status, head.headers, bytes(body[:MOST_ERROR_BYTES])))

    async def _read_up_to(self, most: int, data: bytes) -> bytes:
        body = bytearray(data)
        while len(body) < most and (more := await self._more()):
            body += more
        return bytes(body[:most])

    async def _next(self) -> Burst | None:
        """One read's burst; None if it said nothing and there may be more."""
        try:
            data = await self._read()
        except (ConnectionLost, BadResponse, TurnError) as error:
            return self._cut_off(_fault_of(error))
        if not data:
            return self._cut_off(TRUNCATED)
        burst = self._reader.feed(data)
        return burst if burst.frames or burst.end is not None else None

    async def _read(self) -> bytes:
        connection = self._live()
        data = connection.receive_body_nowait()
        if data is not None:
            return data
        with trio.move_on_after(self._idle):
            return await connection.wait_for_body()
        raise _late(Deadline.IDLE, self._deadlines.idle)

    def _cut_off(self, fault: Fault) -> Burst:
        """Nothing more will come. What has been said may be a whole answer; otherwise it ends with the fault."""
        burst = self._reader.close()
        return Burst(burst.frames, burst.end or Failed(fault))

    async def _more(self) -> bytes:
        """More of the body, in a loop that hands nothing over: an upstream that never pauses must not starve others."""
        await trio.lowlevel.checkpoint()
        return await self._live().receive_body()

    async def _read_tail(self) -> None:
        """The body's end, if it comes soon, so that the connection can serve again."""
        try:
            with trio.move_on_after(TAIL):
                while await self._more():
                    pass
        except (ConnectionLost, BadResponse):
            pass  # then it cannot serve again, and the pool closes it

    def _live(self) -> ClientConnection:
        assert self._connection is not None
        return self._connection


_MARKS = (b"data:", b"event:", b"id:", b"retry:")


def _is_stream(head: ResponseHead, data: bytes) -> bool:
    """By its first bytes, whatever the head says, where they are JSON or an event; else by its content type."""
    first = data.lstrip(b"\xef\xbb\xbf \t\r\n")
    if first[:1] in (b"{", b"["):
        return False
    if first[:1] == b":" or any(first[: len(mark)] == mark[: len(first)] for mark in _MARKS if first):
        return True
    kind = head.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    return kind == b"text/event-stream"


def _late(deadline: Deadline, limit: float) -> TurnError:
    what = "begin its answer" if deadline is Deadline.FIRST_EVENT else "go on with its answer"
    message = f"The upstream did not {what} within {limit:g} s ({deadline} deadline)."
    return TurnError(Fault(Kind.UPSTREAM_TIMEOUT, message, code=f"{deadline}_timeout"))


def _fault_of(error: ConnectionLost | BadResponse | TurnError) -> Fault:
    """What the wire's exceptions are called in a turn. The one place where they are translated."""
    match error:
        case TurnError():
            return error.fault
        case BadResponse():
            return Fault(Kind.UPSTREAM_PROTOCOL, f"The upstream's answer cannot be used: {error}.")
        case ConnectionLost():
            return TRUNCATED
