"""A client that leaves: the upstream's connection is closed at once, the journal says so, and the place is free."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio

from tests.helpers import chat
from tests.helpers.gateway import Client, Running, chat_request, connected_to, gateway
from tests.helpers.http import request
from tests.helpers.upstream import Accepted, Upstream, answering, begins, silent, upstream

AT_ONCE = 2.0
"""Seconds on a busy machine; what is measured is milliseconds, and the next deadline that could help is at 120."""

Leaving = Callable[[Client], Awaitable[None]]
LEAVING: list[Leaving] = [Client.finish_sending, Client.close, Client.reset]


async def left(server: Upstream, running: Running, *, status: int, number: int = 0) -> None:
    """Everything that has to be so once a client has left."""
    with trio.fail_after(AT_ONCE):
        await (await server.connection(number)).left()
        record = await running.journal.record()
    assert (record["end"], record["status"]) == ("client_left", status)
    assert record["fault"] == {"origin": "client", "kind": "client_left"}
    assert running.gateway.turns == 0


@pytest.mark.parametrize("leave", LEAVING)
async def test_leaving_in_the_middle_of_a_stream_closes_the_upstream(leave: Leaving) -> None:
    async with upstream(begins) as server, gateway(server.setting) as running:
        async with connected_to(running.port) as client:
            await client.chat()
            await client.head()
            assert chat.said(await client.chunk()) == "tide"
            await leave(client)
        await left(server, running, status=200)


@pytest.mark.parametrize("leave", LEAVING)
@pytest.mark.parametrize("stream", [True, False])
async def test_leaving_before_the_first_byte_closes_the_upstream(leave: Leaving, stream: bool) -> None:
    async with upstream(silent) as server, gateway(server.setting) as running:
        async with connected_to(running.port) as client:
            await client.chat(stream=stream)
            await (await server.connection()).request_taken()
            await leave(client)
        await left(server, running, status=499)


@pytest.mark.parametrize("leave", LEAVING)
async def test_leaving_in_the_middle_of_a_whole_answer_closes_the_upstream(leave: Leaving) -> None:
    async with upstream(begins) as server, gateway(server.setting) as running:
        async with connected_to(running.port) as client:
            await client.chat(stream=False)
            await (await server.connection()).request_taken()
            await leave(client)
        await left(server, running, status=499)


@pytest.mark.parametrize(
    "behind", [b"POST", request("GET /health HTTP/1.1"), request("POST /v1 HTTP/1.1", body=b"x" * 30_000)]
)
@pytest.mark.parametrize("leave", LEAVING)
async def test_leaving_is_seen_behind_bytes_of_a_next_request(leave: Leaving, behind: bytes) -> None:
    async with upstream(begins) as server, gateway(server.setting) as running:
        async with connected_to(running.port) as client:
            await client.chat()
            await client.head()
            await client.send(behind)
            await leave(client)
        await left(server, running, status=200)
        assert len(running.journal.lines) == 1


@pytest.mark.parametrize("leave", LEAVING)
async def test_leaving_frees_the_turns_place(leave: Leaving) -> None:
    async with upstream(begins) as server, gateway(server.setting, "limits.turns=1") as running:
        for number in range(3):
            async with connected_to(running.port) as client:
                await client.chat()
                assert (await client.head()).status == 200
                await leave(client)
            await left(server, running, status=200, number=number)


async def test_leaving_while_waiting_for_a_connection_takes_none() -> None:
    settings = ["upstreams.default.max_connections=1", "streaming.keep_alive=0.05"]
    async with upstream(begins) as server, gateway(server.setting, *settings) as running:
        async with connected_to(running.port) as first, connected_to(running.port) as second:
            await first.chat()
            await first.head()
            await second.chat()
            await second.head()  # a keep-alive: the turn is under way, and waits
            await second.close()
            with trio.fail_after(AT_ONCE):
                record = await running.journal.record()
        assert record["end"] == "client_left"
        assert len(server.accepted) == 1


async def test_leaving_while_the_second_upstream_is_asked_closes_it() -> None:
    async def refusing(peer: Accepted) -> None:
        await peer.request()
        await peer.refuse(503, b"{}")

    async with upstream(refusing) as bad, upstream(silent) as good:
        ways = f'upstreams={{a={{url="{bad.url}"}},b={{url="{good.url}"}}}}'
        async with gateway(ways) as running:
            async with connected_to(running.port) as client:
                await client.chat()
                await (await good.connection()).request_taken()
            await left(good, running, status=499)


async def test_a_client_that_leaves_with_its_request_is_not_served_for_long() -> None:
    """Request and FIN arrive together: whoever begins to watch only with the turn has missed the FIN."""
    async with upstream(silent) as server, gateway(server.setting) as running:
        for _ in range(20):
            async with connected_to(running.port) as client:
                await client.chat()
                await client.finish_sending()
                with trio.fail_after(AT_ONCE), suppress(trio.BrokenResourceError):
                    assert await client.rest() == b""
        with trio.fail_after(AT_ONCE):
            for peer in server.accepted:
                await peer.left()
        assert running.gateway.turns == 0


async def test_a_client_that_leaves_after_its_answer_has_left_nothing() -> None:
    async with upstream(answering("a")) as server, gateway(server.setting) as running:
        assert chat.said((await running.chatted()).body) == "a"
        record = await running.journal.record()
        assert (record["end"], record["fault"]) == ("completed", None)
        assert server.accepted[0].how is None  # the upstream's connection is kept for the next


async def test_a_request_behind_a_client_that_left_is_never_begun() -> None:
    async with upstream(begins) as server, gateway(server.setting) as running:
        async with connected_to(running.port) as client:
            await client.send(chat_request() + chat_request())
            await client.head()
            await client.reset()
        await left(server, running, status=200)
    assert len(server.accepted) == 1
    assert len(running.journal.lines) == 1
