"""A client that does not read: what the kernel and the gateway hold is bounded, and after `drain` it is dropped."""

from __future__ import annotations

import json
import time

import trio

from tests.helpers import chat
from tests.helpers.gateway import connected_to, gateway
from tests.helpers.upstream import Accepted, endless, upstream

HELD = 512 * 1024
"""Bytes that an endless upstream may get rid of while its client takes nothing: its own send buffer, our receive
buffer of 64 KiB (which Linux doubles), one read in the gateway, what may lie unsent below the client's socket
(TCP_NOTSENT_LOWAT), and the client's receive buffer. Measured: 130 to 180 KB."""
SMALL = 4096
"""Bytes asked for as a socket's buffer; Linux doubles it."""


async def test_a_client_that_never_reads_bounds_what_is_taken_from_the_upstream_and_is_dropped() -> None:
    async with (
        upstream(endless, send_buffer=SMALL) as server,
        gateway(server.setting, "deadlines.drain=0.5") as running,
    ):
        async with connected_to(running.port, receive_buffer=SMALL) as client:
            began = time.monotonic()
            await client.chat()
            with trio.fail_after(5):
                record = await running.journal.record()
                peer = await server.connection()
                await peer.left()
            assert 0.5 <= time.monotonic() - began < 2
            assert peer.sent < HELD
            assert len(await client.dropped()) < HELD
        assert (record["end"], record["fault"]) == ("client_stalled", {"origin": "client", "kind": "client_stalled"})
        assert (record["status"], running.gateway.turns) == (200, 0)


async def test_no_keep_alive_is_added_to_what_a_client_does_not_read() -> None:
    settings = ["deadlines.drain=0.5", "streaming.keep_alive=0.05"]
    async with (
        upstream(endless, send_buffer=SMALL) as server,
        gateway(server.setting, *settings) as running,
        connected_to(running.port, receive_buffer=SMALL) as client,
    ):
        await client.chat()
        await running.journal.record()
        assert b": keep-alive" not in await client.dropped()


async def test_a_whole_answer_that_is_not_read_is_dropped_too() -> None:
    async def large(peer: Accepted) -> None:
        await peer.request()
        await peer.stream(*[chat.text("x" * 50_000)] * 100)
        await peer.finish()

    async with upstream(large) as server, gateway(server.setting, "deadlines.drain=0.5") as running:
        async with connected_to(running.port, receive_buffer=SMALL) as client:
            await client.chat(stream=False)
            with trio.fail_after(5):
                record = await running.journal.record()
            assert len(await client.dropped()) < HELD
        assert record["end"] == "client_stalled"


async def test_a_slow_but_living_reader_is_not_dropped() -> None:
    """It takes 8 KB where 100 KB would come, for four times the drain deadline."""
    async with (
        upstream(endless, send_buffer=SMALL) as server,
        gateway(server.setting, "deadlines.drain=0.5") as running,
        connected_to(running.port, receive_buffer=SMALL) as client,
    ):
        await client.chat()
        due, taken = trio.current_time() + 2, 0
        while trio.current_time() < due:
            taken += len(await client.stream.receive_some(8192))
            await trio.sleep(0.02)
        assert (running.journal.lines, running.gateway.turns) == ([], 1)
        assert server.accepted[0].sent < taken + HELD


async def test_a_slow_reader_gets_every_byte_and_each_once() -> None:
    """More than any kernel takes at once: the write goes on where its first try stopped."""
    words = [f"{number:05}" * 10_000 for number in range(200)]

    async def large(peer: Accepted) -> None:
        await peer.request()
        await peer.stream(*map(chat.text, words))
        await peer.finish()

    async with (
        upstream(large) as server,
        gateway(server.setting) as running,
        connected_to(running.port, receive_buffer=SMALL) as client,
    ):
        answer = await client.chatted(stream=False)
        assert json.loads(answer.body)["choices"][0]["message"]["content"] == "".join(words)


async def test_others_are_served_while_one_does_not_read() -> None:
    """Endless answers for the first, and ordinary ones for the rest."""

    async def by_model(peer: Accepted) -> None:
        if b'"stalled"' in await peer.request():
            while True:
                await peer.stream(*[chat.text("x" * 1000)] * 100)
        await peer.stream(chat.text("a"))
        await peer.finish()

    async with (
        upstream(by_model) as server,
        gateway(server.setting) as running,
        connected_to(running.port, receive_buffer=SMALL) as stalled,
    ):
        await stalled.chat("stalled")
        await stalled.head()
        for _ in range(20):
            with trio.fail_after(1):
                assert chat.said((await running.chatted()).body) == "a"
                assert (await running.journal.record())["end"] == "completed"
        assert running.gateway.turns == 1


async def test_the_turns_of_stalled_clients_are_freed() -> None:
    settings = ["deadlines.drain=0.3", "limits.turns=2"]
    async with upstream(endless, send_buffer=SMALL) as server, gateway(server.setting, *settings) as running:
        async with (
            connected_to(running.port, receive_buffer=SMALL) as first,
            connected_to(running.port, receive_buffer=SMALL) as second,
        ):
            await first.chat()
            await second.chat()
            await first.head()
            await second.head()
            assert (await running.chatted()).status == 503
            with trio.fail_after(5):
                ends = [(await running.journal.record())["end"] for _ in range(3)]
        assert sorted(ends) == ["client_stalled", "client_stalled", "refused"]
        async with connected_to(running.port) as third:
            await third.chat()
            assert (await third.head()).status == 200
