"""What a connection refuses by itself: what is not HTTP/1.1, what is too large, and what comes too slowly."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from engine.deadlines import Deadlines
from engine.errors import Fault, Kind
from engine.wire.http1_server import DISCARDED_BODY, LINGER, Limits, Request
from engine.wire.response import Response
from tests.helpers.http import request
from tests.helpers.lockstep import Connected, ScriptedHandler, connected, echo

NOT_HTTP = {
    "garbage": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "no version": b"GET /\r\nHost: test\r\n\r\n",
    "a version from the future": b"GET / HTTP/2.0\r\nHost: test\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "no host, and an offer to upgrade": b"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
    "a tunnel": b"CONNECT test:443 HTTP/1.1\r\nHost: test:443\r\n\r\n",
    "a blank before the colon": b"GET / HTTP/1.1\r\nHost : test\r\n\r\n",
    "a folded field": b"GET / HTTP/1.1\r\nHost: test\r\nX-A: 1\r\n 2\r\n\r\n",
    "a NUL in a field": b"GET / HTTP/1.1\r\nHost: te\0st\r\n\r\n",
    "both lengths": request("POST / HTTP/1.1", "Content-Length: 4", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
    "both lengths, turned": request(
        "POST / HTTP/1.1", "Transfer-Encoding: chunked", "Content-Length: 4", body=b"0\r\n\r\n"
    ),
    "two lengths": request("POST / HTTP/1.1", "Content-Length: 4", "Content-Length: 5", body=b"body"),
    "a negative length": request("POST / HTTP/1.1", "Content-Length: -4", body=b"body"),
    "a length that is none": request("POST / HTTP/1.1", "Content-Length: 4x", body=b"body"),
    "a coding that is not chunked": request("POST / HTTP/1.1", "Transfer-Encoding: gzip", body=b"body"),
    "chunked, and something after it": request(
        "POST / HTTP/1.1", "Transfer-Encoding: chunked, gzip", body=b"0\r\n\r\n"
    ),
    "a chunk size that is none": request(
        "POST / HTTP/1.1", "Transfer-Encoding: chunked", body=b"zz\r\nbody\r\n0\r\n\r\n"
    ),
    "a chunk that is longer": request("POST / HTTP/1.1", "Transfer-Encoding: chunked", body=b"1\r\nbody\r\n0\r\n\r\n"),
}


async def refused(both: Connected, status: int) -> None:
    """The answer says why, and that it is the last; then the connection ends."""
    answer = await both.client.answer()
    assert (answer.status, answer.headers["connection"]) == (status, "close")
    assert await both.client.rest() == b""


@pytest.mark.parametrize("name", NOT_HTTP)
async def test_what_is_not_http_is_refused_and_nothing_of_it_is_served(name: str, autojump_clock: MockClock) -> None:
    handler = ScriptedHandler()
    async with connected(handler) as both:
        await both.client.send(NOT_HTTP[name])
        await refused(both, 400)
    assert handler.responded == []


async def test_good_requests_before_a_bad_one_are_answered_first(autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler()) as both:
        await both.client.send(request("GET /a HTTP/1.1") + request("GET /b HTTP/1.1") + b"nonsense\r\n\r\n")
        assert [(await both.client.answer()).body for _ in range(2)] == [b"GET /a ", b"GET /b "]
        await refused(both, 400)


async def test_a_body_is_never_taken_for_a_request(autojump_clock: MockClock) -> None:
    """A parser that stops at an offer to upgrade leaves the body behind, and whoever wrote the body writes requests."""
    handler = ScriptedHandler()
    offer = ("Connection: upgrade", "Upgrade: h2c")
    async with connected(handler) as both:
        await both.client.send(request("POST /outer HTTP/1.1", *offer, body=request("GET /inner HTTP/1.1")))
        await both.client.answer()
        await wait_all_tasks_blocked()
        assert handler.begun == ["/outer"]


# Sizes. The limits are the operator's, so none of them may depend on how the bytes were cut into reads.


async def in_pieces(both: Connected, data: bytes, size: int) -> None:
    """Send until it is sent, or the server has had enough."""
    try:
        for start in range(0, len(data), size):
            await both.client.send(data[start : start + size])
    except trio.BrokenResourceError:
        pass


async def answer_while_sending(both: Connected, data: bytes, size: int) -> tuple[int, str | None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(in_pieces, both, data, size)
        answer = await both.client.answer()
        nursery.cancel_scope.cancel()
    return answer.status, answer.headers.get("connection")


@pytest.mark.parametrize("size", [100, 600, 999, 10_000])
async def test_a_head_that_is_too_large_is_refused(size: int, autojump_clock: MockClock) -> None:
    head = request("GET / HTTP/1.1", "X-Long: " + "a" * 1800)
    async with connected(ScriptedHandler(), limits=Limits(head_bytes=1000)) as both:
        assert await answer_while_sending(both, head, size) == (431, "close")


@pytest.mark.parametrize("size", [100, 900, 10_000])
async def test_a_head_within_its_limit_is_served(size: int, autojump_clock: MockClock) -> None:
    head = request("GET / HTTP/1.1", "X-Long: " + "a" * 900)
    async with connected(ScriptedHandler(), limits=Limits(head_bytes=1000)) as both:
        assert await answer_while_sending(both, head, size) == (200, None)


async def test_bytes_of_the_request_before_are_not_counted_as_head(autojump_clock: MockClock) -> None:
    first, second = request("POST /a HTTP/1.1", body=b"x" * 900), request("GET /b HTTP/1.1", "X-Long: " + "a" * 300)
    async with connected(ScriptedHandler(), limits=Limits(head_bytes=1000)) as both:
        await both.client.send(first[:100])
        await both.client.send(first[100:] + second[:200])
        assert (await both.client.answer()).status == 200
        await both.client.send(second[200:])
        assert (await both.client.answer()).body == b"GET /b "


async def test_whole_requests_before_a_head_are_not_counted_as_head(autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler(), limits=Limits(head_bytes=300)) as both:
        await both.client.send(request("GET /a HTTP/1.1") * 20 + request("POST /b HTTP/1.1", "Content-Length: 4"))
        assert [(await both.client.answer()).body for _ in range(20)] == [b"GET /a "] * 20
        await both.client.send(b"body")
        assert (await both.client.answer()).body == b"POST /b body"


async def test_trailers_are_bounded_like_a_head(autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler(), limits=Limits(head_bytes=1000)) as both:
        await both.client.send(request("POST / HTTP/1.1", "Transfer-Encoding: chunked") + b"4\r\nbody\r\n0\r\n")
        status, connection = await answer_while_sending(both, b"X-Long: " + b"a" * 100_000 + b"\r\n\r\n", 500)
        assert status in (400, 413, 431)
        assert connection == "close"


async def test_a_body_that_says_it_is_too_large_is_refused_before_it_comes(autojump_clock: MockClock) -> None:
    handler = ScriptedHandler()
    async with connected(handler, limits=Limits(body_bytes=10)) as both:
        await both.client.send(request("POST / HTTP/1.1", f"Content-Length: {DISCARDED_BODY + 1}"))
        answer = await both.client.answer()
        assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert handler.responded == []


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_a_body_in_chunks_is_refused_where_it_becomes_too_large(size: int, autojump_clock: MockClock) -> None:
    chunks = b"6\r\n012345\r\n" * 1000
    async with connected(ScriptedHandler(), limits=Limits(body_bytes=10)) as both:
        await both.client.send(request("POST / HTTP/1.1", "Transfer-Encoding: chunked"))
        assert await answer_while_sending(both, chunks, size) == (413, "close")


@pytest.mark.parametrize("fields", [(), ("Transfer-Encoding: chunked",)])
async def test_a_body_of_exactly_the_limit_is_served(fields: tuple[str, ...], autojump_clock: MockClock) -> None:
    body = b"a\r\n0123456789\r\n0\r\n\r\n" if fields else b"0123456789"
    async with connected(ScriptedHandler(), limits=Limits(body_bytes=10)) as both:
        assert (await both.client.ask("POST / HTTP/1.1", *fields, body=body)).body == b"POST / 0123456789"


# A refused request's body: read away if it is small, else the connection ends, after the answer could be read

NO = Fault(Kind.UNAUTHENTICATED, "no")


async def test_a_small_body_of_a_refused_request_is_read_away(autojump_clock: MockClock) -> None:
    handler = ScriptedHandler(refuse=lambda request: NO if request.path == "/no" else None)
    async with connected(handler) as both:
        await both.client.send(request("POST /no HTTP/1.1", f"Content-Length: {DISCARDED_BODY}"))
        answer = await both.client.answer()
        assert answer.status == 401
        assert "connection" not in answer.headers
        await both.client.send(b"x" * DISCARDED_BODY)
        assert (await both.client.ask("GET /yes HTTP/1.1")).body == b"GET /yes "


async def test_a_large_body_of_a_refused_request_ends_the_connection_after_the_answer(
    autojump_clock: MockClock,
) -> None:
    large = DISCARDED_BODY * 10
    async with connected(ScriptedHandler(refuse=lambda _: NO)) as both:
        await both.client.send(request("POST / HTTP/1.1", f"Content-Length: {large}"))
        answer = await both.client.answer()
        assert (answer.status, answer.headers["connection"]) == (401, "close")
        await both.client.send(b"x" * (large // 2))  # a client in the middle of its body: a reset would lose the answer
        assert not both.served.has_ended
        await both.served.ended()
    assert (both.transport.ended, both.transport.ended_at) == ("closed", LINGER)


async def test_lingering_ends_when_the_client_has_had_enough(autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler(refuse=lambda _: NO)) as both:
        await both.client.send(request("POST / HTTP/1.1", f"Content-Length: {DISCARDED_BODY * 10}"))
        await both.client.answer()
        await trio.sleep(LINGER / 2)
        both.finish_sending()
        await both.served.ended()
    assert both.transport.ended_at == LINGER / 2


async def test_lingering_is_not_prolonged_by_what_the_client_goes_on_sending(autojump_clock: MockClock) -> None:
    """Otherwise a byte a second would hold a connection that has been refused for as long as its client likes."""
    async with connected(ScriptedHandler(refuse=lambda _: NO)) as both:
        await both.client.send(request("POST / HTTP/1.1", f"Content-Length: {DISCARDED_BODY * 10}"))
        await both.client.answer()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trickle, both, b"x" * 10, LINGER * 0.4)
            await both.served.ended()
            nursery.cancel_scope.cancel()
    assert both.transport.ended_at == LINGER


async def test_what_is_sent_to_a_lingering_connection_is_not_kept(autojump_clock: MockClock) -> None:
    handler = ScriptedHandler(refuse=lambda _: NO)
    async with connected(handler) as both:
        await both.client.send(request("POST / HTTP/1.1", "Content-Length: 1000000"))
        await both.client.answer()
        await both.client.send(b"x" * 1_000_000 + request("GET /next HTTP/1.1"))
        await wait_all_tasks_blocked()
    assert handler.begun == ["/"]


# Times


async def test_a_head_that_trickles_in_is_cut_at_its_deadline(autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler(), deadlines=Deadlines(head=10)) as both:
        await trio.sleep(100)  # silence before a request is not a late head
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trickle, both, b"GET / HTTP/1.1\r\nHost: test\r\n" + b"X-A: 1\r\n" * 100)
            answer = await both.client.answer()
            assert (answer.status, answer.headers["connection"], trio.current_time()) == (408, "close", 110)
            nursery.cancel_scope.cancel()


async def trickle(both: Connected, data: bytes, every: float = 1.0) -> None:
    for byte in data:
        await both.client.send(bytes((byte,)))
        await trio.sleep(every)


async def test_a_body_that_trickles_in_is_cut_at_its_deadline(autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler(), deadlines=Deadlines(body=60)) as both:
        await both.client.send(request("POST / HTTP/1.1", "Content-Length: 1000"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trickle, both, b"x" * 1000)
            answer = await both.client.answer()
            assert (answer.status, answer.headers["connection"], trio.current_time()) == (408, "close", 60)
            nursery.cancel_scope.cancel()


async def test_a_head_and_a_body_that_come_just_in_time_are_served(autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler(), deadlines=Deadlines(head=10, body=60)) as both:
        await both.client.send(b"POST / HTTP/1.1\r\n")
        await trio.sleep(9.5)
        await both.client.send(b"Host: test\r\nContent-Length: 4\r\n\r\n")
        await trio.sleep(59.5)
        await both.client.send(b"body")
        assert (await both.client.answer()).body == b"POST / body"


async def test_without_deadlines_a_head_and_a_body_may_take_any_time(autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler(), deadlines=Deadlines(head=0, body=0)) as both:
        await both.client.send(b"POST / HTTP/1.1\r\n")
        await trio.sleep(10_000)
        await both.client.send(b"Host: test\r\nContent-Length: 4\r\n\r\n")
        await trio.sleep(10_000)
        await both.client.send(b"body")
        assert (await both.client.answer()).body == b"POST / body"


async def test_a_pipelined_head_is_not_late_for_the_time_of_the_answer_before_it(autojump_clock: MockClock) -> None:
    async def slow(request: Request, response: Response) -> None:
        await trio.sleep(20)
        await echo(request, response)

    async with connected(ScriptedHandler(slow), deadlines=Deadlines(head=10)) as both:
        await both.client.send(request("GET /a HTTP/1.1") + b"GET /b HTTP/1.1\r\n")
        await trio.sleep(5)
        await both.client.send(b"Host: test\r\n\r\n")
        assert (await both.client.answer()).body == b"GET /a "
        assert (await both.client.answer()).body == b"GET /b "
