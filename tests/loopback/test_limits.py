"""How much one may have at once: turns of a tenant and in all, connections, and idle ones."""

from __future__ import annotations

import json

import pytest
import trio

from server.auth import hash_key
from tests.helpers import chat
from tests.helpers.gateway import Running, connected_to, gateway
from tests.helpers.outcome import beside
from tests.helpers.upstream import Accepted, answering, begins, silent, upstream

A, B = "x-api-key: key-a", "x-api-key: key-b"


def tenants(**turns: int) -> str:
    entries = [
        f'{{name="{name}",keys=["sha256:{hash_key(f"key-{name}").hex()}"],turns={most}}}'
        for name, most in turns.items()
    ]
    return f"tenants=[{','.join(entries)}]"


async def refused(running: Running, key: str) -> tuple[int, object, str]:
    with trio.fail_after(3):  # a turn that is let in instead would have no end
        answer = await running.chatted("m", key)
    return answer.status, json.loads(answer.body)["error"]["code"], answer.headers["retry-after"]


async def test_a_tenants_turns_are_limited_and_another_tenants_are_not_touched() -> None:
    async with upstream(begins) as server, gateway(server.setting, tenants(a=1, b=1)) as running:
        async with connected_to(running.port) as first, connected_to(running.port) as other:
            await first.chat("m", A)
            await first.head()
            assert await refused(running, A) == (429, "rate_limit_exceeded", "1")
            await other.chat("m", B)
            assert (await other.head()).status == 200
        record = await running.journal.record()
        assert (record["end"], record["tenant"], record["fault"]["kind"]) == ("refused", "a", "tenant_busy")


async def test_without_a_limit_of_its_own_a_tenant_has_the_general_one() -> None:
    general = "limits.turns_per_tenant=1"
    async with (
        upstream(begins) as server,
        gateway(server.setting, general) as running,
        connected_to(running.port) as first,
    ):
        await first.chat("m")
        await first.head()
        assert await refused(running, A) == (429, "rate_limit_exceeded", "1")


async def test_the_turns_of_all_tenants_are_limited() -> None:
    async with upstream(begins) as server, gateway(server.setting, tenants(a=9, b=9), "limits.turns=1") as running:
        async with connected_to(running.port) as first:
            await first.chat("m", A)
            await first.head()
            assert await refused(running, B) == (503, "server_busy", "1")
        record = await running.journal.record()
        assert (record["end"], record["fault"]["origin"]) == ("refused", "gateway")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_place_is_free_again_after_each_turn(stream: bool) -> None:
    async with upstream(answering("a")) as server, gateway(server.setting, tenants(a=1)) as running:
        for _ in range(3):
            assert (await running.chatted("m", A, stream=stream)).status == 200


async def test_a_place_is_free_as_soon_as_the_client_has_its_answer() -> None:
    """Tidying an upstream's connection up is the gateway's own affair: the client may ask again at once."""

    async def hangs_after_the_end_mark(peer: Accepted) -> None:
        await peer.request()
        await peer.stream(chat.text("a"), chat.STOP + chat.DONE)
        await trio.sleep_forever()

    async with upstream(hangs_after_the_end_mark) as server, gateway(server.setting, tenants(a=1)) as running:
        statuses = [(await running.chatted("m", A)).status for _ in range(3)]
    assert statuses == [200, 200, 200]


async def test_a_place_is_free_again_after_a_refusal_of_the_upstream() -> None:
    async with gateway(tenants(a=1)) as running:
        for _ in range(3):
            assert (await running.chatted("simulated/error=503", A)).status == 503


async def test_a_refused_turn_asks_no_upstream() -> None:
    async with upstream(silent) as server, gateway(server.setting, tenants(a=1)) as running:
        async with connected_to(running.port) as first:
            await first.chat("m", A)
            await (await server.connection()).request_taken()
            await refused(running, A)
        assert len(server.accepted) == 1


async def test_connections_beyond_the_limit_wait_until_one_ends() -> None:
    async with (
        gateway("limits.connections=1") as running,
        connected_to(running.port) as first,
        connected_to(running.port) as second,
        beside(second.ask) as waiting,
    ):
        for _ in range(3):
            assert (await first.ask()).status == 200
        assert not waiting.has_ended
        await first.close()
        assert (await waiting.result()).status == 200


async def test_an_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    async with (
        upstream(begins) as server,
        gateway(server.setting, "limits.idle_connection_seconds=0.1") as running,
        connected_to(running.port) as idle,
        connected_to(running.port) as busy,
    ):
        await idle.ask()
        await busy.chat()
        await busy.head()
        with trio.fail_after(3):
            assert await idle.rest() == b""
        assert running.gateway.turns == 1
