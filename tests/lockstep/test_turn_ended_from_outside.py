"""Leaving, stopping and cancelling a turn, at each place where it can be waiting."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from engine.errors import Fault, Kind, TurnError
from engine.events import Burst, Completed, End, Failed
from engine.turn import Turn
from tests.helpers.gates import Gate
from tests.helpers.outcome import Outcome, beside
from tests.helpers.turns import DONE, GONE, STALLED, RecordingAnswer, ScriptedUpstream, Step, endless, say
from tests.lockstep.test_turn import running

SHUTDOWN = Fault(Kind.SHUTTING_DOWN, "closing")
STOPPED = Burst(end=Failed(SHUTDOWN))


class Place:
    """A turn that has come to one of its awaits, and how often its upstream was entered by then."""

    def __init__(self, upstream: ScriptedUpstream, answer: RecordingAnswer, *, entered: int = 1) -> None:
        self.upstream = upstream
        self.answer = answer
        self.entered = entered
        self.turn = Turn(keep_alive=5)


PLACES: dict[str, Callable[[Gate], Place]] = {
    "entering the upstream": lambda gate: Place(ScriptedUpstream([], entering=gate), RecordingAnswer(), entered=0),
    "waiting for the first burst": lambda gate: Place(ScriptedUpstream([gate]), RecordingAnswer()),
    "waiting for the next burst": lambda gate: Place(ScriptedUpstream([say("a"), gate]), RecordingAnswer()),
    "handing over, in a write": lambda gate: Place(ScriptedUpstream(endless()), RecordingAnswer([gate])),
    "in the write of the end": lambda gate: Place(ScriptedUpstream([DONE]), RecordingAnswer([gate])),
    "in a keep-alive": lambda gate: Place(ScriptedUpstream([10.0]), RecordingAnswer((), [gate])),
    "leaving the upstream": lambda gate: Place(ScriptedUpstream([DONE], leaving=gate), RecordingAnswer()),
}
AFTER_THE_END = {"leaving the upstream"}


@pytest.mark.parametrize("name", PLACES)
async def test_cancelled_at_any_await_a_turn_closes_its_upstream_once(name: str, autojump_clock: MockClock) -> None:
    gate = Gate()
    place = PLACES[name](gate)
    async with beside(running(place.turn, place.upstream, place.answer)) as run:
        await gate.reached()
        await wait_all_tasks_blocked()
        run.cancel()
        await run.ended()
        assert run.was_cancelled
    assert gate.cancelled == 1
    assert (place.upstream.entered, place.upstream.closed) == (place.entered, place.entered)


@pytest.mark.parametrize("name", [name for name in PLACES if name not in AFTER_THE_END])
async def test_left_at_any_await_a_turn_closes_its_upstream_at_once(name: str, autojump_clock: MockClock) -> None:
    gate = Gate()
    place = PLACES[name](gate)
    async with beside(running(place.turn, place.upstream, place.answer)) as run:
        await gate.reached()
        await wait_all_tasks_blocked()
        now = autojump_clock.current_time()
        place.turn.leave(GONE)
        assert await run.error() is GONE
        assert run.ended_at == now
    assert (place.upstream.entered, place.upstream.closed) == (place.entered, place.entered)


async def test_leaving_after_the_end_was_told_hurries_the_upstream_and_keeps_the_end(autojump_clock: MockClock) -> None:
    gate = Gate()
    turn, upstream = Turn(), ScriptedUpstream([DONE], leaving=gate)
    async with beside(running(turn, upstream, RecordingAnswer())) as run:
        await gate.reached()
        await wait_all_tasks_blocked()
        turn.leave(GONE)
        assert await run.result() == Completed()
    assert (gate.cancelled, upstream.closed) == (1, 1)


async def test_the_first_reason_to_leave_is_the_one_that_is_raised(autojump_clock: MockClock) -> None:
    turn, gate = Turn(), Gate()
    async with beside(running(turn, ScriptedUpstream([gate]), RecordingAnswer())) as run:
        await gate.reached()
        turn.leave(STALLED)
        turn.leave(GONE)
        assert await run.error() is STALLED


async def test_a_turn_whose_client_had_left_before_it_began_asks_no_upstream(autojump_clock: MockClock) -> None:
    turn, upstream = Turn(), ScriptedUpstream([Gate(), DONE])
    turn.leave(GONE)
    async with beside(running(turn, upstream, RecordingAnswer())) as run:
        await wait_all_tasks_blocked()
        assert run.has_ended
        run.cancel()
    with pytest.raises(TurnError, match="client_left"):
        await run.result()


async def test_leaving_ends_also_the_write_of_a_stop(autojump_clock: MockClock) -> None:
    """That write stands outside the nursery, so it is the one place that cancelling the nursery does not reach."""
    turn, waiting, writing = Turn(), Gate(), Gate()
    async with beside(running(turn, ScriptedUpstream([waiting]), RecordingAnswer([writing]))) as run:
        await waiting.reached()
        turn.stop(SHUTDOWN)
        await writing.reached()
        turn.leave(GONE)
        await wait_all_tasks_blocked()
        assert run.has_ended
        run.cancel()
    assert await run.error() is GONE


# Stopping: the client is told, once


async def stopped(turn: Turn, run: Outcome[End], answer: RecordingAnswer) -> None:
    assert await run.result() == Failed(SHUTDOWN)
    assert [burst for burst in answer.delivered if burst.end is not None] == [STOPPED]
    assert answer.delivered[-1] == STOPPED


@pytest.mark.parametrize("name", ["entering the upstream", "waiting for the first burst", "waiting for the next burst"])
async def test_stopping_a_turn_that_waits_tells_the_client_at_once(name: str, autojump_clock: MockClock) -> None:
    gate = Gate()
    place = PLACES[name](gate)
    async with beside(running(place.turn, place.upstream, place.answer)) as run:
        await gate.reached()
        await wait_all_tasks_blocked()
        place.turn.stop(SHUTDOWN)
        await stopped(place.turn, run, place.answer)
        assert run.ended_at == 0
    assert (place.upstream.entered, place.upstream.closed) == (place.entered, place.entered)


@pytest.mark.parametrize("name", ["handing over, in a write", "in a keep-alive"])
async def test_stopping_a_turn_in_a_write_tells_the_client_after_it(name: str, autojump_clock: MockClock) -> None:
    gate = Gate()
    place = PLACES[name](gate)
    async with beside(running(place.turn, place.upstream, place.answer)) as run:
        await gate.reached()
        place.turn.stop(SHUTDOWN)
        await wait_all_tasks_blocked()
        assert not run.has_ended  # a write that is cut would poison the connection
        gate.open()
        await stopped(place.turn, run, place.answer)
    assert gate.cancelled == 0
    assert place.upstream.closed == 1


class StoppingItself(ScriptedUpstream):
    """Stops its turn in the moment after a hand-over: the consumer has the burst, and has not woken up yet."""

    def __init__(self, turn: Turn, *script: Step) -> None:
        super().__init__(script)
        self._turn = turn
        self._asked = 0

    async def receive(self) -> Burst | None:
        self._asked += 1
        if self._asked == 2:
            self._turn.stop(SHUTDOWN)
        return await super().receive()


async def test_a_burst_that_was_handed_over_is_delivered_whole_before_the_stop(autojump_clock: MockClock) -> None:
    turn, answer = Turn(), RecordingAnswer([1.0])
    upstream = StoppingItself(turn, say("a"), say("b"), DONE)
    async with beside(running(turn, upstream, answer)) as run:
        await stopped(turn, run, answer)
    assert answer.delivered[0] == say("a")
    assert answer.completed == len(answer.delivered)


async def test_stopping_twice_says_the_first_reason_and_says_it_once(autojump_clock: MockClock) -> None:
    turn, gate, answer = Turn(), Gate(), RecordingAnswer([1.0])
    async with beside(running(turn, ScriptedUpstream([gate]), answer)) as run:
        await gate.reached()
        turn.stop(SHUTDOWN)
        turn.stop(Fault(Kind.TOTAL_TIMEOUT, "second"))
        await wait_all_tasks_blocked()
        turn.stop(Fault(Kind.TOTAL_TIMEOUT, "third"))
        await stopped(turn, run, answer)


async def test_stopping_before_the_turn_began_tells_the_client(autojump_clock: MockClock) -> None:
    turn, upstream, answer = Turn(), ScriptedUpstream([Gate()]), RecordingAnswer()
    turn.stop(SHUTDOWN)
    assert await turn.run(upstream, answer) == Failed(SHUTDOWN)
    assert answer.delivered == [STOPPED]
    assert upstream.entered == upstream.closed


@pytest.mark.parametrize("name", ["in the write of the end", "leaving the upstream"])
async def test_stopping_a_turn_that_has_its_end_changes_nothing(name: str, autojump_clock: MockClock) -> None:
    gate = Gate()
    place = PLACES[name](gate)
    async with beside(running(place.turn, place.upstream, place.answer)) as run:
        await gate.reached()
        place.turn.stop(SHUTDOWN)
        gate.open()
        assert await run.result() == Completed()
    assert place.answer.delivered == [DONE]
