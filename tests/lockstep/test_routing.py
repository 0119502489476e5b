"""Several upstreams for one model: the next one is asked until one has begun to answer, and after that never."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from engine.deadlines import Deadlines
from engine.errors import Fault, Kind, TurnError
from engine.events import Burst, Completed, Failed
from engine.turn import Turn, Upstream
from engine.upstreams.routing import Choice, FirstThatAnswers
from tests.helpers import chat
from tests.helpers.farend import LockstepPool, all_of, call
from tests.helpers.gates import Gate
from tests.helpers.outcome import beside
from tests.helpers.turns import BUSY, DONE, GONE, RecordingAnswer, ScriptedUpstream, Step, say

REFUSED = TurnError(Fault(Kind.UPSTREAM_REFUSED, "no such field"))


class Refusing(ScriptedUpstream):
    """Takes two seconds to say no."""

    def __init__(self, error: TurnError) -> None:
        super().__init__([])
        self._error = error

    async def __aenter__(self) -> ScriptedUpstream:
        await trio.sleep(2)
        raise self._error


class Opened:
    """A route over the given upstreams, and which of them were opened."""

    def __init__(self, *upstreams: Upstream | TurnError) -> None:
        self.opened: list[str] = []
        names = "abcdef"[: len(upstreams)]
        self.route = FirstThatAnswers(
            [Choice(*pair) for pair in zip(names, map(self._opener, names, upstreams), strict=True)]
        )

    def _opener(self, name: str, upstream: Upstream | TurnError) -> Callable[[], Upstream]:
        def open_it() -> Upstream:
            self.opened.append(name)
            if isinstance(upstream, TurnError):
                raise upstream
            return upstream

        return open_it


def answering(*script: Step) -> ScriptedUpstream:
    return ScriptedUpstream(script or [say("a"), DONE])


async def test_the_first_that_answers_is_the_only_one_asked(autojump_clock: MockClock) -> None:
    opened, answer = Opened(answering(), answering()), RecordingAnswer()
    assert await Turn().run(opened.route, answer) == Completed()
    assert (opened.opened, opened.route.tried) == (["a"], ["a"])


@pytest.mark.parametrize("first", [BUSY, Refusing(BUSY)])
async def test_a_choice_that_may_do_better_elsewhere_is_replaced(
    first: Upstream | TurnError, autojump_clock: MockClock
) -> None:
    second, answer = answering(), RecordingAnswer()
    opened = Opened(first, first, second)
    assert await Turn().run(opened.route, answer) == Completed()
    assert answer.delivered == [say("a"), DONE]
    assert (opened.route.tried, second.closed) == (["a", "b", "c"], 1)


async def test_a_request_that_is_wrong_everywhere_is_not_tried_elsewhere(autojump_clock: MockClock) -> None:
    opened, answer = Opened(Refusing(REFUSED), answering()), RecordingAnswer()
    assert await Turn().run(opened.route, answer) == Failed(REFUSED.fault)
    assert opened.opened == ["a"]


async def test_when_nobody_answers_the_last_ones_fault_is_told(autojump_clock: MockClock) -> None:
    last = TurnError(Fault(Kind.UPSTREAM_RATE_LIMIT, "slow down"))
    opened, answer = Opened(Refusing(BUSY), Refusing(last)), RecordingAnswer()
    assert await Turn().run(opened.route, answer) == Failed(last.fault)
    assert answer.delivered == [Burst(end=Failed(last.fault))]


@pytest.mark.parametrize("breaking", [[say("a"), BUSY], [say("a"), None], [say("a"), Burst(end=Failed(BUSY.fault))]])
async def test_an_answer_that_has_begun_is_never_continued_by_another(
    breaking: list[Step], autojump_clock: MockClock
) -> None:
    opened, answer = Opened(ScriptedUpstream(breaking), answering()), RecordingAnswer()
    assert isinstance(await Turn().run(opened.route, answer), Failed)
    assert opened.opened == ["a"]


async def test_leaving_while_the_second_is_asked_leaves_it(autojump_clock: MockClock) -> None:
    gate = Gate()
    second, turn = ScriptedUpstream([gate]), Turn()
    opened = Opened(BUSY, second, answering())
    async with beside(lambda: turn.run(opened.route, RecordingAnswer())) as run:
        await gate.reached()
        turn.leave(GONE)
        assert await run.error() is GONE
    assert (opened.opened, second.closed) == (["a", "b"], 1)


async def test_leaving_while_one_is_entered_asks_no_other(autojump_clock: MockClock) -> None:
    gate, turn = Gate(), Turn()
    opened = Opened(ScriptedUpstream([], entering=gate), answering())
    async with beside(lambda: turn.run(opened.route, RecordingAnswer())) as run:
        await gate.reached()
        await wait_all_tasks_blocked()
        turn.leave(GONE)
        assert await run.error() is GONE
    assert (opened.opened, gate.cancelled) == (["a"], 1)


async def test_how_a_turn_was_left_is_told_to_the_choice_that_answered(autojump_clock: MockClock) -> None:
    class Remembering(ScriptedUpstream):
        left_with: type[BaseException] | None = None

        async def __aexit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            self.left_with = kind
            await super().__aexit__(kind, error, trace)  # noqa: ASYNC102 — as above it

    upstream, gate, turn = Remembering([gate := Gate()]), gate, Turn()
    async with beside(lambda: turn.run(Opened(upstream).route, RecordingAnswer())) as run:
        await gate.reached()
        turn.leave(GONE)
        await run.ended()
    assert upstream.left_with is trio.Cancelled


# With real calls: what is given up is closed before the next one is asked


async def test_a_silent_upstream_is_closed_before_the_next_is_asked(autojump_clock: MockClock) -> None:
    silent, good = LockstepPool(), LockstepPool()
    deadlines = Deadlines(first_event=10)
    choices = [Choice("silent", lambda: call(silent, deadlines)), Choice("good", lambda: call(good, deadlines))]
    async with beside(lambda: all_of(FirstThatAnswers(choices))) as asked:
        first = await silent.connection()
        await first.request()
        second = await good.connection()
        assert (trio.current_time(), first.near.ended, silent.leased) == (10, "closed", 0)
        await second.answer(chat.text("a"))
        assert (await asked.result())[-1].end == Completed()


REFUSALS: Iterable[bytes] = [
    b"HTTP/1.1 429 No\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    # Servers that send the status before they know: what went wrong is the first event, and still nothing was said.
    chat.HEAD + chat.chunk(b'data: {"error":{"message":"no","code":503}}\n\n') + chat.LAST,
    chat.HEAD + chat.chunk(chat.COMMENT + b'event: error\ndata: {"error":"no"}\n\n'),
    b"nonsense\r\n\r\n",
]


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_any_refusal_that_is_the_upstreams_own_is_tried_elsewhere(
    refusal: bytes, autojump_clock: MockClock
) -> None:
    bad, good = LockstepPool(), LockstepPool()
    choices = [Choice("bad", lambda: call(bad)), Choice("good", lambda: call(good))]
    async with beside(lambda: all_of(FirstThatAnswers(choices))) as asked:
        first = await bad.connection()
        await first.request()
        await first.send(refusal)
        await (await good.connection()).answer(chat.text("a"))
        assert (await asked.result())[-1].end == Completed()
    assert (bad.leased, good.leased) == (0, 0)
