"""What became of an entry: the sentences that do not hold, and what was seen instead."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import trio

from tests.cases.capabilities import why_not
from tests.cases.observation import evaluate, get, paths_of
from tests.cases.plan import Entry, Exchange, Expectation
from tests.cases.play import play

Json = dict[str, Any]

ENTRY_PATIENCE_S = 120.0
TRIES = 3
"""Times that a CPU ratio is measured before it counts as too large. A busy neighbour can make the longer run look
slower, while what the check is after (a quadratic cost) is far beyond the bound every time."""
_SHOWN = 200


@dataclass(frozen=True)
class Verdict:
    """Exactly one of: not run (with the reason), failed (with the faults), passed."""

    entry: Entry
    not_run: str | None = None
    faults: tuple[str, ...] = ()
    shortcomings: tuple[str, ...] = ()
    unchecked: int = 0
    observations: tuple[Json, ...] = ()
    seconds: float = 0.0

    @property
    def has_passed(self) -> bool:
        return self.not_run is None and not self.faults


async def judge(entry: Entry, command: str) -> Verdict:
    """Play the entry, if it can be played today, and hold its checks against what was seen."""
    reason = why_not(entry)
    if reason:
        return Verdict(entry, not_run=reason)
    began = trio.current_time()
    for _ in range(TRIES):
        observations, fault = await _play_in_time(entry, command)
        if fault:
            return Verdict(entry, faults=(fault,), seconds=trio.current_time() - began)
        failed = list(_failed(entry, observations))
        if not failed or not all(_is_of_cpu(one) for one, _ in failed):
            break
    seconds = trio.current_time() - began
    return Verdict(
        entry,
        faults=tuple(words for one, words in failed if one.is_must),
        shortcomings=tuple(words for one, words in failed if not one.is_must),
        unchecked=sum(not one.check for exchange in entry.exchanges for one in exchange.expect),
        observations=tuple(observations),
        seconds=seconds,
    )


def _failed(entry: Entry, observations: list[Json]) -> Iterator[tuple[Expectation, str]]:
    for exchange, observation in zip(entry.exchanges, observations, strict=True):
        for one in exchange.expect:
            if one.check and not _holds(one.check, observation):
                yield one, _description(exchange, one, observation)


def _is_of_cpu(one: Expectation) -> bool:
    return set(paths_of(one.check or {})) == {"gateway.cpu_ratio"}


def _holds(check: Json, observation: Json) -> bool:
    """A check that stumbles over what was seen does not hold."""
    try:
        return evaluate(check, observation)
    except (TypeError, KeyError):
        return False


async def _play_in_time(entry: Entry, command: str) -> tuple[list[Json], str]:
    """The observations, or why there are none: a runner that stumbles must not pass for a gateway that works."""
    try:
        with trio.fail_after(ENTRY_PATIENCE_S):
            return await play(entry, command), ""
    except Exception as error:  # the door: one entry must not take the others with it
        return [], "could not be played: " + "; ".join(_words(error))


def _words(error: BaseException) -> list[str]:
    if isinstance(error, BaseExceptionGroup):
        return [words for inner in error.exceptions for words in _words(inner)]
    return [f"{type(error).__name__}: {str(error)[-4 * _SHOWN :]}"]


def _description(exchange: Exchange, one: Expectation, observation: Json) -> str:
    where = f"({exchange.name}) " if exchange.name else ""
    seen = [f"{path} = {_shown(get(observation, path))}" for path in dict.fromkeys(paths_of(one.check or {}))]
    return f"{where}{one.say} | {', '.join(seen)}"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
