"""The listener: what one connection does to the others, and to the sockets themselves."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest
import trio

from engine.deadlines import Deadlines
from engine.wire.http1_server import Exchange, Limits, Request
from engine.wire.listener import NOT_SENT_LOWAT, open_listeners
from engine.wire.response import Response
from server.listen import Listener
from tests.helpers.gateway import connected_to, listener_of, listening
from tests.helpers.http import request
from tests.helpers.lockstep import ScriptedHandler, echo


class Buggy(ScriptedHandler):
    """Fails where no fault is foreseen: before an exchange is there, or with its last word."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where

    def begin(self, request: Request | None) -> Exchange:  # type: ignore[override]
        if self._where == "begin" and request is not None and request.path == "/bug":
            raise RuntimeError("bug")
        return super().begin(request)

    def note(self, status: int | None, loss: object) -> None:
        if self._where == "done" and self.begun[-1] == "/bug":
            raise RuntimeError("bug")


@pytest.mark.parametrize("where", ["begin", "done"])
async def test_a_bug_in_one_connection_does_not_end_the_others(where: str) -> None:
    async with listening(listener_of(Buggy(where))) as port, connected_to(port) as other:
        assert (await other.ask()).status == 200
        async with connected_to(port) as client:
            await client.send(request("GET /bug HTTP/1.1"))
            with suppress(trio.BrokenResourceError):
                await client.rest()
        assert (await other.ask()).status == 200
        async with connected_to(port) as another:
            assert (await another.ask()).status == 200


async def test_a_client_that_resets_before_it_is_accepted_is_no_trouble() -> None:
    listener = listener_of(ScriptedHandler())
    sockets = await open_listeners("127.0.0.1", 0)
    port = sockets[0].getsockname()[1]
    async with connected_to(port) as client:
        await client.reset()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.serve, sockets)
        async with connected_to(port) as client:
            assert (await client.ask()).status == 200
        listener.cancel()


async def test_a_connection_that_was_accepted_just_before_the_drain_is_closed_as_the_others_are() -> None:
    """Its task has not run yet when the drain looks for connections; kept, it would keep the process."""
    listener = listener_of(ScriptedHandler())
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs, trio.fail_after(5):
        async with trio.open_nursery() as connections:
            await listener._starter(connections)(ours)
            await listener.drain(lambda _: None)
        assert theirs.recv(1) == b""


async def test_draining_waits_for_the_answer_under_way_and_takes_nobody_new() -> None:
    async def respond(request: Request, response: Response) -> None:
        began.set()
        await end.wait()
        await echo(request, response)

    began, end, faults = trio.Event(), trio.Event(), list[object]()
    listener = Listener(ScriptedHandler(respond), Limits(), Deadlines(grace=30), connections=10)
    async with trio.open_nursery() as nursery, listening(listener) as port, connected_to(port) as client:
        await client.send(request())
        await began.wait()
        nursery.start_soon(listener.drain, faults.append)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(OSError, match="refused"):
            async with connected_to(port):
                pass
        end.set()
        assert (await client.answer()).headers["connection"] == "close"
    assert faults == []


async def test_both_families_of_localhost_share_one_port() -> None:
    sockets = await open_listeners("localhost", 0)
    try:
        assert len({sock.getsockname()[1] for sock in sockets}) == 1
    finally:
        for sock in sockets:
            sock.close()


async def test_a_port_that_is_taken_is_an_error_and_leaves_nothing_open() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            await open_listeners("127.0.0.1", taken.getsockname()[1])


async def test_a_clients_socket_has_no_delay_and_a_small_unsent_queue() -> None:
    seen: list[int] = []

    async def respond(request: Request, response: Response) -> None:
        sock = response._connection.transport._socket  # type: ignore[attr-defined]
        seen.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        seen.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT))
        await echo(request, response)

    async with listening(listener_of(ScriptedHandler(respond))) as port, connected_to(port) as client:
        await client.ask()
    assert seen == [1, NOT_SENT_LOWAT]
