"""A client's connection in good weather: order, reuse, versions, and its end."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from engine.errors import Fault, Kind
from engine.wire.http1_server import Limits, Request
from engine.wire.response import Response
from tests.helpers.gates import Gate
from tests.helpers.http import request
from tests.helpers.lockstep import HEADERS, ScriptedHandler, connected, echo


async def streamed(request: Request, response: Response) -> None:
    """A body in two pieces, a second apart."""
    response.begin_stream(200, HEADERS)
    await response.write(b"one")
    await trio.sleep(1)
    await response.write(b"two", last=True)


async def test_a_connection_serves_one_request_after_the_other(autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler()) as both:
        for path in ("/a", "/b", "/c"):
            answer = await both.client.ask(f"POST {path} HTTP/1.1", body=b"body")
            assert (answer.status, answer.body) == (200, f"POST {path} body".encode())
            assert "connection" not in answer.headers
    assert both.transport.ended == "closed"


async def test_pipelined_requests_are_answered_in_order_and_one_at_a_time(autojump_clock: MockClock) -> None:
    async def slower_first(request: Request, response: Response) -> None:
        await trio.sleep(3 if request.path == "/a" else 1)
        began.append((request.path, trio.current_time()))
        await echo(request, response)

    began: list[tuple[str, float]] = []
    async with connected(ScriptedHandler(slower_first)) as both:
        await both.client.send(
            request("GET /a HTTP/1.1") + request("POST /b HTTP/1.1", body=b"x") + request("GET /c HTTP/1.1")
        )
        bodies = [(await both.client.answer()).body for _ in range(3)]
    assert bodies == [b"GET /a ", b"POST /b x", b"GET /c "]
    assert began == [("/a", 3), ("/b", 4), ("/c", 5)]


async def test_a_request_may_come_byte_by_byte(autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler()) as both:
        for byte in request("POST /a HTTP/1.1", body=b"body"):
            await both.client.send(bytes((byte,)))
        assert (await both.client.answer()).body == b"POST /a body"


async def test_a_body_may_come_in_chunks(autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler()) as both:
        chunks = b"2\r\nbo\r\n2;extension\r\ndy\r\n0\r\nX-Trailer: 1\r\n\r\n"
        answer = await both.client.ask("POST / HTTP/1.1", "Transfer-Encoding: chunked", body=chunks)
        assert answer.body == b"POST / body"
        assert (await both.client.ask()).status == 200


async def test_a_stream_goes_out_a_chunk_a_write_as_it_is_made(autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler(streamed)) as both:
        await both.client.send(request())
        head = await both.client.head()
        assert head.headers["transfer-encoding"] == "chunked"
        assert (await both.client.chunk(), trio.current_time()) == (b"one", 0)
        assert (await both.client.chunk(), trio.current_time()) == (b"two", 1)
        assert await both.client.chunk() == b""
        assert (await both.client.ask()).status == 200


@pytest.mark.parametrize("line", ["GET / HTTP/1.1", "HEAD / HTTP/1.1"])
async def test_a_client_that_says_close_is_closed_after_its_answer(line: str, autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler()) as both:
        answer = await both.client.ask(line, "Connection: close")
        assert answer.headers["connection"] == "close"
        assert await both.client.rest() == b""
    assert both.transport.ended_at == 0


async def test_the_last_request_of_a_connection_is_told_so(autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler(), limits=Limits(requests_per_connection=2)) as both:
        assert "connection" not in (await both.client.ask()).headers
        assert (await both.client.ask()).headers["connection"] == "close"
        assert await both.client.rest() == b""


async def test_a_head_request_gets_the_head_alone_and_the_connection_goes_on(autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler()) as both:
        assert (await both.client.ask("HEAD /a HTTP/1.1")).headers["content-length"] == "8"
        assert (await both.client.ask("GET /b HTTP/1.1")).body == b"GET /b "


async def test_a_stream_asked_for_by_head_is_a_head_alone(autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler(streamed)) as both:
        assert (await both.client.ask("HEAD / HTTP/1.1")).headers["transfer-encoding"] == "chunked"
        assert (await both.client.ask("GET / HTTP/1.1")).body == b"onetwo"


async def test_an_http_1_0_client_is_closed_unless_it_asks_to_be_kept(autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler()) as both:
        kept = await both.client.ask("GET /a HTTP/1.0", "Connection: keep-alive")
        assert (kept.headers["connection"], kept.body) == ("keep-alive", b"GET /a ")
        last = await both.client.ask("GET /b HTTP/1.0")
        assert (last.headers["connection"], last.body) == ("close", b"GET /b ")
        assert await both.client.rest() == b""


async def test_an_http_1_0_client_gets_a_stream_that_ends_with_the_connection(autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler(streamed)) as both:
        answer = await both.client.ask("GET / HTTP/1.0", "Connection: keep-alive")
        assert answer.body == b"onetwo"
        assert "transfer-encoding" not in answer.headers
    assert both.transport.ended == "closed"


UPGRADE = ("Connection: upgrade, http2-settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")


async def test_an_offer_to_upgrade_is_answered_as_if_it_had_not_been_made(autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler()) as both:
        assert (await both.client.ask("GET /a HTTP/1.1", *UPGRADE)).body == b"GET /a "
        assert (await both.client.ask("POST /b HTTP/1.1", *UPGRADE, body=b"body")).body == b"POST /b body"
        assert (await both.client.ask("GET /c HTTP/1.1")).body == b"GET /c "


async def test_a_request_behind_an_offer_to_upgrade_is_not_lost(autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler()) as both:
        await both.client.send(
            request("POST /a HTTP/1.1", *UPGRADE, body=b"1") + request("POST /b HTTP/1.1", body=b"2")
        )
        assert [(await both.client.answer()).body for _ in range(2)] == [b"POST /a 1", b"POST /b 2"]


async def test_an_empty_line_before_a_request_is_skipped(autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler()) as both:
        await both.client.send(b"\r\n" + request())
        assert (await both.client.answer()).status == 200


# Expect: 100-continue


async def test_a_client_that_asks_first_is_told_to_go_on(autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler()) as both:
        await both.client.send(request("POST / HTTP/1.1", "Expect: 100-continue", "Content-Length: 4"))
        assert (await both.client.head()).status == 100
        await both.client.send(b"body")
        assert (await both.client.answer()).body == b"POST / body"
        assert (await both.client.ask()).status == 200


async def test_a_client_that_did_not_wait_for_the_word_is_not_given_it(autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler()) as both:
        await both.client.send(request("POST / HTTP/1.1", "Expect: 100-continue", body=b"body"))
        assert (await both.client.answer()).status == 200


async def test_a_client_that_asks_first_and_is_refused_is_never_told_to_go_on(autojump_clock: MockClock) -> None:
    refused = Fault(Kind.UNAUTHENTICATED, "no")
    async with connected(ScriptedHandler(refuse=lambda _: refused)) as both:
        await both.client.send(request("POST / HTTP/1.1", "Expect: 100-continue", "Content-Length: 4"))
        answer = await both.client.answer()
        assert (answer.status, answer.headers["connection"]) == (401, "close")
        # It may send its body all the same, or not: only closing makes clear where the next request begins.
        assert await both.client.rest() == b""


# Ending from our side


async def test_finishing_closes_an_idle_connection_at_once(autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler()) as both:
        await both.client.ask()
        await wait_all_tasks_blocked()
        both.connection.finish()
        assert await both.client.rest() == b""
    assert (both.transport.ended, both.transport.ended_at) == ("closed", 0)


async def test_finishing_lets_the_answer_under_way_end_first(autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler(streamed)) as both:
        await both.client.send(request())
        await both.client.head()
        both.connection.finish()
        assert await both.client.rest() == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
    assert both.transport.ended == "closed"


async def test_an_answer_that_has_not_begun_when_finishing_says_that_it_is_the_last(autojump_clock: MockClock) -> None:
    async def later(request: Request, response: Response) -> None:
        await gate.wait()
        await echo(request, response)

    gate = Gate()
    async with connected(ScriptedHandler(later)) as both:
        await both.client.send(request())
        await gate.reached()
        both.connection.finish()
        gate.open()
        assert (await both.client.answer()).headers["connection"] == "close"
        assert await both.client.rest() == b""


async def test_a_request_that_has_begun_when_finishing_is_still_answered(autojump_clock: MockClock) -> None:
    async with connected(ScriptedHandler()) as both:
        await both.client.send(b"GET / HT")
        both.connection.finish()
        await wait_all_tasks_blocked()
        await both.client.send(b"TP/1.1\r\nHost: test\r\n\r\n")
        assert (await both.client.answer()).headers["connection"] == "close"
        assert await both.client.rest() == b""
