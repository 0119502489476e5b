"""A turn is a nursery: an upstream producer and a client consumer, joined by a channel of capacity zero.

What a reader of the client's side can do to the upstream is all here, and none of it is a feature of its own: a
client that reads slowly holds the producer in `send`, a client that leaves cancels the scope around `run`, a
deadline ends one await. This file knows no dialect, no byte and no socket.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

import trio

from engine.deadlines import OFF, Deadline, seconds
from engine.errors import Fault, Kind, TurnError
from engine.events import Burst, End, Failed

TRUNCATED = Fault(Kind.UPSTREAM_TRUNCATED, "The upstream's answer broke off before it was complete.")


class BurstSource(Protocol):
    """An upstream's answer while it is being produced."""

    async def receive(self) -> Burst | None:
        """The next burst, or None if no more will come.

        The first burst says something (`Burst.says_something`). Raises TurnError when the answer cannot go on.
        Cancelled, it leaves the source unusable; leaving the source's context closes what it holds.
        """


Upstream = AbstractAsyncContextManager[BurstSource]
"""One answer of an upstream, not yet begun. Entering it may raise TurnError."""


class Answer(Protocol):
    """Where a turn's bursts go: the client's dialect on the client's connection."""

    async def deliver(self, burst: Burst) -> None:
        """Encode one burst and write it. Raises TurnError (client_left, client_stalled) when the client is gone."""

    async def keep_alive(self) -> None:
        """Show a waiting client that the turn is alive. Raises like `deliver`."""


class Turn:
    """One turn. Run it once, inside a scope that is cancelled when the client leaves."""

    def __init__(self, *, keep_alive: float = OFF, total: float = OFF) -> None:
        self._keep_alive = seconds(keep_alive)
        self._total = total
        self._total_due = trio.current_time() + seconds(total)
        self._stopped: Fault | None = None
        self._waiting: trio.CancelScope | None = None
        self.bursts = 0

    async def run(self, upstream: Upstream, answer: Answer) -> End:
        """Produce and deliver until the end; return the end that the client was told.

        Exactly one burst with an end is delivered, and nothing after it. Raises TurnError if the client is gone.
        However it is left, the upstream's context has been left before.
        """
        send, receive = trio.open_memory_channel[Burst](0)
        client_gone: TurnError | None = None
        end: End | None = None
        with receive:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_produce, upstream, send)
                try:
                    end = await self._consume(receive, answer)
                except TurnError as error:
                    client_gone = error
                if end is None or self._stopped is not None:
                    nursery.cancel_scope.cancel(reason="the client has had the end, or is gone")
                # Otherwise the producer has said its last word; it may still tidy up its connection.
        if end is None:
            assert client_gone is not None
            raise client_gone
        return end

    def stop(self, fault: Fault) -> None:
        """End the turn with `fault` as soon as the client can be told: at once, or after the write under way."""
        self._stopped = self._stopped or fault
        if self._waiting is not None:
            self._waiting.cancel(reason=str(fault.kind))

    async def _consume(self, receive: trio.MemoryReceiveChannel[Burst], answer: Answer) -> End:
        while True:
            burst = await self._next_burst(receive)
            if burst is None:
                await answer.keep_alive()
                continue
            self.bursts += 1
            await answer.deliver(burst)
            if burst.end is not None:
                return burst.end

    async def _next_burst(self, receive: trio.MemoryReceiveChannel[Burst]) -> Burst | None:
        """The next burst; None when a keep-alive is due."""
        burst: Burst | None = None
        if self._stopped is None:
            try:
                return receive.receive_nowait()
            except trio.WouldBlock:
                burst = await self._wait_for_burst(receive)
            except trio.EndOfChannel:
                return Burst(end=Failed(TRUNCATED))
        if burst is None:
            return self._due_end()
        return burst

    def _due_end(self) -> Burst | None:
        if self._stopped is None and trio.current_time() >= self._total_due:
            limit = f"The whole answer took longer than {self._total:g} s ({Deadline.TOTAL} deadline)."
            self._stopped = Fault(Kind.TOTAL_TIMEOUT, limit)
        return None if self._stopped is None else Burst(end=Failed(self._stopped))

    async def _wait_for_burst(self, receive: trio.MemoryReceiveChannel[Burst]) -> Burst | None:
        due = min(trio.current_time() + self._keep_alive, self._total_due)
        with trio.CancelScope(deadline=due) as self._waiting:
            try:
                return await receive.receive()
            except trio.EndOfChannel:
                return Burst(end=Failed(TRUNCATED))
            finally:
                self._waiting = None
        return None


async def _produce(upstream: Upstream, send: trio.MemorySendChannel[Burst]) -> None:
    """Hand over bursts one by one; each waits until the consumer has come back for it."""
    with send:
        try:
            async with upstream as source:
                while (burst := await source.receive()) is not None:
                    await send.send(burst)
                    if burst.end is not None:
                        return
        except TurnError as error:
            await send.send(Burst(end=Failed(error.fault)))
