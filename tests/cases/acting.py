"""The live part of one exchange: the client's requests and its deed, with probes on the side."""

from __future__ import annotations

from dataclasses import replace

import trio

from tests.cases.actions import Action, Churn, Close, Signal, Stall
from tests.cases.client import Deed, Seen, converse, nothing
from tests.cases.plan import Exchange
from tests.cases.probes import Watch, is_refused, keep_probing
from tests.cases.requests import Request
from tests.cases.stage import Stage

LINGER_S = 1.0
EXIT_PATIENCE_S = 5.0
STALL_SETTLE_S = 0.2
REFUSAL_AFTER_SIGNAL_S = 0.3
_SEEN_BY_LINGERING = tuple(
    f"client.{name}" for name in ("responses_on_connection", "connection_closed", "resets", "all_complete")
)
_THE_ANSWER = ("client", "sse", "chat", "anthropic", "responses", "anthropic_tools")


class Actor:
    """Acts once. What is only known in the middle is kept here: probes, refusals, bytes during a stall."""

    def __init__(self, stage: Stage, exchange: Exchange, requests: list[Request]) -> None:
        self._stage, self._exchange, self._requests = stage, exchange, requests
        self._over = trio.Event()
        self._signalled = trio.Event()
        self.watch = Watch()
        self.new_refused: bool | None = None
        self.bytes_while_stalled: int | None = None

    async def act(self, action: Action | None) -> Seen:
        """The whole exchange; for a signal also the gateway's exit, if it comes in time."""
        async with trio.open_nursery() as nursery:
            if self._exchange.looks_at("probe.during_ok", "probe.max_delay_ms"):
                nursery.start_soon(keep_probing, self._port, self._stage.key, self.watch, self._over)
            if self._exchange.looks_at("probe.new_refused"):
                nursery.start_soon(self._try_after_signal)
            seen = await self._perform(action)
            self._over.set()
            self._signalled.set()
        return seen

    @property
    def _port(self) -> int:
        return self._stage.gateway.port

    async def _perform(self, action: Action | None) -> Seen:
        match action:
            case None | Close():
                return await self._converse(action, nothing)
            case Churn():
                return await self._churn(action)
            case Signal():
                return await self._signal(action)
            case Stall():
                return await self._stall(action)

    async def _converse(self, action: Action | None, deed: Deed) -> Seen:
        linger_s = LINGER_S if self._exchange.looks_at(*_SEEN_BY_LINGERING) else 0.0
        moment = action.moment if action else None
        return await converse(self._port, self._requests, moment=moment, deed=deed, linger_s=linger_s)

    async def _churn(self, churn: Churn) -> Seen:
        """What the last of the clients saw."""
        limit = trio.CapacityLimiter(churn.at_once)
        seen: list[Seen] = []

        async def one() -> None:
            async with limit:
                seen.append(await self._converse(churn, nothing))

        async with trio.open_nursery() as nursery:
            for _ in range(churn.count):
                nursery.start_soon(one)
        return seen[-1]

    async def _signal(self, signal: Signal) -> Seen:
        async def deed() -> None:
            self._stage.gateway.send_signal(signal.name)
            self._signalled.set()
            await trio.lowlevel.checkpoint()

        seen = await self._converse(signal, deed)
        with trio.move_on_after(self._stage.seconds("drain_timeout_s") + EXIT_PATIENCE_S):
            await self._stage.gateway.exited.wait()
        return seen

    async def _try_after_signal(self) -> None:
        await self._signalled.wait()
        await trio.sleep(REFUSAL_AFTER_SIGNAL_S)
        self.new_refused = await is_refused(self._port, self._stage.key)

    async def _stall(self, stall: Stall) -> Seen:
        """Reads on afterwards only if somebody asks what came; 200 MB for nobody would be a waste."""

        async def deed() -> None:
            with trio.move_on_after(stall.for_s):
                await self._until_dropped()
            self.bytes_while_stalled = sum(one.bytes_sent for one in self._stage.upstream.served)

        leaves = not self._exchange.looks_at(*_THE_ANSWER)
        return await self._converse(replace(stall, moment=replace(stall.moment, leaves=leaves)), deed)

    async def _until_dropped(self) -> None:
        served = self._stage.upstream.served
        for one in served:
            await one.closed.wait()
        await trio.sleep(STALL_SETTLE_S if served else float("inf"))
