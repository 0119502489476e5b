"""The client: a raw socket that asks, reads at its own pace, misbehaves at a given moment, and notes it all.

It reads while it still writes, as curl does: an early refusal of a long body must be readable.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

import trio

from tests.cases.observation.sse import parse_sse
from tests.cases.requests import Request
from tests.cases.wire import Head, MessageReader, State

ANSWER_PATIENCE_S = 45.0
ANSWER_LIMIT = 256 * 1024 * 1024  # bytes; against an endless upstream behind a gateway that never gives up
CONTINUE_PATIENCE_S = 1.0
SEND_PATIENCE_S = 3.0
LATE_BODY_S = 0.2
_READ = 65536

Ended = Literal["open", "clean", "truncated", "reset", "left"]


@dataclass(frozen=True)
class Moment:
    """When the client does something unusual: whichever of these comes first, or when the answer ends."""

    after_events: int | None = None
    after_bytes: int | None = None
    after_s: float = float("inf")
    leaves: bool = False

    def has_come(self, answer: Answer) -> bool:
        if self.after_bytes is not None and answer.raw_bytes >= self.after_bytes:
            return True
        return self.after_events is not None and answer.events >= self.after_events


@dataclass
class Answer:
    """One final response as it came in. Times are trio's clock; arrivals are (time, body bytes by then)."""

    head: Head | None = None
    body: bytearray = field(default_factory=bytearray)
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    raw_bytes: int = 0
    ended: Ended = "open"
    framing_ok: bool = False
    first_byte_at: float | None = None
    ended_at: float | None = None

    @property
    def events(self) -> int:
        return len(parse_sse(bytes(self.body))["events"])

    @property
    def status(self) -> int | None:
        return self.head.status if self.head else None

    @property
    def closes_connection(self) -> bool:
        return self.ended != "clean" or self.head is None or "close" in self.head.get("connection")

    def body_by(self, when: float) -> bytes:
        return bytes(self.body[: max((size for at, size in self.arrivals if at <= when), default=0)])


@dataclass
class Seen:
    """All that the client saw: an answer for each request, and further ones that nobody asked for."""

    started_at: float
    answers: list[Answer] = field(default_factory=list)
    further: list[Answer] = field(default_factory=list)
    got_100: bool = False
    resets: int = 0
    connection_closed: bool = False
    acted_at: float | None = None
    all_as_wanted: bool = True

    @property
    def main(self) -> Answer:
        """The answer to the last request; an empty one if there is none."""
        return self.answers[-1] if self.answers else Answer()


Deed = Callable[[], Awaitable[None]]


async def nothing() -> None:
    """The deed of a client that only leaves."""


async def converse(
    port: int,
    requests: Sequence[Request],
    *,
    moment: Moment | None = None,
    deed: Deed = nothing,
    linger_s: float = 0.0,
) -> Seen:
    """Send the requests, each after the answer before it, on one connection for as long as that is allowed.

    At `moment` the deed is awaited in the place of reading. `linger_s` is how long the client stays after the
    last answer, to see whether the connection ends and how.
    """
    seen = Seen(started_at=trio.current_time())
    todo = list(requests)
    try:
        while todo:
            async with _open_connection(port, seen) as connection:
                while todo and not connection.is_over:
                    await connection.ask(todo.pop(0), moment, deed)
                await connection.linger(linger_s if not todo else 0.0)
    except OSError:  # nobody listens: an answer that did not come
        seen.all_as_wanted = False
    return seen


@asynccontextmanager
async def _open_connection(port: int, seen: Seen) -> AsyncIterator[_Connection]:
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        seen.connection_closed = False
        yield _Connection(stream, seen)


class _Connection:
    def __init__(self, stream: trio.SocketStream, seen: Seen) -> None:
        self._stream, self._seen = stream, seen
        self._reader = MessageReader(is_response=True)
        self._answer = Answer()
        self._may_send_body = trio.Event()
        self._has_left = False
        self.is_over = False

    async def ask(self, request: Request, moment: Moment | None, deed: Deed) -> None:
        """One request and its answer, which is appended to what was seen."""
        self._begin_answer(request)
        self._seen.answers.append(self._answer)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send, request)
            with trio.move_on_after(ANSWER_PATIENCE_S):
                await self._read_answer(moment, deed)
            nursery.cancel_scope.deadline = trio.current_time() + SEND_PATIENCE_S
        wanted = request.wants_answer_with in (None, self._answer.status)
        self._seen.all_as_wanted &= wanted and self._answer.ended == "clean"
        self.is_over |= self._answer.closes_connection

    async def linger(self, seconds: float) -> None:
        """Read on after the last answer: a close, a reset, or answers that nobody asked for."""
        with trio.move_on_after(seconds):
            while seconds and not (self._has_left or self._seen.connection_closed):
                self._begin_answer(None)
                self._digest(b"")
                while self._answer.ended == "open" and await self._receive(_READ):
                    pass
                if self._answer.head:
                    self._seen.further.append(self._answer)

    def _begin_answer(self, request: Request | None) -> None:
        method = request.method if request else ""
        self._reader.next_message(has_no_body=method == "HEAD")
        self._answer, self._may_send_body = Answer(), trio.Event()

    async def _send(self, request: Request) -> None:
        try:
            if not request.waits_for_100:
                await self._stream.send_all(request.head + request.body)
                return
            await self._stream.send_all(request.head)
            with trio.move_on_after(CONTINUE_PATIENCE_S):
                await self._may_send_body.wait()
            if self._answer.ended == "open":
                await self._stream.send_all(request.body)
            elif request.body_after_answer:
                await trio.sleep(LATE_BODY_S)
                await self._stream.send_all(request.body)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # what this side cannot write, the reading side will explain

    async def _read_answer(self, moment: Moment | None, deed: Deed) -> None:
        if moment:
            with trio.move_on_after(moment.after_s):
                await self._read_until(moment)
            self._seen.acted_at = trio.current_time()
            await deed()
            if moment.leaves:
                await self._leave()
        await self._read_until(None)

    async def _read_until(self, moment: Moment | None) -> None:
        size = (moment and moment.after_bytes) or _READ
        answer = self._answer
        while answer.ended == "open" and answer.raw_bytes < ANSWER_LIMIT:
            if moment and moment.has_come(answer):
                return
            await self._receive(size)

    async def _leave(self) -> None:
        if self._answer.ended == "open":
            self._end("left")
        self._has_left = self.is_over = True
        await trio.aclose_forcefully(self._stream)

    async def _receive(self, size: int) -> bool:
        """One read; false when there will be no other."""
        try:
            data = await self._stream.receive_some(size)
        except trio.BrokenResourceError:
            self._seen.resets += 1
            self._close("reset")
            return False
        if data:
            self._digest(data)
        else:
            self._reader.end()
            self._close("clean" if self._reader.is_complete else "truncated")
        return bool(data)

    def _digest(self, data: bytes) -> None:
        now, answer = trio.current_time(), self._answer
        answer.raw_bytes += len(data)
        body = self._reader.feed(data)
        while self._reader.is_complete and self._is_informational:
            self._take_informational()
            body += self._reader.feed(b"")
        answer.head = self._reader.head
        if answer.head and answer.first_byte_at is None:
            answer.first_byte_at = now
        if body:
            answer.body += body
            answer.arrivals.append((now, len(answer.body)))
        if self._reader.is_complete:
            self._end("clean")
        elif self._reader.state is State.BROKEN:
            self._end("truncated")

    @property
    def _is_informational(self) -> bool:
        return self._reader.head is not None and 100 <= self._reader.head.status < 200

    def _take_informational(self) -> None:
        assert self._reader.head
        if self._reader.head.status == 100:
            self._seen.got_100 = True
            self._may_send_body.set()
        self._reader.next_message()

    def _close(self, how: Ended) -> None:
        self._seen.connection_closed = True
        self.is_over = True
        if self._answer.ended == "open":
            self._end(how)

    def _end(self, how: Ended) -> None:
        self._answer.ended, self._answer.ended_at = how, trio.current_time()
        self._answer.framing_ok = self._reader.is_lawful
        self._may_send_body.set()
