"""Something that runs beside the test: what came of it, and a way to cancel it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class Outcome(Generic[T]):
    """`result` waits for the end and gives what was returned, or raises what was raised."""

    def __init__(self) -> None:
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._error: Exception | None = None
        self._value: list[T] = []
        self.ended_at: float | None = None

    async def watch(self, function: Callable[[], Awaitable[T]]) -> None:
        try:
            with self._scope:
                self._value.append(await function())
        except Exception as error:
            self._error = error
        finally:
            self.ended_at = trio.current_time()
            self._ended.set()

    def cancel(self) -> None:
        self._scope.cancel(reason="the test says so")

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    @property
    def was_cancelled(self) -> bool:
        return self._scope.cancelled_caught

    async def ended(self) -> None:
        await self._ended.wait()

    async def result(self) -> T:
        await self._ended.wait()
        if self._error is not None:
            raise self._error
        (value,) = self._value
        return value

    async def error(self) -> Exception:
        """What was raised; fails if nothing was."""
        await self._ended.wait()
        assert self._error is not None, f"nothing was raised; it returned {self._value}"
        return self._error


@asynccontextmanager
async def beside(function: Callable[[], Awaitable[T]]) -> AsyncIterator[Outcome[T]]:
    """Run something beside the body; left normally, it is waited for, and with an error, cancelled."""
    outcome: Outcome[T] = Outcome()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outcome.watch, function)
        yield outcome
