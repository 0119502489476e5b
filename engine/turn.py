"""A turn is a nursery: an upstream producer and a client consumer, joined by a channel of capacity zero.

What a reader of the client's side can do to the upstream is all here, and none of it is a feature of its own: a
client that reads slowly holds the producer in `send`, a client that leaves cancels the scope around `run`, a
deadline ends one await. This file knows no dialect, no byte and no socket.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Protocol

import trio

from engine.deadlines import OFF, Deadline, seconds
from engine.errors import Fault, Kind, TurnError
from engine.events import Burst, End, Failed

FOREVER = seconds(OFF)
Channel = tuple[trio.MemorySendChannel[Burst], trio.MemoryReceiveChannel[Burst]]
_open_channel: Callable[[int], Channel] = trio.open_memory_channel
"""Not subscripted at run time: typing's alias would cost each turn as much as the channel does."""
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
    """One turn. Run it once."""

    def __init__(self, *, keep_alive: float = OFF, total: float = OFF) -> None:
        self._keep_alive = seconds(keep_alive)
        self._total = total
        self._total_due = trio.current_time() + seconds(total) if total else seconds(OFF)
        self._scope: trio.CancelScope | None = None
        self._stopped: Fault | None = None
        self._client_gone: TurnError | None = None
        self._send: trio.MemorySendChannel[Burst] | None = None
        self.bursts = 0

    @property
    def stopped_by(self) -> Fault | None:
        """What the turn was told to end with, whether or not the client could still be told."""
        return self._stopped

    async def run(self, upstream: Upstream, answer: Answer) -> End:
        """Produce and deliver until the end; return the end that the client was told.

        Exactly one burst with an end is delivered, and nothing after it. Raises TurnError if the client is gone.
        However it is left, the upstream's context has been left before.
        """
        if self._client_gone is not None:
            raise self._client_gone
        send, receive = _open_channel(0)
        end: End | None = None
        with receive:
            async with trio.open_nursery() as nursery:
                self._scope, self._send = nursery.cancel_scope, send
                nursery.start_soon(_produce, upstream, send)
                try:
                    end = await self._consume(receive, answer)
                except TurnError as error:
                    self.leave(error)
                if self._stopped is not None and end == Failed(self._stopped):
                    self._cancel(self._stopped)
                # After an end of its own the producer has said its last word; it may still tidy up its connection.
        if end is None:
            assert self._client_gone is not None
            raise self._client_gone
        return end

    def leave(self, reason: TurnError) -> None:
        """The client is gone: cancel everything, at once and wherever it is. `run` raises the reason."""
        self._client_gone = self._client_gone or reason
        self._cancel(reason.fault)

    def stop(self, fault: Fault) -> None:
        """End the turn with `fault` as soon as the client can be told: at once, or after the write under way.

        A consumer that waits at the channel is handed the end through it: it cannot have been handed a burst as well,
        so none is lost, and no write is cut.
        """
        self._stopped = self._stopped or fault
        if self._send is not None:
            with suppress(trio.WouldBlock, trio.ClosedResourceError, trio.BrokenResourceError):
                self._send.send_nowait(Burst(end=Failed(self._stopped)))

    def _cancel(self, fault: Fault) -> None:
        if self._scope is not None:
            self._scope.cancel(reason=str(fault.kind))

    async def _consume(self, receive: trio.MemoryReceiveChannel[Burst], answer: Answer) -> End:
        while True:
            burst = self._due_end() or await self._next_burst(receive)
            if burst is None:
                if trio.current_time() < self._total_due:
                    await answer.keep_alive()
                continue
            self.bursts += 1
            await answer.deliver(burst)
            if burst.end is not None:
                return burst.end

    def _due_end(self) -> Burst | None:
        """An end that is not the upstream's: the turn was stopped, or the whole answer took too long."""
        if self._stopped is None and self._total and trio.current_time() >= self._total_due:
            limit = f"The whole answer took longer than {self._total:g} s ({Deadline.TOTAL} deadline)."
            self._stopped = Fault(Kind.TOTAL_TIMEOUT, limit)
        return Burst(end=Failed(self._stopped)) if self._stopped is not None else None

    async def _next_burst(self, receive: trio.MemoryReceiveChannel[Burst]) -> Burst | None:
        """The next burst; None when a keep-alive or the whole answer is due."""
        try:
            return receive.receive_nowait()
        except trio.WouldBlock:
            pass
        except trio.EndOfChannel:
            return Burst(end=Failed(TRUNCATED))
        due = self._total_due
        if self._keep_alive != FOREVER:
            due = min(due, trio.current_time() + self._keep_alive)
        try:
            if due == FOREVER:  # no scope where no time runs out: it costs more than the rendezvous
                return await receive.receive()
            with trio.CancelScope(deadline=due):
                return await receive.receive()
        except trio.EndOfChannel:
            return Burst(end=Failed(TRUNCATED))
        return None


async def _produce(upstream: Upstream, send: trio.MemorySendChannel[Burst]) -> None:
    """Hand over bursts one by one; each waits until the consumer has come back for it."""
    has_ended = False
    with send:
        try:
            async with upstream as source:
                while not has_ended and (burst := await source.receive()) is not None:
                    await _hand_over(send, burst)
                    has_ended = burst.end is not None
        except TurnError as error:
            if not has_ended:  # after the end nobody listens any more
                await _hand_over(send, Burst(end=Failed(error.fault)))


async def _hand_over(send: trio.MemorySendChannel[Burst], burst: Burst) -> None:
    """A rendezvous. Without a pass through the scheduler if the consumer is already waiting: 6 µs saved a burst."""
    try:
        send.send_nowait(burst)
    except trio.WouldBlock:
        await send.send(burst)
