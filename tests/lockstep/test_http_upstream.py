"""One request to an upstream and its answer: what is said of it, and whether its connection serves again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from engine.errors import Kind, TurnError
from engine.events import Completed, Failed
from engine.upstreams.http import MOST_ERROR_BYTES
from engine.wire.transport import READ_SIZE
from tests.helpers import chat
from tests.helpers.farend import FarEnd, LockstepPool, all_of, call, text_of
from tests.helpers.outcome import beside

REFUSAL = b'{"error": {"message": "slow down", "type": "rate_limit_error"}}'


def refusal(status: int, *fields: str, body: bytes = REFUSAL) -> bytes:
    lines = [f"HTTP/1.1 {status} No", "Content-Type: application/json", f"Content-Length: {len(body)}", *fields]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def served(pool: LockstepPool) -> FarEnd:
    """A connection that has served once and is idle in the pool."""
    async with beside(lambda: all_of(call(pool))) as asked:
        end = await pool.connection()
        await end.answer(chat.text("first"))
        await asked.result()
    assert (pool.leased, pool.idle) == (0, 1)
    return end


async def test_an_answer_comes_burst_by_burst_and_ends(autojump_clock: MockClock) -> None:
    pool = LockstepPool()
    async with beside(lambda: all_of(call(pool))) as asked:
        end = await pool.connection()
        request = await end.request()
        assert request.startswith(b"POST /v1/chat/completions HTTP/1.1\r\nhost: upstream\r\n")
        await end.stream(chat.ROLE, chat.text("a"), chat.text("b"), chat.STOP + chat.DONE)
        await end.send(chat.LAST)
        bursts = await asked.result()
    assert text_of(bursts) == "ab"
    assert [burst.end for burst in bursts] == [None, None, Completed()]


async def test_a_connection_that_was_read_to_its_end_serves_again(autojump_clock: MockClock) -> None:
    pool = LockstepPool()
    end = await served(pool)
    async with beside(lambda: all_of(call(pool))) as asked:
        await end.answer(chat.text("second"))
        assert text_of(await asked.result()) == "second"
    assert pool.opened == 1


async def test_the_bodys_end_may_come_after_the_end_mark(autojump_clock: MockClock) -> None:
    pool = LockstepPool()
    async with beside(lambda: all_of(call(pool))) as asked:
        end = await pool.connection()
        await end.request()
        await end.stream(chat.text("a"), chat.DONE)
        await trio.sleep(0.2)
        await end.send(chat.LAST)
        await asked.result()
    assert (pool.leased, pool.idle, end.near.ended) == (0, 1, None)


async def test_a_refusal_with_a_whole_body_leaves_a_connection_that_serves_again(autojump_clock: MockClock) -> None:
    pool = LockstepPool()
    async with beside(lambda: all_of(call(pool))) as asked:
        end = await pool.connection()
        await end.request()
        await end.send(refusal(429, "Retry-After: 7", "x-ratelimit-limit-requests: 5"))
        error = await asked.error()
    assert isinstance(error, TurnError)
    assert (error.fault.kind, error.fault.message) == (Kind.UPSTREAM_RATE_LIMIT, "slow down")
    assert (error.fault.retry_after, error.fault.headers) == ("7", ((b"x-ratelimit-limit-requests", b"5"),))
    assert (pool.leased, pool.idle) == (0, 1)


async def test_a_refusal_without_bound_is_read_to_the_limit_and_no_further(autojump_clock: MockClock) -> None:
    pool = LockstepPool()
    async with beside(lambda: all_of(call(pool))) as asked:
        end = await pool.connection()
        await end.request()
        await end.send(b"HTTP/1.1 500 No\r\nContent-Type: text/plain\r\n\r\n")
        taken = await end.drip(b"x" * 1000)
        error = await asked.error()
    assert isinstance(error, TurnError)
    assert error.fault.kind is Kind.UPSTREAM_FAILED
    assert MOST_ERROR_BYTES <= taken <= MOST_ERROR_BYTES + READ_SIZE
    assert (pool.leased, pool.idle, end.near.ended) == (0, 0, "closed")


# Connections that must not serve again

Saying = Callable[[FarEnd], Awaitable[None]]


async def extra_bytes(end: FarEnd) -> None:
    await end.stream(chat.text("a"), chat.STOP + chat.DONE)
    await end.send(chat.LAST + b"HTTP/1.1 200 OK\r\n")


async def says_close(end: FarEnd) -> None:
    await end.send(chat.HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    await end.send(chat.chunk(chat.text("a") + chat.STOP + chat.DONE) + chat.LAST)


async def ends_with_the_connection(end: FarEnd) -> None:
    await end.send(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", chat.text("a") + chat.STOP + chat.DONE
    )
    end.close()


async def an_http_1_0_answer(end: FarEnd) -> None:
    body = chat.text("a") + chat.STOP + chat.DONE
    await end.send(
        b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(body), body
    )


async def hangs_after_the_end_mark(end: FarEnd) -> None:
    await end.stream(chat.text("a"), chat.STOP + chat.DONE)


async def is_cut_after_the_end_mark(end: FarEnd) -> None:
    await end.stream(chat.text("a"), chat.STOP + chat.DONE)
    end.close()


async def talks_on_after_the_end_mark(end: FarEnd) -> None:
    await end.stream(chat.text("a"), chat.STOP + chat.DONE)
    await end.drip(chat.chunk(chat.COMMENT), every=0.1)


WHOLE = [
    extra_bytes,
    says_close,
    ends_with_the_connection,
    an_http_1_0_answer,
    hangs_after_the_end_mark,
    is_cut_after_the_end_mark,
    talks_on_after_the_end_mark,
]


@pytest.mark.parametrize("saying", WHOLE)
async def test_a_whole_answer_on_a_connection_that_cannot_be_trusted_closes_it(
    saying: Saying, autojump_clock: MockClock
) -> None:
    pool = LockstepPool()
    async with beside(lambda: all_of(call(pool))) as asked:
        end = await pool.connection()
        await end.request()
        await saying(end)
        bursts = await asked.result()
    assert (text_of(bursts), bursts[-1].end) == ("a", Completed())
    assert (pool.leased, pool.idle, end.near.ended) == (0, 0, "closed")


async def is_cut(end: FarEnd) -> None:
    await end.stream(chat.text("a"))
    end.close()


async def is_cut_inside_an_event(end: FarEnd) -> None:
    await end.stream(chat.text("a"), chat.text("b")[:20])
    end.close()


async def ends_properly_without_an_end_mark(end: FarEnd) -> None:
    await end.stream(chat.text("a"))
    await end.send(chat.LAST)


async def breaks_the_framing(end: FarEnd) -> None:
    await end.stream(chat.text("a"))
    await end.send(b"nonsense\r\n")


BROKEN = [
    (is_cut, Kind.UPSTREAM_TRUNCATED),
    (is_cut_inside_an_event, Kind.UPSTREAM_TRUNCATED),
    (ends_properly_without_an_end_mark, Kind.UPSTREAM_TRUNCATED),
    (breaks_the_framing, Kind.UPSTREAM_PROTOCOL),
]


@pytest.mark.parametrize(("saying", "kind"), BROKEN)
async def test_an_answer_that_breaks_off_keeps_its_text_and_ends_with_a_fault(
    saying: Saying, kind: Kind, autojump_clock: MockClock
) -> None:
    pool = LockstepPool()
    async with beside(lambda: all_of(call(pool))) as asked:
        end = await pool.connection()
        await end.request()
        await saying(end)
        bursts = await asked.result()
    assert text_of(bursts) == "a"
    assert isinstance(bursts[-1].end, Failed)
    assert bursts[-1].end.fault.kind is kind
    assert end.near.ended == ("closed" if saying is not ends_properly_without_an_end_mark else None)


async def closes(end: FarEnd) -> None:  # noqa: ASYNC124 — one of a kind whose others wait
    end.close()


async def ends_properly(end: FarEnd) -> None:
    await end.send(chat.LAST)


async def breaks(end: FarEnd) -> None:
    await end.send(b"nonsense\r\n")


@pytest.mark.parametrize("ending", [closes, ends_properly, breaks])
async def test_behind_the_finish_reason_nothing_can_make_an_answer_less_than_whole(
    ending: Saying, autojump_clock: MockClock
) -> None:
    pool = LockstepPool()
    async with beside(lambda: all_of(call(pool))) as asked:
        end = await pool.connection()
        await end.request()
        await end.stream(chat.text("a"), chat.STOP)
        await ending(end)
        bursts = await asked.result()
    assert (text_of(bursts), bursts[-1].end) == ("a", Completed())


ERROR = b'data: {"error": {"message": "out of memory", "code": 503}}\n\n'


@pytest.mark.parametrize("events", [[chat.ROLE, ERROR], [chat.ROLE + ERROR], [ERROR]])
async def test_a_failure_behind_a_role_alone_is_a_refusal(events: list[bytes], autojump_clock: MockClock) -> None:
    """Nothing was said yet: another upstream may be asked, and the client gets a status."""
    pool = LockstepPool()
    async with beside(lambda: all_of(call(pool))) as asked:
        end = await pool.connection()
        await end.request()
        await end.stream(*events)
        error = await asked.error()
    assert isinstance(error, TurnError)
    assert error.fault.kind is Kind.UPSTREAM_OVERLOADED


# A stale idle connection


async def test_a_stale_idle_connection_is_replaced_and_the_request_sent_again(autojump_clock: MockClock) -> None:
    pool = LockstepPool()
    stale = await served(pool)
    stale.close()
    async with beside(lambda: all_of(call(pool))) as asked:
        fresh = await pool.connection()
        await fresh.answer(chat.text("second"))
        assert text_of(await asked.result()) == "second"
    assert (pool.opened, stale.near.ended) == (2, "closed")


async def test_a_connection_that_ends_under_the_request_is_replaced_if_nothing_came(autojump_clock: MockClock) -> None:
    pool = LockstepPool()
    stale = await served(pool)
    async with beside(lambda: all_of(call(pool))) as asked:
        await stale.request()
        stale.close()
        await (await pool.connection()).answer(chat.text("second"))
        assert text_of(await asked.result()) == "second"


def assert_truncated(asked_error: Exception) -> None:
    assert isinstance(asked_error, TurnError)
    assert asked_error.fault.kind is Kind.UPSTREAM_TRUNCATED


async def test_a_request_is_not_sent_again_once_a_byte_came_back(autojump_clock: MockClock) -> None:
    pool = LockstepPool()
    end = await served(pool)
    async with beside(lambda: all_of(call(pool))) as asked:
        await end.request()
        await end.send(b"H")
        end.close()
        assert_truncated(await asked.error())
    assert (pool.opened, pool.leased) == (1, 0)


async def test_a_request_is_not_sent_again_for_a_new_connection(autojump_clock: MockClock) -> None:
    pool = LockstepPool()
    async with beside(lambda: all_of(call(pool))) as asked:
        end = await pool.connection()
        await end.request()
        end.close()
        assert_truncated(await asked.error())
    assert (pool.opened, pool.leased) == (1, 0)


async def test_a_request_is_sent_again_only_once(autojump_clock: MockClock) -> None:
    pool = LockstepPool()
    stale = await served(pool)
    stale.close()
    async with beside(lambda: all_of(call(pool))) as asked:
        fresh = await pool.connection()
        await fresh.request()
        fresh.close()
        assert_truncated(await asked.error())
    assert (pool.opened, pool.leased) == (2, 0)


# What is no answer

NO_ANSWERS = {
    "not HTTP": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "a redirection": b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n",
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "an empty body": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 0\r\n\r\n",
    "a web page": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>",
    "a coding that nobody asked for": b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 1\r\n\r\nx",
    "a head without end": b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 300_000,
}


@pytest.mark.parametrize("name", NO_ANSWERS)
async def test_what_is_no_answer_is_the_upstreams_fault_and_another_may_do_better(
    name: str, autojump_clock: MockClock
) -> None:
    pool = LockstepPool()
    async with beside(lambda: all_of(call(pool))) as asked:
        end = await pool.connection()
        await end.request()
        await end.send(NO_ANSWERS[name])
        error = await asked.error()
    assert isinstance(error, TurnError)
    assert error.fault.kind in (Kind.UPSTREAM_PROTOCOL, Kind.UPSTREAM_TRUNCATED)
    assert error.fault.retryable
    assert pool.leased == 0


async def test_an_interim_response_is_not_the_answer(autojump_clock: MockClock) -> None:
    pool = LockstepPool()
    async with beside(lambda: all_of(call(pool))) as asked:
        end = await pool.connection()
        await end.request()
        await end.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
        await end.stream(chat.text("a"), chat.STOP + chat.DONE)
        await end.send(chat.LAST)
        assert text_of(await asked.result()) == "a"
    assert pool.idle == 1


async def test_where_one_idle_connection_was_dead_the_others_are_not_kept(autojump_clock: MockClock) -> None:
    """They would count beside the new one, and a pool is never larger than its bound."""
    pool = LockstepPool(most=2)
    first = await served(pool)
    async with beside(lambda: all_of(call(pool))) as one, beside(lambda: all_of(call(pool))) as other:
        await first.answer(chat.text("a"))
        second = await pool.connection()
        await second.answer(chat.text("b"))
        assert {text_of(await one.result()), text_of(await other.result())} == {"a", "b"}
    assert pool.idle == 2
    async with beside(lambda: all_of(call(pool))) as asked:
        await wait_all_tasks_blocked()
        for each in (first, second):
            each.close()
        await (await pool.connection()).answer(chat.text("c"))
        assert text_of(await asked.result()) == "c"
    assert (pool.leased, pool.idle) == (0, 1)
