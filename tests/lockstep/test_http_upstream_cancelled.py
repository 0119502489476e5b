"""A call that is cancelled, at each of its awaits: the place is free again and the connection is closed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from engine.events import Burst
from tests.helpers import chat
from tests.helpers.farend import FarEnd, LockstepPool, all_of, call, text_of
from tests.helpers.gates import Gate
from tests.helpers.outcome import Outcome, beside
from tests.lockstep.test_http_upstream import served

Setting = Callable[[FarEnd], Awaitable[None]]


async def sending(end: FarEnd) -> None:
    """The request is not read."""


async def waiting_for_the_head(end: FarEnd) -> None:
    await end.request()


async def in_the_head(end: FarEnd) -> None:
    await end.request()
    await end.send(chat.HEAD[:10])


async def waiting_for_the_first_event(end: FarEnd) -> None:
    await end.request()
    await end.stream(chat.ROLE)


async def in_an_error_body(end: FarEnd) -> None:
    await end.request()
    await end.send(b"HTTP/1.1 500 No\r\nContent-Length: 100\r\n\r\nhalf")


async def in_a_whole_answer(end: FarEnd) -> None:
    await end.request()
    await end.send(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"id"')


async def waiting_for_more(end: FarEnd) -> None:
    await end.request()
    await end.stream(chat.text("a"))


async def in_the_tail(end: FarEnd) -> None:
    await end.request()
    await end.stream(chat.text("a"), chat.DONE)


SETTINGS = [
    sending,
    waiting_for_the_head,
    in_the_head,
    waiting_for_the_first_event,
    in_an_error_body,
    in_a_whole_answer,
    waiting_for_more,
    in_the_tail,
]


async def cancelled(asked: Outcome[list[Burst]]) -> None:
    await wait_all_tasks_blocked()
    assert not asked.has_ended
    asked.cancel()
    await asked.ended()
    assert asked.was_cancelled


@pytest.mark.parametrize("idle_before", [False, True])
@pytest.mark.parametrize("come_to", SETTINGS)
async def test_cancelled_at_any_await_a_call_frees_its_place_and_closes(
    come_to: Setting, idle_before: bool, autojump_clock: MockClock
) -> None:
    pool = LockstepPool(most=1)
    end = await served(pool) if idle_before else None
    async with beside(lambda: all_of(call(pool))) as asked:
        end = end or await pool.connection()
        await come_to(end)
        await cancelled(asked)
    assert (pool.leased, pool.idle, end.near.ended) == (0, 0, "closed")
    await serves(pool)


async def serves(pool: LockstepPool) -> None:
    """The pool has a place, and opens a connection for it."""
    async with beside(lambda: all_of(call(pool))) as asked:
        await (await pool.connection()).answer(chat.text("next"))
        assert text_of(await asked.result()) == "next"
    assert (pool.leased, pool.idle) == (0, 1)


async def test_cancelled_while_waiting_for_a_place_a_call_takes_none(autojump_clock: MockClock) -> None:
    pool = LockstepPool(most=1)
    async with pool.lease():
        async with beside(lambda: all_of(call(pool))) as asked:
            await cancelled(asked)
        assert pool.leased == 1
    assert (pool.leased, pool.opened) == (0, 1)


async def test_cancelled_while_connecting_a_call_gives_its_place_back(autojump_clock: MockClock) -> None:
    gate = Gate()
    pool = LockstepPool(most=1, connecting=gate)
    async with beside(lambda: all_of(call(pool))) as asked:
        await cancelled(asked)
    assert (gate.cancelled, pool.leased, pool.opened) == (1, 0, 0)
    gate.open()
    await serves(pool)


async def test_cancelled_while_replacing_a_stale_connection_a_call_gives_its_place_back(
    autojump_clock: MockClock,
) -> None:
    pool = LockstepPool(most=1)
    stale = await served(pool)
    stale.close()
    gate = pool.connecting = Gate()
    async with beside(lambda: all_of(call(pool))) as asked:
        await cancelled(asked)
    assert (gate.cancelled, pool.leased, pool.idle, stale.near.ended) == (1, 0, 0, "closed")
    gate.open()
    await serves(pool)
