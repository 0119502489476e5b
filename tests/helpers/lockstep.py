"""A ServerConnection on a lockstep stream: nothing is buffered between it and its client, and time is virtual."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal

import trio
from trio.testing import lockstep_stream_pair, wait_all_tasks_blocked

from engine.deadlines import Deadlines
from engine.errors import Fault, Kind
from engine.wire.http1_server import Limits, Request, ServerConnection
from engine.wire.response import Rendered, Response
from engine.wire.transport import StreamTransport
from tests.helpers.http import HttpClient
from tests.helpers.outcome import Outcome, beside

Respond = Callable[[Request, Response], Awaitable[None]]
HEADERS = [(b"content-type", b"text/plain")]
LIMITS, DEADLINES = Limits(), Deadlines()


class LockstepTransport(StreamTransport):
    """One end of a lockstep pair; it keeps how it was ended first, since a lockstep stream cannot say it."""

    def __init__(self, stream: trio.StapledStream[trio.abc.SendStream, trio.abc.ReceiveStream]) -> None:
        super().__init__(stream, lambda: close_now(stream))
        self.ended: Literal["closed", "reset"] | None = None
        self.ended_at: float | None = None

    def close(self) -> None:
        self._note("closed")
        super().close()

    def reset(self) -> None:
        self._note("reset")
        super().reset()

    def _note(self, how: Literal["closed", "reset"]) -> None:
        if self.ended is None:
            self.ended, self.ended_at = how, trio.current_time()


def close_now(stream: trio.StapledStream[trio.abc.SendStream, trio.abc.ReceiveStream]) -> None:
    """Both directions, without waiting: the lockstep streams have a synchronous `close`."""
    for half in (stream.send_stream, stream.receive_stream):
        half.close()  # type: ignore[union-attr]


async def echo(request: Request, response: Response) -> None:
    """Answers with the request's method, path and body."""
    body = b" ".join((request.method, request.path.encode(), bytes(request.body)))
    await response.send_whole(Rendered(200, HEADERS, body))


class ScriptedHandler:
    """Serves every request alike, and keeps how each exchange began and ended."""

    def __init__(self, respond: Respond = echo, refuse: Callable[[Request], Fault | None] = lambda _: None) -> None:
        self._respond = respond
        self._refuse = refuse
        self.begun: list[str | None] = []
        """The path of each request; None for one whose head could not be read."""
        self.responded: list[str] = []
        self.done: list[tuple[int | None, Kind | None]] = []
        """Status and loss of each exchange."""
        self._done = trio.Event()

    async def is_done(self) -> None:
        """Wait for the last word of an exchange."""
        await self._done.wait()

    def note(self, status: int | None, loss: Kind | None) -> None:
        self.done.append((status, loss))
        self._done.set()

    def begin(self, request: Request | None) -> ScriptedExchange:
        self.begun.append(request.path if request is not None else None)
        return ScriptedExchange(self, self._refuse(request) if request is not None else None, self._respond)


class ScriptedExchange:
    """One request of a ScriptedHandler."""

    def __init__(self, handler: ScriptedHandler, refusal: Fault | None, respond: Respond) -> None:
        self._handler = handler
        self._respond = respond
        self.refusal = refusal

    async def respond(self, request: Request, response: Response) -> None:
        self._handler.responded.append(request.path)
        await self._respond(request, response)

    def render(self, fault: Fault) -> Rendered:
        return Rendered(fault.status, HEADERS, str(fault.kind).encode())

    def done(self, response: Response, loss: Kind | None) -> None:
        self._handler.note(response.status, loss)


class Connected:
    """Both ends of one connection."""

    def __init__(self, client: HttpClient, connection: ServerConnection, transport: LockstepTransport) -> None:
        self.client = client
        self.connection = connection
        self.transport = transport
        self.served: Outcome[None]

    def leave(self) -> None:
        """The client closes, without a word and without waiting."""
        stream = self.client.stream
        assert isinstance(stream, trio.StapledStream)
        close_now(stream)

    def finish_sending(self) -> None:
        """The client ends its own direction, and could go on reading."""
        stream = self.client.stream
        assert isinstance(stream, trio.StapledStream)
        stream.send_stream.close()


@asynccontextmanager
async def connected(
    handler: ScriptedHandler, *, limits: Limits = LIMITS, deadlines: Deadlines = DEADLINES
) -> AsyncIterator[Connected]:
    """A connection that is being served. The client leaves at the end, and then the server has to be gone too."""
    near, far = lockstep_stream_pair()
    transport = LockstepTransport(near)
    both = Connected(HttpClient(far), ServerConnection(transport, handler, limits, deadlines), transport)
    async with beside(both.connection.run) as both.served:
        try:
            yield both
            await wait_all_tasks_blocked()  # a lockstep write returns a moment after its reader has all of it
        finally:
            both.leave()
    if not both.served.was_cancelled:
        await both.served.result()
    assert transport.ended is not None
