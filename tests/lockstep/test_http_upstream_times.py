"""The upstream's deadlines, to the second: `connect`, `first_event`, `idle`, and the tail after the end mark."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from engine.deadlines import Deadlines
from engine.errors import Kind, TurnError
from engine.events import Completed, Failed
from engine.upstreams.http import ERROR_BODY, TAIL
from tests.helpers import chat
from tests.helpers.farend import LockstepPool, all_of, call, text_of
from tests.helpers.gates import Gate
from tests.helpers.outcome import beside

DEADLINES = Deadlines(first_event=10, idle=5)


def fault(error: Exception) -> tuple[Kind, str | int | None]:
    assert isinstance(error, TurnError)
    return error.fault.kind, error.fault.code


async def test_an_upstream_that_does_not_even_read_is_late_for_its_first_event(autojump_clock: MockClock) -> None:
    pool = LockstepPool()
    async with beside(lambda: all_of(call(pool, DEADLINES))) as asked:
        end = await pool.connection()
        assert fault(await asked.error()) == (Kind.UPSTREAM_TIMEOUT, "first_event_timeout")
    assert (trio.current_time(), end.near.ended, pool.leased) == (10, "closed", 0)


@pytest.mark.parametrize("sent", [[], [chat.HEAD], [chat.HEAD, chat.chunk(chat.ROLE)], [chat.HEAD[:20]]])
async def test_silence_before_the_first_event_ends_exactly_at_the_deadline(
    sent: list[bytes], autojump_clock: MockClock
) -> None:
    pool = LockstepPool()
    async with beside(lambda: all_of(call(pool, DEADLINES))) as asked:
        end = await pool.connection()
        await end.request()
        await trio.sleep(3)
        await end.send(*sent)
        assert fault(await asked.error()) == (Kind.UPSTREAM_TIMEOUT, "first_event_timeout")
    assert (trio.current_time(), end.near.ended, pool.leased) == (10, "closed", 0)


@pytest.mark.parametrize("event", [chat.COMMENT, chat.ROLE])
async def test_what_says_nothing_is_no_first_event(event: bytes, autojump_clock: MockClock) -> None:
    pool = LockstepPool()
    async with beside(lambda: all_of(call(pool, DEADLINES))) as asked:
        end = await pool.connection()
        await end.request()
        await end.stream()
        await end.drip(chat.chunk(event), every=1)
        assert fault(await asked.error()) == (Kind.UPSTREAM_TIMEOUT, "first_event_timeout")
        assert asked.ended_at == 10


async def test_what_says_nothing_is_not_kept_without_bound(autojump_clock: MockClock) -> None:
    """Until the first event everything is held back, and 300 s are long enough for gigabytes."""
    pool = LockstepPool()
    async with beside(lambda: all_of(call(pool))) as asked:
        end = await pool.connection()
        await end.request()
        await end.stream()
        taken = await end.drip(chat.chunk(chat.ROLE * 300), most=20 * 1024 * 1024)
        end.close()
        assert taken < 20 * 1024 * 1024
        assert fault(await asked.error())[0] is Kind.UPSTREAM_PROTOCOL


async def test_a_first_event_just_in_time_is_in_time(autojump_clock: MockClock) -> None:
    pool = LockstepPool()
    async with beside(lambda: all_of(call(pool, DEADLINES))) as asked:
        end = await pool.connection()
        await end.request()
        await trio.sleep(9.5)
        await end.stream(chat.ROLE, chat.text("a"), chat.DONE)
        await end.send(chat.LAST)
        assert text_of(await asked.result()) == "a"


async def test_the_time_to_connect_does_not_count_against_the_first_event(autojump_clock: MockClock) -> None:
    gate = Gate()
    pool = LockstepPool(connecting=gate)
    async with beside(lambda: all_of(call(pool, DEADLINES))) as asked:
        await trio.sleep(3)
        gate.open()
        assert fault(await asked.error()) == (Kind.UPSTREAM_TIMEOUT, "first_event_timeout")
    assert trio.current_time() == 3 + 10


async def test_silence_in_an_answer_ends_it_exactly_at_the_deadline(autojump_clock: MockClock) -> None:
    pool = LockstepPool()
    async with beside(lambda: all_of(call(pool, DEADLINES))) as asked:
        end = await pool.connection()
        await end.request()
        await end.stream()
        await trio.sleep(9)
        await end.send(chat.chunk(chat.text("a")))
        await trio.sleep(4)
        await end.send(chat.chunk(chat.text("b")))
        bursts = await asked.result()
    assert text_of(bursts) == "ab"
    assert isinstance(bursts[-1].end, Failed)
    assert fault(TurnError(bursts[-1].end.fault)) == (Kind.UPSTREAM_TIMEOUT, "idle_timeout")
    assert 18 <= trio.current_time() <= 18 + TAIL
    assert end.near.ended == "closed"


async def test_comments_are_signs_of_life_after_the_first_event(autojump_clock: MockClock) -> None:
    pool = LockstepPool()
    async with beside(lambda: all_of(call(pool, DEADLINES))) as asked:
        end = await pool.connection()
        await end.request()
        await end.stream(chat.text("a"))
        for _ in range(10):
            await trio.sleep(4.5)
            await end.send(chat.chunk(chat.COMMENT))
        await end.send(chat.chunk(chat.DONE) + chat.LAST)
        assert (await asked.result())[-1].end == Completed()


async def test_an_upstream_without_deadlines_may_take_any_time(autojump_clock: MockClock) -> None:
    pool = LockstepPool()
    async with beside(lambda: all_of(call(pool, Deadlines(first_event=0, idle=0)))) as asked:
        end = await pool.connection()
        await end.request()
        await trio.sleep(10_000)
        await end.stream(chat.text("a"))
        await trio.sleep(10_000)
        await end.send(chat.chunk(chat.text("b") + chat.DONE) + chat.LAST)
        assert text_of(await asked.result()) == "ab"


@pytest.mark.parametrize(("began", "said"), [(False, "within 10 s (first_event"), (True, "within 5 s (idle")])
async def test_the_error_says_which_deadline_it_was_and_how_long(
    began: bool, said: str, autojump_clock: MockClock
) -> None:
    pool = LockstepPool()
    async with beside(lambda: all_of(call(pool, DEADLINES))) as asked:
        end = await pool.connection()
        await end.request()
        if not began:
            error = await asked.error()
            assert isinstance(error, TurnError)
            assert said in error.fault.message
        else:
            await end.stream(chat.text("a"))
            last = (await asked.result())[-1].end
            assert isinstance(last, Failed)
            assert said in last.fault.message


async def test_the_time_in_which_nobody_asks_is_not_the_upstreams_silence(autojump_clock: MockClock) -> None:
    pool = LockstepPool()

    async def slowly() -> list[object]:
        async with call(pool, DEADLINES) as source:
            ends: list[object] = []
            while (burst := await source.receive()) is not None:
                ends.append(burst.end)
                await trio.sleep(100)  # a slow client holds the producer
            return ends

    async with beside(slowly) as asked:
        end = await pool.connection()
        await end.answer(chat.text("a"), chat.text("b"), chat.text("c"))
        assert await asked.result() == [None, None, None, Completed()]


# The tail


async def test_a_connection_that_hangs_after_the_end_mark_costs_the_tail_and_no_more(autojump_clock: MockClock) -> None:
    pool = LockstepPool()
    async with beside(lambda: all_of(call(pool))) as asked:
        end = await pool.connection()
        await end.request()
        await end.stream(chat.text("a"), chat.DONE)
        assert (await asked.result())[-1].end == Completed()
    assert (asked.ended_at, end.near.ended_at) == (TAIL, TAIL)


async def test_the_end_itself_does_not_wait_for_the_tail(autojump_clock: MockClock) -> None:
    pool = LockstepPool()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_answer_and_hang, pool)
        async with call(pool) as source:
            while (burst := await source.receive()) is not None:
                ended = burst.end
            assert (ended, trio.current_time()) == (Completed(), 0)


async def _answer_and_hang(pool: LockstepPool) -> None:
    end = await pool.connection()
    await end.request()
    await end.stream(chat.text("a"), chat.DONE)


# Getting a connection: the place and the handshake share one deadline


async def test_an_upstream_that_does_not_accept_is_late_exactly_at_the_deadline(autojump_clock: MockClock) -> None:
    pool = LockstepPool(connect=5, connecting=Gate())
    async with beside(lambda: all_of(call(pool))) as asked:
        assert fault(await asked.error()) == (Kind.UPSTREAM_TIMEOUT, "connect_timeout")
    assert (trio.current_time(), pool.leased) == (5, 0)


async def test_no_place_until_the_deadline_is_an_overload(autojump_clock: MockClock) -> None:
    pool = LockstepPool(most=1, connect=5)
    async with pool.lease(), beside(lambda: all_of(call(pool))) as asked:
        assert fault(await asked.error()) == (Kind.UPSTREAM_OVERLOADED, None)
        assert (trio.current_time(), pool.leased) == (5, 1)
    assert pool.leased == 0


async def test_the_wait_for_a_place_and_the_connecting_share_the_deadline(autojump_clock: MockClock) -> None:
    gate = Gate()
    pool = LockstepPool(most=1, connect=5, connecting=gate)
    async with beside(lambda: all_of(call(pool))) as first:
        await gate.reached()
        async with beside(lambda: all_of(call(pool))) as second:
            await trio.sleep(3)
            first.cancel()
            assert fault(await second.error()) == (Kind.UPSTREAM_TIMEOUT, "connect_timeout")
            assert (second.ended_at, pool.leased) == (5, 0)


async def test_without_a_deadline_a_place_and_a_connection_may_take_any_time(autojump_clock: MockClock) -> None:
    gate = Gate()
    pool = LockstepPool(most=1, connect=0, connecting=gate)
    async with beside(lambda: all_of(call(pool))) as first, beside(lambda: all_of(call(pool))) as second:
        await trio.sleep(10_000)
        gate.open()
        end = await pool.connection()
        await end.answer(chat.text("a"))
        await end.answer(chat.text("a"))
        assert (text_of(await first.result()), text_of(await second.result())) == ("a", "a")


async def test_the_next_in_line_gets_the_place_and_the_connection(autojump_clock: MockClock) -> None:
    pool = LockstepPool(most=1)
    async with beside(lambda: all_of(call(pool))) as first, beside(lambda: all_of(call(pool))) as second:
        end = await pool.connection()
        await wait_all_tasks_blocked()
        await end.answer(chat.text("a"))
        await end.answer(chat.text("b"))
        assert {text_of(await first.result()), text_of(await second.result())} == {"a", "b"}
    assert (pool.opened, pool.leased, pool.idle) == (1, 0, 1)


async def test_a_refusal_whose_body_does_not_end_is_passed_on_by_its_status(autojump_clock: MockClock) -> None:
    pool = LockstepPool()
    async with beside(lambda: all_of(call(pool, DEADLINES))) as asked:
        end = await pool.connection()
        await end.request()
        await end.send(b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 100\r\n\r\n{")
        assert fault(await asked.error())[0] is Kind.UPSTREAM_RATE_LIMIT
    assert (trio.current_time(), end.near.ended, pool.leased) == (ERROR_BODY, "closed", 0)
