"""Which upstream answers: the choices of a route in order, until one has begun to answer; after that never another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType

from msgspec import Struct

from engine.errors import TurnError
from engine.events import Burst
from engine.turn import BurstSource, Upstream


class Choice(Struct, frozen=True):
    """One upstream of a route. `open` makes a fresh call each time."""

    name: str
    open: Callable[[], Upstream]


class FirstThatAnswers:
    """An upstream made of several. A choice is given up only for a fault that another may not have."""

    def __init__(self, choices: Sequence[Choice]) -> None:
        assert choices, "a route has at least one choice"
        self._choices = choices
        self._call: Upstream | None = None
        self._source: BurstSource | None = None
        self.tried: list[str] = []
        """The names of the choices tried, the answering one last: for the journal."""

    async def __aenter__(self) -> FirstThatAnswers:
        for choice in self._choices:
            self.tried.append(choice.name)
            try:
                call = choice.open()
                self._source = await call.__aenter__()
            except TurnError as error:
                if choice is self._choices[-1] or not error.fault.retryable:
                    raise
                continue
            self._call = call
            break
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._call is not None:
            await self._call.__aexit__(kind, error, trace)  # noqa: ASYNC102 — as the call itself does it

    async def receive(self) -> Burst | None:
        assert self._source is not None
        return await self._source.receive()
