"""When a turn speaks by itself: keep-alives in silence, and the deadline on the whole answer. Times are exact."""

from __future__ import annotations

import itertools

import pytest
import trio
from trio.testing import MockClock

from engine.errors import Kind
from engine.events import Completed, Failed
from engine.turn import Turn
from tests.helpers.gates import Gate
from tests.helpers.turns import DONE, RecordingAnswer, ScriptedUpstream, Step, endless, say
from tests.lockstep.test_turn import fault_in


async def test_silence_is_filled_at_exactly_the_interval(autojump_clock: MockClock) -> None:
    answer = RecordingAnswer()
    await Turn(keep_alive=5).run(ScriptedUpstream([17.0, say("a"), 4.0, say("b"), 6.0, DONE]), answer)
    assert answer.kept_alive == [5, 10, 15, 26]  # 17 + 4 = 21: the silence is counted from the last burst


async def test_the_time_of_a_write_is_no_silence(autojump_clock: MockClock) -> None:
    answer = RecordingAnswer([100.0])
    await Turn(keep_alive=5).run(ScriptedUpstream([say("a"), 104.0, DONE]), answer)
    assert answer.kept_alive == []


async def test_no_keep_alive_is_sent_while_the_client_holds_a_write(autojump_clock: MockClock) -> None:
    answer = RecordingAnswer([30.0, 30.0, 30.0])
    await Turn(keep_alive=5).run(ScriptedUpstream([say("a"), say("b"), DONE]), answer)
    assert answer.kept_alive == []


async def test_a_slow_keep_alive_is_not_sent_twice_at_a_time(autojump_clock: MockClock) -> None:
    answer = RecordingAnswer((), [7.0, 7.0])
    await Turn(keep_alive=5).run(ScriptedUpstream([20.0, DONE]), answer)
    assert answer.kept_alive == [5, 17]


async def test_without_an_interval_nothing_fills_the_silence(autojump_clock: MockClock) -> None:
    answer = RecordingAnswer()
    await Turn().run(ScriptedUpstream([10_000.0, DONE]), answer)
    assert answer.kept_alive == []


async def test_keep_alives_before_the_upstream_was_entered_too(autojump_clock: MockClock) -> None:
    answer, gate = RecordingAnswer(), Gate()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Turn(keep_alive=5).run, ScriptedUpstream([DONE], entering=gate), answer)
        await trio.sleep(12)
        gate.open()
    assert answer.kept_alive == [5, 10]


# The deadline on the whole answer

SECONDLY: list[Step] = list(itertools.chain.from_iterable((1.0, say("a")) for _ in range(60)))
SOURCES: dict[str, list[Step]] = {"silent": [Gate()], "silent after a burst": [say("a"), Gate()], "lively": [*SECONDLY]}


@pytest.mark.parametrize("keep_alive", [0.0, 3.0])
@pytest.mark.parametrize("name", SOURCES)
async def test_an_answer_that_takes_too_long_ends_exactly_then(
    name: str, keep_alive: float, autojump_clock: MockClock
) -> None:
    upstream, answer = ScriptedUpstream(SOURCES[name]), RecordingAnswer()
    end = await Turn(keep_alive=keep_alive, total=10.5).run(upstream, answer)
    assert trio.current_time() == 10.5
    assert isinstance(end, Failed)
    assert fault_in(answer.delivered[-1]) is Kind.TOTAL_TIMEOUT
    assert sum(burst.end is not None for burst in answer.delivered) == 1
    assert upstream.closed == 1


@pytest.mark.parametrize(("keep_alive", "kept_alive"), [(0.0, []), (3.0, [3, 6, 9]), (10.5, [])])
async def test_nothing_is_said_before_the_end_of_an_answer_that_takes_too_long(
    keep_alive: float, kept_alive: list[float], autojump_clock: MockClock
) -> None:
    """A keep-alive begins a stream, and where nothing has been said the end is to be a status of its own."""
    answer = RecordingAnswer()
    await Turn(keep_alive=keep_alive, total=10.5).run(ScriptedUpstream([Gate()]), answer)
    assert answer.kept_alive == kept_alive


async def test_an_answer_that_is_done_in_time_is_not_cut(autojump_clock: MockClock) -> None:
    assert await Turn(total=10.5).run(ScriptedUpstream([10.0, DONE]), RecordingAnswer()) == Completed()


async def test_a_slow_client_does_not_hide_that_the_answer_takes_too_long(autojump_clock: MockClock) -> None:
    """The producer is always ready then, and the consumer never waits for it: the deadline must not hang on that."""
    upstream = ScriptedUpstream(itertools.islice(endless(), 60))
    answer = RecordingAnswer([1.0] * 60)
    end = await Turn(total=10.5).run(upstream, answer)
    assert isinstance(end, Failed)
    assert end.fault.kind is Kind.TOTAL_TIMEOUT
    assert trio.current_time() <= 12  # the write under way, and the one that tells
