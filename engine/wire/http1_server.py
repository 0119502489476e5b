"""One client's HTTP/1.1 connection: requests in, in order; each answer's writes are ordinary cancellable awaits.

Two tasks. One reads, always: it is what sees the client leave, also behind bytes of a next request. The other serves:
it waits for a request, has it answered, and starts over. Neither knows what a request means; a `Handler` does.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NoReturn, Protocol

import trio

from engine.deadlines import OFF, Deadline, Deadlines, seconds
from engine.errors import Fault, Kind, TurnError
from engine.wire.requests import Limits as Limits
from engine.wire.requests import Request as Request
from engine.wire.requests import RequestReader
from engine.wire.response import Rendered, Response
from engine.wire.transport import Transport, TransportBroken

FOREVER = seconds(OFF)
LINGER = 2.0
"""Seconds to go on reading after a refusal: the client then reads it before a reset can destroy it (RFC 9112, 9.6)."""
DISCARDED_BODY = 64 * 1024
"""Bytes of a refused request's body that are read and thrown away to keep the connection; beyond, it is closed."""


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
        self._reading = RequestReader(limits)
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
            if self.loss is None and not self._is_in_an_answer():
                self.transport.close()
            else:  # an end that could be taken for an answer's own must not look like one
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

    def _is_in_an_answer(self) -> bool:
        response = self._response
        return response is not None and response.has_started and not response.is_finished

    # The reading task

    async def _read(self) -> None:
        try:
            while data := await self.transport.receive():
                if not self._lingering and not self._reading.take(data):
                    self._lose(Kind.CLIENT_OVERRAN)
                    self.transport.reset()  # whatever waits for this client, in a write or for its words, ends here
                    break
                self._news.set()
        except TransportBroken:
            pass
        self._at_eof = True
        if self._response is not None and not self._response.is_finished:
            self._lose(Kind.CLIENT_LEFT)
        self._news.set()

    def _lose(self, kind: Kind) -> None:
        self.loss = self.loss or kind
        response = self._response
        if response is not None and not response.is_finished and response.when_client_leaves is not None:
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
                request.keep_alive = False  # who is late with this body would be late with the rest of it
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
        if self._at_eof:
            raise gone(Kind.CLIENT_LEFT)
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
