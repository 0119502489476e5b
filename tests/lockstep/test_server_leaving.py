"""A client that leaves, stalls or talks too much: the connection sees it at once, whatever it is doing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from engine.deadlines import Deadlines
from engine.errors import Fault, Kind
from engine.wire.http1_server import Limits, Request, ServerConnection, gone
from engine.wire.response import Rendered, Response
from engine.wire.transport import StreamTransport
from tests.helpers.gates import Gate
from tests.helpers.http import request
from tests.helpers.lockstep import HEADERS, Connected, Respond, ScriptedHandler, connected, echo

LEFT, STALLED, OVERRAN = Kind.CLIENT_LEFT, Kind.CLIENT_STALLED, Kind.CLIENT_OVERRAN


def cancelled_by_leaving(what: Respond) -> Respond:
    """As a turn does it: leaving cancels, and then raises."""

    async def respond(request: Request, response: Response) -> None:
        with trio.CancelScope() as turn:
            response.when_client_leaves = lambda _: turn.cancel(reason="left")
            await what(request, response)
        if turn.cancelled_caught:
            raise gone(LEFT)

    return respond


def until(gate: Gate) -> Respond:
    async def respond(request: Request, response: Response) -> None:
        await gate.wait()
        await echo(request, response)

    return cancelled_by_leaving(respond)


@pytest.mark.parametrize("how", [Connected.leave, Connected.finish_sending])
async def test_leaving_during_a_turn_cancels_it_at_once(
    how: Callable[[Connected], None], autojump_clock: MockClock
) -> None:
    gate = Gate()
    handler = ScriptedHandler(until(gate))
    async with connected(handler) as both:
        await both.client.send(request())
        await gate.reached()
        how(both)
        await both.served.ended()
    assert gate.cancelled == 1
    assert handler.done == [(None, LEFT)]
    assert (both.transport.ended, both.transport.ended_at) == ("reset", 0)


@pytest.mark.parametrize("behind", [b"GET", request("GET /b HTTP/1.1"), request("GET /b HTTP/1.1") * 100])
async def test_leaving_is_seen_behind_pipelined_bytes(behind: bytes, autojump_clock: MockClock) -> None:
    gate = Gate()
    handler = ScriptedHandler(until(gate))
    async with connected(handler) as both:
        await both.client.send(request("GET /a HTTP/1.1"))
        await gate.reached()
        await both.client.send(behind)
        both.leave()
        await both.served.ended()
    assert gate.cancelled == 1
    assert handler.begun == ["/a"]  # what was asked behind it is not begun for nobody
    assert handler.done == [(None, LEFT)]


async def test_leaving_after_the_answer_is_no_loss(autojump_clock: MockClock) -> None:
    handler = ScriptedHandler()
    async with connected(handler) as both:
        await both.client.ask()
    assert handler.done == [(200, None)]
    assert both.transport.ended == "closed"


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n"])
async def test_leaving_before_a_request_is_whole_begins_nothing(sent: bytes, autojump_clock: MockClock) -> None:
    handler = ScriptedHandler()
    async with connected(handler) as both:
        await both.client.send(sent) if sent else None
        both.leave()
        await both.served.ended()
    assert handler.begun == []
    assert both.transport.ended_at == 0


async def test_leaving_in_the_middle_of_the_body_asks_for_no_answer(autojump_clock: MockClock) -> None:
    handler = ScriptedHandler()
    async with connected(handler) as both:
        await both.client.send(request("POST / HTTP/1.1", "Content-Length: 10") + b"body")
        both.leave()
        await both.served.ended()
    assert handler.responded == []
    assert handler.done == [(None, LEFT)]


class HastyTransport(StreamTransport):
    """Gives what came and the end after it in one go, as a socket does whose peer sent both before we looked."""

    def __init__(self, *reads: bytes) -> None:
        self._reads = iter(reads)
        self.ended: str | None = None

    async def receive(self) -> bytes:
        return next(self._reads, b"")

    async def send_some(self, data: memoryview) -> int:
        await trio.lowlevel.checkpoint()
        return len(data)

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def reset(self) -> None:
        self.ended = self.ended or "reset"


@pytest.mark.parametrize("reads", [[request()], [request("POST / HTTP/1.1", "Content-Length: 4"), b"body"]])
async def test_a_client_that_leaves_with_its_request_has_left(reads: list[bytes], autojump_clock: MockClock) -> None:
    """Who looks at the socket only while a turn is under way has missed it, and the turn runs for nobody."""
    gate = Gate()
    handler, transport = ScriptedHandler(until(gate)), HastyTransport(*reads)
    with trio.move_on_after(3600) as unnoticed:
        await ServerConnection(transport, handler, Limits(), Deadlines()).run()
    assert not unnoticed.cancelled_caught
    assert [loss for _, loss in handler.done] in ([], [LEFT])


# A client that sends more than it is owed


async def flooded(both: Connected, most: int) -> int:
    """Bytes of requests that were taken before the connection was dropped or nothing was read for a while."""
    taken, piece = 0, request("GET /b HTTP/1.1")
    with trio.move_on_after(1), suppress(trio.BrokenResourceError):
        while taken < most:
            await both.client.send(piece)
            taken += len(piece)
    return taken


async def big(request: Request, response: Response) -> None:
    await response.send_whole(Rendered(200, HEADERS, b"x" * 1_000_000))


UNDER_WAY: dict[str, Respond] = {
    "in a turn": until(Gate()),
    "in a write that nobody takes": big,
    "in a turn's write that nobody takes": cancelled_by_leaving(big),
}


@pytest.mark.parametrize("name", UNDER_WAY)
async def test_pipelined_bytes_are_bounded_whatever_is_under_way(name: str, autojump_clock: MockClock) -> None:
    limit, handler = 4096, ScriptedHandler(UNDER_WAY[name])
    async with connected(handler, limits=Limits(pipelined_bytes=limit)) as both:
        await both.client.send(request("GET /a HTTP/1.1"))
        assert await flooded(both, 10 * limit) <= 2 * limit
    assert handler.begun == ["/a"]


async def test_pipelined_bytes_are_bounded_also_while_a_finished_turn_is_tidied_up(autojump_clock: MockClock) -> None:
    limit, gate = 4096, Gate()

    async def tidying(request: Request, response: Response) -> None:
        await echo(request, response)
        await gate.wait()

    async with connected(ScriptedHandler(tidying), limits=Limits(pipelined_bytes=limit)) as both:
        await both.client.ask("GET /a HTTP/1.1")
        await gate.reached()
        assert await flooded(both, 10 * limit) <= 2 * limit
        gate.open()


async def test_talking_too_much_ends_the_turn_under_way(autojump_clock: MockClock) -> None:
    gate = Gate()
    handler = ScriptedHandler(until(gate))
    async with connected(handler, limits=Limits(pipelined_bytes=1000)) as both:
        await both.client.send(request())
        await gate.reached()
        await both.client.send(b"x" * 1001)
        await both.served.ended()
    assert [loss for _, loss in handler.done] == [OVERRAN]
    assert both.transport.ended == "reset"


async def test_pipelining_as_much_as_is_allowed_is_no_offence(autojump_clock: MockClock) -> None:
    gate = Gate()
    second = request("POST /b HTTP/1.1", body=b"x" * 100)
    async with connected(ScriptedHandler(until(gate)), limits=Limits(pipelined_bytes=len(second))) as both:
        await both.client.send(request("GET /a HTTP/1.1"))
        await gate.reached()
        await both.client.send(second)
        gate.open()
        assert (await both.client.answer()).body == b"GET /a "
        assert (await both.client.answer()).body.startswith(b"POST /b xx")


# A client that does not read: `drain` measures progress, not size


async def test_a_reader_that_takes_nothing_is_dropped_exactly_at_the_drain_deadline(autojump_clock: MockClock) -> None:
    handler = ScriptedHandler(big)
    async with connected(handler, deadlines=Deadlines(drain=30)) as both:
        await both.client.send(request())
        await both.served.ended()
    assert handler.done == [(200, STALLED)]
    assert (both.transport.ended, both.transport.ended_at) == ("reset", 30)


async def test_a_reader_that_goes_on_taking_is_never_dropped(autojump_clock: MockClock) -> None:
    handler = ScriptedHandler(big)
    async with connected(handler, deadlines=Deadlines(drain=30)) as both:
        await both.client.send(request())
        await taken_slowly(both, pause=29.0, pieces=4)
        await both.served.ended()
    assert handler.done == [(200, STALLED)]
    assert both.transport.ended_at == 4 * 29 + 30  # from the last progress, whatever there was before


async def taken_slowly(both: Connected, *, pause: float, pieces: int) -> None:
    for _ in range(pieces):
        await trio.sleep(pause)
        assert await both.client.stream.receive_some()


async def test_a_refusal_that_nobody_takes_is_dropped_too(autojump_clock: MockClock) -> None:
    handler = ScriptedHandler(refuse=lambda _: Fault(Kind.UNAUTHENTICATED, "no"))
    async with connected(handler, deadlines=Deadlines(drain=30)) as both:
        await both.client.send(request())
        await both.served.ended()
    assert handler.done == [(401, STALLED)]
    assert both.transport.ended_at == 30


async def test_leaving_while_a_write_is_held_ends_it_at_once(autojump_clock: MockClock) -> None:
    handler = ScriptedHandler(cancelled_by_leaving(big))
    async with connected(handler, deadlines=Deadlines(drain=30)) as both:
        await both.client.send(request())
        await trio.sleep(10)
        both.finish_sending()
        await both.served.ended()
    assert handler.done == [(200, LEFT)]
    assert both.transport.ended_at == 10


# Cancelling the connection itself: at each await, the exchange has its last word and the transport is closed

Setting = Callable[[Connected], Awaitable[None]]


async def idle(both: Connected) -> None:
    await both.client.ask()


async def in_a_head(both: Connected) -> None:
    await both.client.send(b"GET / HT")


async def in_a_body(both: Connected) -> None:
    await both.client.send(request("POST / HTTP/1.1", "Content-Length: 10") + b"body")


async def in_an_answer(both: Connected) -> None:
    await both.client.send(request("GET /wait HTTP/1.1"))


async def in_a_write(both: Connected) -> None:
    await both.client.send(request("GET /big HTTP/1.1"))


async def lingering(both: Connected) -> None:
    await both.client.send(request("POST /no HTTP/1.1", "Content-Length: 1000000"))
    await both.client.answer()


WAITING = [(idle, 1), (in_a_head, 0), (in_a_body, 1), (in_an_answer, 1), (in_a_write, 1), (lingering, 1)]


async def by_path(request: Request, response: Response) -> None:
    await {"/wait": until(Gate()), "/big": big}.get(request.path, echo)(request, response)


@pytest.mark.parametrize(("come_to", "exchanges"), WAITING)
async def test_cancelled_at_any_await_a_connection_closes(
    come_to: Setting, exchanges: int, autojump_clock: MockClock
) -> None:
    handler = ScriptedHandler(by_path, lambda request: Fault(Kind.NOT_FOUND, "no") if request.path == "/no" else None)
    async with connected(handler) as both:
        await come_to(both)
        await wait_all_tasks_blocked()
        both.served.cancel()
        await both.served.ended()
        assert both.served.was_cancelled
        assert both.transport.ended is not None
    assert len(handler.done) == exchanges
    assert trio.current_time() == 0


@pytest.mark.parametrize(("version", "how"), [("1.1", {"closed", "reset"}), ("1.0", {"reset"})])
async def test_a_stream_that_is_cancelled_does_not_end_like_a_whole_one(
    version: str, how: set[str], autojump_clock: MockClock
) -> None:
    """An HTTP/1.0 client takes the connection's end for the body's: only a reset tells it that there was more."""

    async def unfinished(request: Request, response: Response) -> None:
        response.begin_stream(200, HEADERS)
        await response.write(b"half")
        await trio.sleep_forever()

    async with connected(ScriptedHandler(unfinished)) as both:
        await both.client.send(request(f"GET / HTTP/{version}"))
        await both.client.head()
        await wait_all_tasks_blocked()
        both.served.cancel()
        assert b"0\r\n\r\n" not in await both.client.rest()
    assert both.transport.ended in how
