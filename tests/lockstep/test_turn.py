"""A turn's promises: who waits for whom, what the client is told, and that there is one end."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from types import TracebackType

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from engine.errors import Fault, Kind, TurnError
from engine.events import Burst, Completed, End, Failed
from engine.turn import Turn
from tests.helpers.gates import Gate
from tests.helpers.outcome import beside
from tests.helpers.turns import BUSY, DONE, GONE, STALLED, RecordingAnswer, ScriptedUpstream, Step, endless, say, texts

SHUTDOWN = Fault(Kind.SHUTTING_DOWN, "closing")


def running(turn: Turn, upstream: ScriptedUpstream, answer: RecordingAnswer) -> Callable[[], Awaitable[End]]:
    return functools.partial(turn.run, upstream, answer)


def fault_in(burst: Burst) -> Kind:
    assert isinstance(burst.end, Failed)
    return burst.end.fault.kind


async def test_the_producer_is_one_burst_ahead_and_waits_there(autojump_clock: MockClock) -> None:
    gate, upstream = Gate(), ScriptedUpstream(endless())
    async with beside(running(Turn(), upstream, RecordingAnswer([gate]))) as run:
        await wait_all_tasks_blocked()
        assert len(upstream.said) == 2  # one is being delivered, one is in the producer's hand
        run.cancel()


async def test_a_slow_client_sets_the_upstreams_pace(autojump_clock: MockClock) -> None:
    upstream = ScriptedUpstream([say("a"), say("b"), say("c"), say("d"), DONE])
    await Turn().run(upstream, RecordingAnswer([1.0] * 5))
    assert upstream.said == [0, 0, 1, 2, 3]


async def test_the_end_is_delivered_once_and_the_upstream_is_asked_for_nothing_more(autojump_clock: MockClock) -> None:
    upstream, answer = ScriptedUpstream([say("a"), DONE, say("more"), DONE]), RecordingAnswer()
    assert await Turn().run(upstream, answer) == Completed()
    assert answer.delivered == [say("a"), DONE]
    assert len(upstream.said) == 2


async def test_the_upstream_is_left_before_the_turn_returns(autojump_clock: MockClock) -> None:
    gate = Gate()
    upstream, answer = ScriptedUpstream([DONE], leaving=gate), RecordingAnswer()
    async with beside(running(Turn(), upstream, answer)) as run:
        await gate.reached()
        await wait_all_tasks_blocked()
        assert answer.delivered == [DONE]  # the client does not wait for the tidying up
        assert not run.has_ended
        gate.open()
        assert await run.result() == Completed()
    assert upstream.closed == 1


@pytest.mark.parametrize("script", [[], [say("a")], [say("a"), None, DONE]])
async def test_an_answer_without_an_end_is_said_to_be_truncated(script: list[Step], autojump_clock: MockClock) -> None:
    answer = RecordingAnswer()
    end = await Turn().run(ScriptedUpstream(script), answer)
    assert isinstance(end, Failed)
    assert fault_in(answer.delivered[-1]) is Kind.UPSTREAM_TRUNCATED
    assert texts(answer.delivered) == ("a" if script else "")


async def test_a_fault_of_the_source_comes_after_the_bursts_before_it(autojump_clock: MockClock) -> None:
    upstream, answer = ScriptedUpstream([say("a"), say("b"), BUSY]), RecordingAnswer([1.0, 1.0])
    assert await Turn().run(upstream, answer) == Failed(BUSY.fault)
    assert answer.delivered == [say("a"), say("b"), Burst(end=Failed(BUSY.fault))]
    assert upstream.closed == 1


class Refusing(ScriptedUpstream):
    async def __aenter__(self) -> ScriptedUpstream:
        await trio.lowlevel.checkpoint()
        raise BUSY


async def test_a_refusal_of_the_upstream_is_the_only_burst(autojump_clock: MockClock) -> None:
    upstream, answer = Refusing([]), RecordingAnswer()
    assert await Turn().run(upstream, answer) == Failed(BUSY.fault)
    assert answer.delivered == [Burst(end=Failed(BUSY.fault))]
    assert upstream.closed == 0


@pytest.mark.parametrize("error", [GONE, STALLED])
async def test_a_client_that_is_gone_in_a_write_ends_the_upstream(error: TurnError, autojump_clock: MockClock) -> None:
    upstream, answer = ScriptedUpstream(endless()), RecordingAnswer([None, error])
    with pytest.raises(TurnError) as raised:
        await Turn().run(upstream, answer)
    assert raised.value is error
    assert len(answer.delivered) == 2  # nothing is said after it
    assert upstream.closed == 1


async def test_a_client_that_is_gone_in_a_keep_alive_ends_the_upstream(autojump_clock: MockClock) -> None:
    upstream, answer = ScriptedUpstream([Gate()]), RecordingAnswer((), [GONE])
    with pytest.raises(TurnError, match="client_left"):
        await Turn(keep_alive=5).run(upstream, answer)
    assert (upstream.closed, answer.delivered) == (1, [])


# Bugs: they come out, and nothing is left of the turn


@pytest.mark.parametrize("bug", [RuntimeError("bug"), KeyError("bug")])
async def test_a_bug_in_the_source_comes_out_as_a_group(bug: Exception, autojump_clock: MockClock) -> None:
    upstream = ScriptedUpstream([say("a"), bug])
    with pytest.RaisesGroup(type(bug), flatten_subgroups=True):
        await Turn().run(upstream, RecordingAnswer())
    assert upstream.closed == 1


async def test_a_bug_in_the_source_does_not_wait_for_the_client(autojump_clock: MockClock) -> None:
    upstream, gate = ScriptedUpstream([say("a"), RuntimeError("bug")]), Gate()
    with pytest.RaisesGroup(RuntimeError, flatten_subgroups=True):
        await Turn().run(upstream, RecordingAnswer([gate]))
    assert gate.cancelled == 1


async def test_a_bug_in_the_answer_closes_the_upstream(autojump_clock: MockClock) -> None:
    upstream = ScriptedUpstream(endless())
    with pytest.RaisesGroup(RuntimeError, flatten_subgroups=True):
        await Turn().run(upstream, RecordingAnswer([None, RuntimeError("bug")]))
    assert upstream.closed == 1


async def test_counting_bursts_counts_what_the_upstream_said(autojump_clock: MockClock) -> None:
    turn = Turn(keep_alive=1)
    await turn.run(ScriptedUpstream([say("a"), 3.5, say("b"), DONE]), RecordingAnswer())
    assert turn.bursts == 3


class UntidyUpstream(ScriptedUpstream):
    """Fails while it is left."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)  # noqa: ASYNC102 — no gate is given, so it does not wait
        raise TurnError(Fault(Kind.UPSTREAM_FAILED, "too late to be told"))


async def test_a_fault_after_the_end_changes_nothing_and_waits_for_nobody(autojump_clock: MockClock) -> None:
    answer = RecordingAnswer()
    with trio.fail_after(10):
        assert await Turn().run(UntidyUpstream([say("a"), DONE]), answer) == Completed()
    assert [burst.end for burst in answer.delivered] == [None, Completed()]
