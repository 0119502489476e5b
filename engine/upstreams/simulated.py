"""An upstream in the process: no model, no network, deterministic, and it counts how each of its streams ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType

import msgspec
import trio
from msgspec import Struct

from engine.deadlines import Deadline, Deadlines, seconds
from engine.errors import Fault, Kind, TurnError
from engine.events import Burst, Failed, Frame
from engine.prompt import Prompt
from engine.turn import TRUNCATED
from engine.upstreams.http import Reader
from engine.upstreams.script import CutHere, Step, script_of, simulated_error, steps


class Counters(Struct):
    """What was produced, and how it ended: `started` is the sum of `finished`, `left` and `open`."""

    started: int = 0
    finished: int = 0
    left: int = 0
    """The other side went before the end."""
    open: int = 0
    chunks: int = 0
    bytes: int = 0


class SimulatedUpstream:
    """Answers as the request's script says (script.py); by default a short text in eight chunks."""

    def __init__(
        self, reader: Callable[[Prompt], Reader], refuse: Callable[[int, bytes], Fault], deadlines: Deadlines
    ) -> None:
        self._reader = reader
        self._refuse = refuse
        self.deadlines = deadlines
        self.counters = Counters()

    def open(self, prompt: Prompt) -> SimulatedCall:
        """One answer, as an async context manager over bursts."""
        script = script_of(prompt)
        if script.error is not None and script.error[1] is None:
            status = script.error[0]
            raise TurnError(self._refuse(status, msgspec.json.encode({"error": simulated_error(status)})))
        prompt = msgspec.structs.replace(prompt, wants_usage=True)
        return SimulatedCall(steps(script, prompt), self._reader(prompt), self.deadlines, self.counters)


class SimulatedCall:
    """One answer: the steps are read as if they had come from a socket, in time as in bytes."""

    def __init__(self, writes: Iterator[Step], reader: Reader, deadlines: Deadlines, counters: Counters) -> None:
        self._writes = writes
        self._reader = reader
        self._deadlines = deadlines
        self._counters = counters
        self._has_begun = False
        self._first: Burst | None = None
        self._has_ended = False

    async def __aenter__(self) -> SimulatedCall:
        self._counters.started += 1
        self._counters.open += 1
        try:
            self._first = await self._first_burst()
        except BaseException:
            await self.__aexit__(None, None, None)  # noqa: ASYNC102 — it does not wait
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._counters.open -= 1
        if self._has_ended:
            self._counters.finished += 1
        else:
            self._counters.left += 1

    async def receive(self) -> Burst | None:
        """The next burst (see `engine.turn.BurstSource`)."""
        burst, self._first = self._first, None
        while burst is None and not self._has_ended:
            made = await self._next()
            burst = made if made.frames or made.end is not None else None
        if burst is not None and burst.end is not None:
            self._has_ended = True
        return burst

    async def _first_burst(self) -> Burst:
        """What the answer begins with; a failure that comes before anything else is raised, as of any upstream."""
        frames: list[Frame] = []
        while True:
            burst = await self._next()
            frames += burst.frames
            if burst.says_something():
                break
        if isinstance(burst.end, Failed) and not frames:
            raise TurnError(burst.end.fault)
        self._has_begun = True
        return Burst(tuple(frames), burst.end)

    async def _next(self) -> Burst:
        try:
            step = next(self._writes, None)
        except CutHere:
            step = None
        if step is None:
            burst = self._reader.close()
            return Burst(burst.frames, burst.end or Failed(TRUNCATED))
        await self._pause(step.pause)
        self._counters.chunks += step.chunks
        self._counters.bytes += len(step.data)
        return self._reader.feed(step.data)

    async def _pause(self, pause: float) -> None:
        """A scripted silence meets the same deadlines as a server's."""
        name = Deadline.IDLE if self._has_begun else Deadline.FIRST_EVENT
        limit = self._deadlines.idle if self._has_begun else self._deadlines.first_event
        if pause > seconds(limit):
            await trio.sleep(limit)
            message = f"The upstream was silent for {limit:g} s ({name} deadline)."
            raise TurnError(Fault(Kind.UPSTREAM_TIMEOUT, message, code=f"{name}_timeout"))
        await trio.sleep(pause)
