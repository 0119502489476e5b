"""One client's HTTP/1.1 connection: requests in, in order; each answer's writes are ordinary cancellable awaits.

Two tasks. One reads, always: it is what sees the client leave, also behind bytes of a next request. The other serves:
it waits for a request, has it answered, and starts over. Neither knows what a request means; a `Handler` does.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import NoReturn, Protocol

import httptools
import trio
from msgspec import Struct

from engine.deadlines import OFF, Deadline, Deadlines, seconds
from engine.errors import Fault, Kind, TurnError
from engine.wire.http1 import Headers, add_header, has_token
from engine.wire.response import Rendered, Response
from engine.wire.transport import Transport, TransportBroken

FOREVER = seconds(OFF)
LINGER = 2.0
"""Seconds to go on reading after a refusal: the client then reads it before a reset can destroy it (RFC 9112, 9.6)."""
DISCARDED_BODY = 64 * 1024
"""Bytes of a refused request's body that are read and thrown away to keep the connection; beyond, it is closed."""


class Limits(Struct, frozen=True):
    """What one connection may make the gateway hold, in bytes, requests and seconds."""

    head_bytes: int = 64 * 1024
    body_bytes: int = 32 * 1024 * 1024
    pipelined_bytes: int = 64 * 1024
    requests_per_connection: int = 1000


class Request:
    """A request as far as it has been read: the head is whole, the body when `is_complete`."""

    __slots__ = (
        "body",
        "discard",
        "headers",
        "is_complete",
        "is_too_large",
        "keep_alive",
        "method",
        "path",
        "target",
        "version",
    )

    def __init__(self, method: bytes, target: bytes, version: str, headers: Headers, *, keep_alive: bool) -> None:
        self.method = method
        self.target = target
        self.path = target.partition(b"?")[0].decode("ascii", "replace")
        """Without the query, as sent; bytes that are not ASCII appear as U+FFFD."""
        self.version = version
        self.headers = headers
        self.keep_alive = keep_alive
        self.body = bytearray()
        self.discard = False
        self.is_complete = False
        self.is_too_large = False

    @property
    def expects_continue(self) -> bool:
        return self.version != "1.0" and has_token(self.headers, b"expect", b"100-continue")

    @property
    def content_length(self) -> int | None:
        value = self.headers.get(b"content-length")
        return int(value) if value is not None else None


class Exchange(Protocol):
    """One request and its answer, on the side that knows what they mean."""

    refusal: Fault | None
    """What the head alone is refused for, before the body is read."""

    async def respond(self, request: Request, response: Response) -> None:
        """Answer a whole request. Raises TurnError for a refusal, or when the client is gone.

        What takes time must set `response.when_client_leaves` to what ends it.
        """

    def render(self, fault: Fault) -> Rendered:
        """A fault as a whole response, in the words of the client's dialect."""

    def done(self, response: Response, loss: Kind | None) -> None:
        """The last word, whatever the exit; `loss` says why the client is gone, if it is."""


class Handler(Protocol):
    """What a connection serves requests with."""

    def begin(self, request: Request | None) -> Exchange:
        """An exchange for a request whose head is whole; None for one whose head cannot be read."""


class ServerConnection:
    """Run it once; it owns the transport and closes it."""

    def __init__(self, transport: Transport, handler: Handler, limits: Limits, deadlines: Deadlines) -> None:
        self.transport = transport
        self._handler = handler
        self._limits = limits
        self.deadlines = deadlines
        self._reading = _RequestReader(limits)
        self._news = trio.Event()
        self._served = 0
        self._at_eof = False
        self.idle_since: float | None = None
        """Since when the connection waits for a request, on trio's clock: the listener closes those that wait long."""
        self._lingering = False
        self._is_closing = False
        self._response: Response | None = None
        self.loss: Kind | None = None
        """Why the client is gone, once it is."""

    async def run(self) -> None:
        """Serve until either side has had enough. Whatever happens, the transport is closed when it returns."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read)
                await self._serve()
                nursery.cancel_scope.cancel(reason="served")
        finally:
            if self.loss is None:
                self.transport.close()
            else:
                self.transport.reset()

    def finish(self) -> None:
        """Close after the answer under way; at once if there is none."""
        self._is_closing = True
        self._news.set()

    def lose_client(self, kind: Kind) -> NoReturn:
        """The writing side found the client gone or stalled: nothing more can be said on this connection."""
        self.loss = self.loss or kind
        raise gone(kind)

    def allows_another(self, request: Request) -> bool:
        """Whether the connection may stay open after this request's answer."""
        unread_is_small = request.is_complete or (
            not request.expects_continue
            and not request.is_too_large
            and (request.content_length or DISCARDED_BODY + 1) <= DISCARDED_BODY
        )
        return (
            request.keep_alive
            and unread_is_small
            and not self._is_closing
            and self._served < self._limits.requests_per_connection
        )

    # The reading task

    async def _read(self) -> None:
        try:
            while data := await self.transport.receive():
                self._received(data)
        except TransportBroken:
            pass
        self._at_eof = True
        self._leave(Kind.CLIENT_LEFT)
        self._news.set()

    def _received(self, data: bytes) -> None:
        if self._lingering:
            return
        if not self._reading.take(data):
            self._leave(Kind.CLIENT_OVERRAN)
        self._news.set()

    def _leave(self, kind: Kind) -> None:
        response = self._response
        if response is not None and not response.is_finished:
            self.loss = self.loss or kind
            if response.when_client_leaves is not None:
                response.when_client_leaves(kind)

    # The serving task

    async def _serve(self) -> None:
        while True:
            try:
                request = await self._next_request()
            except TurnError as refusal:
                await self._refuse_head(refusal.fault)
                return
            if request is None or not await self._answer(request):
                return

    async def _next_request(self) -> Request | None:
        """The next request whose head is whole; None when there will be none."""
        self.idle_since = trio.current_time()
        while (request := self._reading.next_request()) is None:
            if self._at_eof or (self._is_closing and not self._reading.has_begun):
                return None
            began = self._reading.began_at
            due = began + seconds(self.deadlines.head) if began is not None else FOREVER
            if not await self._hear(due):
                raise _late(Deadline.HEAD, "the request's head", self.deadlines.head)
        self.idle_since = None
        return request

    async def _whole_body(self, request: Request) -> None:
        due = None
        while not request.is_complete:
            due = due or trio.current_time() + seconds(self.deadlines.body)
            self._reading.raise_if_broken()
            if request.is_too_large and not request.discard:
                raise _too_large(self._limits.body_bytes)
            if self._at_eof:
                raise gone(Kind.CLIENT_LEFT)
            if not await self._hear(due):
                raise _late(Deadline.BODY, "the request's body", self.deadlines.body)
        if request.is_too_large and not request.discard:
            raise _too_large(self._limits.body_bytes)

    async def _hear(self, due: float) -> bool:
        """Wait for the reading task to have something new; False when `due` came first."""
        if self._news.is_set():
            self._news = trio.Event()
        if due == FOREVER:
            await self._news.wait()
            return True
        with trio.CancelScope(deadline=due) as patience:
            await self._news.wait()
        return not patience.cancelled_caught

    async def _answer(self, request: Request) -> bool:
        """Answer one request; whether the connection can take another."""
        self._served += 1
        exchange = self._handler.begin(request)
        response = self._response = Response(self, request)
        try:
            await self._respond(exchange, request, response)
        except TurnError as error:
            if error.fault.kind in _GONE or response.has_started:
                self.loss = self.loss or error.fault.kind
            elif self.loss is None:
                await self._send_refusal(exchange, error.fault, response)
        finally:
            exchange.done(response, self.loss)
        if self.loss is not None or not response.keeps_alive:
            await self._linger()
            return False
        return await self._discard_rest(request)

    async def _respond(self, exchange: Exchange, request: Request, response: Response) -> None:
        if exchange.refusal is not None:
            raise TurnError(exchange.refusal)
        if (request.content_length or 0) > self._limits.body_bytes:
            raise _too_large(self._limits.body_bytes)
        if request.expects_continue and not request.is_complete and not request.body:
            await Response(self, request).send_continue()
        await self._whole_body(request)
        await exchange.respond(request, response)

    async def _refuse_head(self, fault: Fault) -> None:
        exchange, response = self._handler.begin(None), Response(self, None)
        await self._send_refusal(exchange, fault, response)
        exchange.done(response, self.loss)
        await self._linger()

    async def _send_refusal(self, exchange: Exchange, fault: Fault, response: Response) -> None:
        with suppress(TurnError):  # the client is gone; `loss` says so
            await response.send_whole(exchange.render(fault))

    async def _discard_rest(self, request: Request) -> bool:
        request.discard = True
        try:
            await self._whole_body(request)
        except TurnError:
            return False
        self._reading.done_with(request)
        return True

    async def _linger(self) -> None:
        """Stop sending, and let the client finish its own sentence before the socket is closed under it."""
        if self.loss is not None or self._lingering or self._at_eof or not self._reading.is_owed_bytes:
            return
        self._lingering = True
        self.transport.finish_sending()
        due = trio.current_time() + LINGER
        while not self._at_eof and await self._hear(due):
            pass


_GONE = (Kind.CLIENT_LEFT, Kind.CLIENT_STALLED, Kind.CLIENT_OVERRAN)


def gone(kind: Kind) -> TurnError:
    """What ends a turn whose client is gone."""
    return TurnError(Fault(kind, "The client is gone."))


def _late(deadline: Deadline, what: str, limit: float) -> TurnError:
    return TurnError(Fault(Kind.REQUEST_TIMEOUT, f"{what} did not come within {limit:g} s ({deadline} deadline)."))


def _too_large(limit: int) -> TurnError:
    return TurnError(Fault(Kind.BODY_TOO_LARGE, f"The request body is larger than {limit} bytes."))


class _RequestReader:
    """Bytes to requests. Sans-I/O; holds at most one read's requests and `pipelined_bytes` behind them."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._parser = httptools.HttpRequestParser(self)
        self._requests: deque[Request] = deque()
        self._newest: Request | None = None
        self._behind = bytearray()
        self._fault: Fault | None = None
        self._head_bytes = 0
        self._target = b""
        self._headers: Headers = {}
        self.began_at: float | None = None
        """When the head that is being read began."""

    @property
    def has_begun(self) -> bool:
        """Whether there is anything of a request that has not been answered."""
        return self.began_at is not None or bool(self._requests) or bool(self._behind)

    @property
    def is_owed_bytes(self) -> bool:
        """Whether the client may still be sending: closing now could destroy what it has yet to read."""
        body_missing = self._newest is not None and not self._newest.is_complete
        return body_missing or bool(self._behind) or self._fault is not None or self.began_at is not None

    def take(self, data: bytes) -> bool:
        """Parse, or keep behind a request that is still to be answered; False if that is too much."""
        if self._requests and self._requests[-1].is_complete:
            self._behind += data
            return len(self._behind) <= self._limits.pipelined_bytes
        self._feed(data)
        return True

    def next_request(self) -> Request | None:
        """The oldest request whose head is whole. Raises TurnError for a broken or oversized head."""
        if not self._requests and self._behind:
            behind, self._behind = bytes(self._behind), bytearray()
            self._feed(behind)
        if self._requests:
            return self._requests[0]
        self.raise_if_broken()
        return None

    def done_with(self, request: Request) -> None:
        if self._requests and self._requests[0] is request:
            self._requests.popleft()

    def raise_if_broken(self) -> None:
        if self._fault is not None:
            raise TurnError(self._fault)

    def _feed(self, data: bytes) -> None:
        if self._fault is not None:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # An upgrade is an offer; we decline by answering as if it had not been made (RFC 9110, 7.8).
            self._parser = httptools.HttpRequestParser(self)
            self._behind += data[upgrade.args[0] :]
        except httptools.HttpParserError as error:
            self._fault = Fault(Kind.BAD_REQUEST, f"The request is not valid HTTP/1.1: {error}.")
        if self.began_at is not None:
            self._head_bytes += len(data)
            if self._head_bytes > self._limits.head_bytes:
                self._fault = Fault(Kind.HEAD_TOO_LARGE, f"The head is larger than {self._limits.head_bytes} bytes.")

    # Called by the parser

    def on_message_begin(self) -> None:
        self.began_at = trio.current_time()
        self._target = b""
        self._headers = {}

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        add_header(self._headers, name, value)

    def on_headers_complete(self) -> None:
        parser = self._parser
        request = Request(
            parser.get_method(),
            self._target,
            parser.get_http_version(),
            self._headers,
            keep_alive=parser.should_keep_alive(),
        )
        if b"host" not in self._headers and request.version == "1.1":
            self._fault = Fault(Kind.BAD_REQUEST, "The request has no Host header field.")
        self.began_at = None
        self._head_bytes = 0
        self._newest = request
        self._requests.append(request)

    def on_body(self, data: bytes) -> None:
        request = self._newest
        if request is None or request.discard or request.is_too_large:
            return
        if len(request.body) + len(data) > self._limits.body_bytes:
            request.is_too_large = True
            request.body.clear()
        else:
            request.body += data

    def on_message_complete(self) -> None:
        if self._newest is not None:
            self._newest.is_complete = True
