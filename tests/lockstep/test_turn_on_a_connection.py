"""A turn and a client's connection together: what of a turn's promises must hold on the wire."""

from __future__ import annotations

from collections.abc import Iterator

import trio
from trio.testing import MockClock

from engine.answers import StreamAnswer, WholeAnswer
from engine.deadlines import Deadlines
from engine.dialects.chat import StreamWriter, WholeWriter
from engine.errors import Kind
from engine.events import Burst, Failed, Frame, TextDelta
from engine.turn import Turn
from engine.wire.http1_server import Request, gone
from engine.wire.response import Response
from tests.helpers import chat
from tests.helpers.http import request
from tests.helpers.lockstep import Respond, ScriptedHandler, connected
from tests.helpers.turns import BUSY, DONE, ScriptedUpstream, Step

KEEP_ALIVE = b": keep-alive\n\n"


def bursts(size: int) -> Iterator[Burst]:
    """Endless, each one as large as a read."""
    data = chat.text("x" * size).removeprefix(b"data: ").strip()
    while True:
        yield Burst((Frame(data, (TextDelta(0, "x"),)),))


def turning(upstream: ScriptedUpstream, turn: Turn, *, stream: bool = True) -> Respond:
    async def respond(request: Request, response: Response) -> None:
        response.when_client_leaves = lambda kind: turn.leave(gone(kind))
        prompt = chat.prompt(stream=stream)
        if stream:
            await turn.run(upstream, StreamAnswer(response, StreamWriter(prompt), []))
        else:
            await turn.run(upstream, WholeAnswer(response, WholeWriter(prompt), []))

    return respond


def handling(*script: Step, turn: Turn) -> ScriptedHandler:
    return ScriptedHandler(turning(ScriptedUpstream(script), turn))


async def test_silence_on_the_wire_is_filled_at_exactly_the_interval(autojump_clock: MockClock) -> None:
    async with connected(handling(12.0, DONE, turn=Turn(keep_alive=5))) as both:
        await both.client.send(request())
        assert (await both.client.head()).status == 200
        assert trio.current_time() == 5
        assert await both.client.chunk() == KEEP_ALIVE
        assert (await both.client.chunk(), trio.current_time()) == (KEEP_ALIVE, 10)
        assert (await both.client.chunk(), trio.current_time()) == (chat.DONE, 12)


async def test_no_keep_alive_lies_between_the_pieces_of_a_held_write(autojump_clock: MockClock) -> None:
    upstream = ScriptedUpstream(bursts(100_000))
    handler = ScriptedHandler(turning(upstream, Turn(keep_alive=1)))
    async with connected(handler, deadlines=Deadlines(drain=30)) as both:
        await both.client.send(request())
        taken = b""
        for _ in range(20):  # each piece is taken long after a keep-alive would have been due
            await trio.sleep(20)
            taken += bytes(await both.client.stream.receive_some())
    assert len(taken) > 200_000
    assert KEEP_ALIVE not in taken
    assert upstream.closed == 1


async def test_a_stalled_reader_closes_the_upstream_at_the_drain_deadline(autojump_clock: MockClock) -> None:
    upstream = ScriptedUpstream(bursts(1000))
    handler = ScriptedHandler(turning(upstream, Turn(keep_alive=1)))
    async with connected(handler, deadlines=Deadlines(drain=30)) as both:
        await both.client.send(request())
        await both.served.ended()
    assert both.transport.ended_at == 30
    assert upstream.closed == 1
    assert len(upstream.said) == 2  # one in the write, one in the producer's hand
    assert handler.done == [(200, Kind.CLIENT_STALLED)]


async def test_leaving_closes_the_upstream_before_the_connection_is_done(autojump_clock: MockClock) -> None:
    upstream = ScriptedUpstream([1000.0])
    handler = ScriptedHandler(turning(upstream, Turn()))
    async with connected(handler) as both:
        await both.client.send(request())
        await trio.sleep(1)
        both.leave()
        await both.served.ended()
        assert (trio.current_time(), upstream.closed) == (1, 1)
    assert handler.done == [(None, Kind.CLIENT_LEFT)]


async def test_a_failure_before_the_first_burst_has_a_status_of_its_own(autojump_clock: MockClock) -> None:
    async with connected(handling(3.0, BUSY, turn=Turn(keep_alive=5))) as both:
        answer = await both.client.ask()
        assert (answer.status, answer.body) == (503, b"upstream_overloaded")
        assert "connection" not in answer.headers  # the connection is as good as before


async def test_a_failure_after_a_keep_alive_is_an_event_without_an_end_mark(autojump_clock: MockClock) -> None:
    async with connected(handling(7.0, BUSY, turn=Turn(keep_alive=5))) as both:
        answer = await both.client.ask()
        assert answer.status == 200
        assert answer.body.startswith(KEEP_ALIVE)
        assert b'"code":"upstream_overloaded"' in answer.body
        assert b"[DONE]" not in answer.body


async def test_a_whole_answer_that_fails_has_a_status_whenever_it_fails(autojump_clock: MockClock) -> None:
    said = Burst((Frame(chat.text("half").removeprefix(b"data: ").strip(), (TextDelta(0, "half"),)),))
    upstream = ScriptedUpstream([said, 100.0, Burst(end=Failed(BUSY.fault))])
    async with connected(ScriptedHandler(turning(upstream, Turn(), stream=False))) as both:
        assert (await both.client.ask()).status == 503
