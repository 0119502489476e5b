"""Both sides of a turn, as scripts: what the upstream says, and what the client's answer does with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType

import trio

from engine.errors import Fault, Kind, TurnError
from engine.events import Burst, Completed, Frame, TextDelta
from tests.helpers.gates import Gate

Step = Burst | BaseException | Gate | float | None
"""Say a burst, raise, wait for the test, be silent for seconds; None says that no more will come."""

DONE = Burst(end=Completed())
GONE = TurnError(Fault(Kind.CLIENT_LEFT, "gone"))
STALLED = TurnError(Fault(Kind.CLIENT_STALLED, "stalled"))
BUSY = TurnError(Fault(Kind.UPSTREAM_OVERLOADED, "busy"))


def say(text: str) -> Burst:
    return Burst((Frame(text.encode(), (TextDelta(0, text),)),))


def endless() -> Iterator[Burst]:
    while True:
        yield say("more")


def texts(bursts: Iterable[Burst]) -> str:
    return " ".join(frame.data.decode() for burst in bursts for frame in burst.frames)


class ScriptedUpstream:
    """An upstream that follows a script. It keeps what was asked of it, with the time."""

    def __init__(self, script: Iterable[Step], *, entering: Gate | None = None, leaving: Gate | None = None) -> None:
        self._script = iter(script)
        self._entering = entering
        self._leaving = leaving
        self.entered = 0
        self.closed = 0
        self.said: list[float] = []
        """When each burst was taken from here."""

    async def __aenter__(self) -> ScriptedUpstream:
        if self._entering is not None:
            await self._entering.wait()
        self.entered += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._leaving is not None:
                await self._leaving.wait()  # noqa: ASYNC102 — a test cancels it here
        finally:
            self.closed += 1

    async def receive(self) -> Burst | None:
        for step in self._script:
            match step:
                case Burst() | None:
                    await trio.lowlevel.checkpoint()
                    self.said.append(trio.current_time())
                    return step
                case Gate():
                    await step.wait()
                case BaseException():
                    raise step
                case _:
                    await trio.sleep(step)
        return None


class RecordingAnswer:
    """An answer that keeps what it is given; gates and errors stand in for a client that is slow or gone.

    `delivering` and `keeping_alive` are met in order, one a call: a gate, seconds, an error, or None to go on.
    """

    def __init__(self, delivering: Iterable[Step] = (), keeping_alive: Iterable[Step] = ()) -> None:
        self._delivering = iter(delivering)
        self._keeping_alive = iter(keeping_alive)
        self.delivered: list[Burst] = []
        self.completed = 0
        """How many of the deliveries came to their end: one that is cut would leave half a write on a connection."""
        self.kept_alive: list[float] = []

    async def deliver(self, burst: Burst) -> None:
        self.delivered.append(burst)
        await _meet(next(self._delivering, None))
        self.completed += 1

    async def keep_alive(self) -> None:
        self.kept_alive.append(trio.current_time())
        assert len(self.kept_alive) < 1000, "keep-alives without end"
        await _meet(next(self._keeping_alive, None))


async def _meet(step: Step) -> None:
    match step:
        case Gate():
            await step.wait()
        case BaseException():
            raise step
        case float():
            await trio.sleep(step)
        case _:
            await trio.lowlevel.checkpoint()
