"""Plays one entry: opens a stage, goes through its exchanges, and observes each of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import trio

from tests.cases.acting import Actor
from tests.cases.actions import Action, Signal, action_of
from tests.cases.client import Seen, converse
from tests.cases.facts import client_facts, ms_between, timing_facts, upstream_facts
from tests.cases.gateway import Usage
from tests.cases.observation import derive, get
from tests.cases.plan import Entry, Exchange
from tests.cases.probes import probe, probe_pool
from tests.cases.requests import Request, requests_of, substituted
from tests.cases.script import Script, healthy
from tests.cases.stage import Stage, open_stage

Json = dict[str, Any]

CLOSE_PATIENCE_S = 4.0
CPU_TICK_MS = 10.0  # the resolution of /proc/PID/stat
_MEASURED = ("gateway.rss_growth_mib", "gateway.cpu_ms", "gateway.cpu_ratio")


def must_be_alone(entry: Entry) -> bool:
    """Whether other work on the machine would spoil what it measures."""
    return entry.looks_at(*_MEASURED, "probe.max_delay_ms")


async def play(entry: Entry, command: str) -> list[Json]:
    """One observation for each exchange. Raises (in a group) whatever kept the entry from being played."""
    observations: list[Json] = []
    captured: Json = {}
    async with open_stage(entry, command) as stage:
        for exchange in entry.exchanges:
            requests = requests_of(substituted(exchange.request, {**stage.names, **captured}))
            observation = await _Play(stage, exchange, requests).observe()
            captured |= {name: get(observation, path) for name, path in exchange.capture.items()}
            observations.append({**observation, "captured": dict(captured)})
        await stage.gateway.stop()
        for observation in observations:
            observation["gateway"]["log"] = stage.gateway.log
    return observations


class _Play:
    """One exchange: act, wait until the upstream is released, measure, probe."""

    def __init__(self, stage: Stage, exchange: Exchange, requests: list[Request]) -> None:
        self._stage, self._exchange, self._requests = stage, exchange, requests
        self._script = Script.of(exchange.script) if exchange.script else healthy()
        self._action: Action | None = action_of(exchange.action)

    async def observe(self) -> Json:
        short_cpu_ms = await self._warm_up() if self._exchange.looks_at(*_MEASURED) else None
        before = self._usage()
        self._stage.upstream.begin(self._script)
        actor = Actor(self._stage, self._exchange, self._requests)
        seen = await actor.act(self._action)
        trigger = self._trigger(seen)
        await self._until_upstream_is_left(trigger)
        served = self._stage.upstream.served
        upstream = upstream_facts(served, trigger, actor.bytes_while_stalled)
        observation = {
            "client": client_facts(seen),
            "upstream": upstream,
            "timing": self._timing_facts(seen),
            "gateway": self._gateway_facts(seen, before, self._usage(), short_cpu_ms),
            "canary": {"hits": self._stage.canary.hits},
            "probe": await self._probe_facts(actor),
        }
        return derive(self._exchange.client_dialect, observation)

    async def _warm_up(self) -> float | None:
        """What a first request costs is not the case's doing. Returns the CPU time of the short run, if any."""
        await probe(self._stage.gateway.port, self._stage.key)
        count, generator = self._script.compare_with_count, self._script.generator
        if count is None or generator is None:
            return None
        self._stage.upstream.begin(replace(self._script, generator=replace(generator, count=count)))
        before = self._usage()
        await converse(self._stage.gateway.port, self._requests)
        after = self._usage()
        return after.cpu_ms - before.cpu_ms if before and after else None

    def _usage(self) -> Usage | None:
        return self._stage.gateway.usage() if self._stage.gateway.alive else None

    def _trigger(self, seen: Seen) -> float | None:
        """From when on the upstream should have been left: an act of ours, or a silence that lasted too long."""
        if isinstance(self._action, Signal) and seen.acted_at is not None:
            return seen.acted_at + self._stage.seconds("drain_timeout_s")
        if self._action or not self._stage.upstream.served:
            return seen.acted_at
        one = self._stage.upstream.served[0]
        if one.bytes_sent == 0:
            patience = ("upstream_first_byte_timeout_s", "upstream_first_token_timeout_s")
            return one.received_at + self._stage.seconds(*patience)
        return (one.last_write_at or one.received_at) + self._stage.seconds("upstream_idle_timeout_s")

    async def _until_upstream_is_left(self, trigger: float | None) -> None:
        if trigger is None or not self._exchange.looks_at("upstream.closed_ms"):
            return
        with trio.CancelScope(deadline=max(trigger, trio.current_time()) + CLOSE_PATIENCE_S):
            for one in self._stage.upstream.served:
                await one.closed.wait()

    def _gateway_facts(self, seen: Seen, before: Usage | None, after: Usage | None, short_cpu_ms: float | None) -> Json:
        gateway = self._stage.gateway
        facts: Json = {
            "alive": gateway.alive,
            "upstream_sockets": self._stage.upstream.open_connections,
            "exit_code": gateway.exit_code,
        }
        if before and after:
            facts["rss_growth_mib"] = after.peak_rss_mib - before.rss_mib
            facts["cpu_ms"] = after.cpu_ms - before.cpu_ms
            if short_cpu_ms is not None:
                facts["cpu_ratio"] = facts["cpu_ms"] / max(short_cpu_ms, CPU_TICK_MS)
        if isinstance(self._action, Signal) and seen.acted_at is not None:
            facts["exit_after_signal_ms"] = ms_between(seen.acted_at, gateway.exited_at)
        if seen.main.ended_at is not None:
            facts["exit_after_last_ms"] = ms_between(seen.main.ended_at, gateway.exited_at)
        return facts

    def _timing_facts(self, seen: Seen) -> Json:
        """Only where they are asked for: they read the whole stream once more."""
        if not self._exchange.looks_at("timing"):
            return {}
        return timing_facts(seen, self._stage.upstream.served, self._exchange.client_dialect)

    async def _probe_facts(self, actor: Actor) -> Json:
        facts: Json = {"new_refused": actor.new_refused}
        port, key = self._stage.gateway.port, self._stage.key
        if actor.watch.delays_ms:
            facts |= {"during_ok": actor.watch.all_ok, "max_delay_ms": max(actor.watch.delays_ms)}
        if self._exchange.looks_at("probe.status"):
            facts["status"] = await probe(port, key)
        if self._exchange.looks_at("probe.pool_ok"):
            facts["pool_ok"] = await probe_pool(port, key)
        return facts
