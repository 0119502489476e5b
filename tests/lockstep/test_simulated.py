"""The upstream in the process: it keeps time and count like a real one, and the gateway's deadlines hold for it."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from engine.deadlines import Deadlines
from engine.dialects import chat as dialect
from engine.dialects.chat import faults
from engine.errors import Kind, TurnError
from engine.events import Burst, Completed, Failed
from engine.turn import Turn
from engine.upstreams.routing import Choice, FirstThatAnswers
from engine.upstreams.simulated import Counters, SimulatedCall, SimulatedUpstream
from tests.helpers import chat
from tests.helpers.farend import text_of
from tests.helpers.turns import RecordingAnswer

DEADLINES = Deadlines(first_event=10, idle=5)


class Simulation:
    """A simulated upstream and what came of one script."""

    def __init__(self, deadlines: Deadlines = DEADLINES) -> None:
        self.upstream = SimulatedUpstream(
            lambda prompt: dialect.StreamReader(), lambda status, body: faults.read_refusal(status, {}, body), deadlines
        )

    def open(self, script: str) -> SimulatedCall:
        return self.upstream.open(dialect.parse(chat.body(f"simulated/{script}")))

    async def run(self, script: str) -> list[Burst]:
        answer = RecordingAnswer()
        await Turn().run(self.open(script), answer)
        return answer.delivered

    @property
    def counters(self) -> Counters:
        return self.upstream.counters


def fault_of(bursts: list[Burst]) -> tuple[Kind, str | int | None]:
    end = bursts[-1].end
    assert isinstance(end, Failed)
    return end.fault.kind, end.fault.code


async def test_by_default_it_says_a_short_text_in_eight_chunks(autojump_clock: MockClock) -> None:
    simulation = Simulation()
    bursts = await simulation.run("")
    assert (text_of(bursts), bursts[-1].end) == ("The tide comes in, the tide goes out.", Completed())
    assert trio.current_time() == 0


async def test_the_same_script_says_the_same(autojump_clock: MockClock) -> None:
    script = "chunks=50,reasoning=3,tools=2,seed=7,burst=4"
    assert await Simulation().run(script) == await Simulation().run(script)


async def test_it_keeps_the_pace_of_its_script(autojump_clock: MockClock) -> None:
    times = []
    async with Simulation().open("delay=2,pace=1,chunks=3,usage=0") as source:
        while (burst := await source.receive()) is not None:
            times.append(trio.current_time())
            ended = burst.end
    assert times == [2, 3, 4, 6]  # the finish is held until the end mark comes
    assert ended == Completed()


@pytest.mark.parametrize(
    ("script", "kind", "text"),
    [
        ("chunks=5,size=2,cut@3", Kind.UPSTREAM_TRUNCATED, 6),
        ("chunks=5,size=2,reset@3", Kind.UPSTREAM_TRUNCATED, 6),
        ("chunks=5,size=2,error=503@3", Kind.UPSTREAM_OVERLOADED, 6),
        ("chunks=5,size=2,nofinish,nodone", Kind.UPSTREAM_TRUNCATED, 10),
    ],
)
async def test_a_script_that_breaks_off_is_a_fault_after_its_text(
    script: str, kind: Kind, text: int, autojump_clock: MockClock
) -> None:
    bursts = await Simulation().run(script)
    assert (fault_of(bursts)[0], len(text_of(bursts))) == (kind, text)


@pytest.mark.parametrize("script", ["nofinish", "nodone"])
async def test_one_of_the_two_end_marks_is_enough(script: str, autojump_clock: MockClock) -> None:
    assert (await Simulation().run(script))[-1].end == Completed()


def test_an_error_at_once_is_a_refusal() -> None:
    with pytest.raises(TurnError) as raised:
        Simulation().open("error=429")
    assert (raised.value.fault.kind, raised.value.fault.status) == (Kind.UPSTREAM_RATE_LIMIT, 429)


@pytest.mark.parametrize(
    "word", ["pace=-1", "delay=-0.5", "pace=nan", "stall=-1@2", "error=99", "error=abc", "chunks=x", "tide"]
)
async def test_a_word_that_makes_no_sense_is_the_clients_mistake(word: str, autojump_clock: MockClock) -> None:
    with pytest.raises(TurnError) as raised:
        await Simulation().run(f"chunks=3,{word}")
    assert raised.value.fault.kind is Kind.BAD_REQUEST
    assert word in raised.value.fault.message


async def test_its_silence_meets_the_first_event_deadline(autojump_clock: MockClock) -> None:
    bursts = await Simulation().run("delay=11")
    assert fault_of(bursts) == (Kind.UPSTREAM_TIMEOUT, "first_event_timeout")
    assert trio.current_time() == 10


async def test_its_silence_meets_the_idle_deadline(autojump_clock: MockClock) -> None:
    bursts = await Simulation().run("delay=9,stall=6@2,size=2")
    assert fault_of(bursts) == (Kind.UPSTREAM_TIMEOUT, "idle_timeout")
    assert (trio.current_time(), len(text_of(bursts))) == (14, 4)


async def test_a_stall_within_the_deadline_is_waited_out(autojump_clock: MockClock) -> None:
    assert (await Simulation().run("stall=5@2"))[-1].end == Completed()
    assert trio.current_time() == 5


async def test_without_deadlines_it_may_be_silent_for_as_long_as_it_likes(autojump_clock: MockClock) -> None:
    bursts = await Simulation(Deadlines(first_event=0, idle=0)).run("delay=1000,stall=1000@2")
    assert (bursts[-1].end, trio.current_time()) == (Completed(), 2000)


@pytest.mark.parametrize("script", ["delay=11", "cut@0", "error=503@0", "error=503"])
async def test_before_its_first_event_it_can_be_replaced_like_any_upstream(
    script: str, autojump_clock: MockClock
) -> None:
    simulation, answer = Simulation(), RecordingAnswer()
    choices = [Choice("bad", lambda: simulation.open(script)), Choice("good", lambda: simulation.open(""))]
    assert await Turn().run(FirstThatAnswers(choices), answer) == Completed()


# The counters


async def test_started_is_the_sum_of_how_its_answers_ended(autojump_clock: MockClock) -> None:
    simulation = Simulation()
    await simulation.run("chunks=3,burst=2,usage=0")
    with trio.move_on_after(4):
        await simulation.run("endless,pace=1")
    assert simulation.counters.started == 2
    assert (simulation.counters.finished, simulation.counters.left, simulation.counters.open) == (1, 1, 0)


async def test_chunks_and_bytes_are_counted_as_they_are_taken(autojump_clock: MockClock) -> None:
    simulation = Simulation()
    bursts = await simulation.run("chunks=3,usage=0")
    assert simulation.counters.chunks == 5  # three of text, the finish and the end mark
    wire = sum(len(frame.wire or frame.data) for burst in bursts for frame in burst.frames)
    assert simulation.counters.bytes >= wire


async def test_a_slow_client_holds_an_endless_answer(autojump_clock: MockClock) -> None:
    simulation = Simulation()
    with trio.move_on_after(10.5):
        await Turn().run(simulation.open("endless"), RecordingAnswer([1.0] * 100))
    assert simulation.counters.chunks <= 13  # eleven deliveries begun, one burst in the producer's hand
    assert (simulation.counters.left, simulation.counters.open) == (1, 0)
