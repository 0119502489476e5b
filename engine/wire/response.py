"""One answer on a client's connection: the head, and a body of known length or in chunks, a burst a write."""

from __future__ import annotations

import time
from collections.abc import Callable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, NoReturn

import trio
from msgspec import Struct

from engine.deadlines import seconds
from engine.errors import Kind
from engine.wire.http1 import render_head
from engine.wire.transport import TransportBroken

if TYPE_CHECKING:
    from engine.wire.http1_server import Request, ServerConnection

LAST_CHUNK = b"0\r\n\r\n"


class Rendered(Struct, frozen=True):
    """A whole response, ready to be written."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Response:
    """The answer to one request. Every write is bounded by the drain deadline, which progress renews."""

    def __init__(self, connection: ServerConnection, request: Request | None) -> None:
        self._connection = connection
        self._request = request
        self._head = b""
        self._chunked = False
        self._has_body = request is None or request.method != b"HEAD"
        self.has_started = False
        self.is_finished = False
        """Whether the last byte has been handed to the kernel: after that, a client that leaves has left nothing."""
        self.when_finished: Callable[[], None] | None = None
        """Called once the client has its whole answer, while the turn may still tidy up."""
        self.keeps_alive = False
        self.bytes_sent = 0
        self.status: int | None = None
        self.when_client_leaves: Callable[[Kind], None] | None = None
        """Called at most once, when the reading side finds the client gone before the answer is finished."""
        self.first_byte_at: float | None = None
        """When the first byte went out, on the performance counter: for the journal, no deadline hangs on it."""

    async def send_whole(self, rendered: Rendered) -> None:
        """Head and body in one write. Raises TurnError if the client is gone or stalls."""
        length = (b"content-length", str(len(rendered.body)).encode())
        self._begin(rendered.status, [*rendered.headers, length])
        await self._send(self._head + rendered.body if self._has_body else self._head)
        self._finish()

    def begin_stream(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Keep a head for a body in chunks; it goes out with the first write."""
        self._chunked = self._request is not None and self._request.version != "1.0"
        if self._chunked:
            headers = [*headers, (b"transfer-encoding", b"chunked")]
        self._begin(status, headers, ends_by_close=not self._chunked)

    async def write(self, data: bytes, *, last: bool = False) -> None:
        """One write: the head if it is still due, the data as one chunk, the end mark if it is the last."""
        pieces = [self._head]
        self._head = b""
        if self._has_body and data:
            pieces += (b"%x\r\n" % len(data), data, b"\r\n") if self._chunked else (data,)
        if self._has_body and last and self._chunked:
            pieces.append(LAST_CHUNK)
        await self._send(b"".join(pieces))
        if last:
            self._finish()

    def _finish(self) -> None:
        self.is_finished = True
        if self.when_finished is not None:
            self.when_finished()

    def break_off(self, *, reset: bool) -> NoReturn:
        """End the connection in the middle of the answer: for simulated upstreams that fail on purpose."""
        transport = self._connection.transport
        if reset:
            transport.reset()
        else:
            transport.close()
        self._connection.lose_client(Kind.CLIENT_LEFT)

    async def send_continue(self) -> None:
        """Tell a client that asked first to send its body (RFC 9110, 10.1.1)."""
        await self._send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _begin(self, status: int, headers: list[tuple[bytes, bytes]], *, ends_by_close: bool = False) -> None:
        request = self._request
        self.has_started = True
        self.status = status
        self.keeps_alive = request is not None and not ends_by_close and self._connection.allows_another(request)
        if not self.keeps_alive:
            headers = [*headers, (b"connection", b"close")]
        elif request is not None and request.version == "1.0":
            headers = [*headers, (b"connection", b"keep-alive")]
        self._head = render_head(_status_line(status), [(b"date", _date(int(time.time()))), *headers])

    async def _send(self, data: bytes) -> None:
        if not data:
            return
        transport = self._connection.transport
        try:
            sent = transport.try_send(memoryview(data))
            self.bytes_sent += sent
            if self.first_byte_at is None:
                self.first_byte_at = time.perf_counter()
            if sent < len(data):
                await self._drain(memoryview(data)[sent:])
        except TransportBroken:
            self._connection.lose_client(Kind.CLIENT_LEFT)

    async def _drain(self, rest: memoryview) -> None:
        """The client is slower than we are. A write that is cut here leaves the connection useless, so it is lost."""
        transport, limit = self._connection.transport, seconds(self._connection.deadlines.drain)
        while rest:
            with trio.move_on_after(limit) as patience:
                sent = await transport.send_some(rest)
                self.bytes_sent += sent
                rest = rest[sent:]
            if patience.cancelled_caught:
                self._connection.lose_client(Kind.CLIENT_STALLED)


@lru_cache(maxsize=64)
def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}".encode()


@lru_cache(maxsize=2)
def _date(second: int) -> bytes:
    return formatdate(second, usegmt=True).encode()
