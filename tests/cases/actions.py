"""What the client does besides asking: a case's `client_action`, read into values. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.cases.client import Moment
from tests.cases.script import UnknownField

Json = dict[str, Any]
_MOMENT = frozenset({"type", "after_events", "after_bytes", "after_ms", "repeat_with"})


@dataclass(frozen=True)
class Close:
    """The client closes its connection."""

    moment: Moment


@dataclass(frozen=True)
class Stall:
    """The client stays, but does not read for so long."""

    moment: Moment
    for_s: float


@dataclass(frozen=True)
class Signal:
    """The gateway's process gets a signal."""

    moment: Moment
    name: str


@dataclass(frozen=True)
class Churn:
    """Many clients come and leave, so many at a time."""

    moment: Moment
    count: int
    at_once: int


Action = Close | Stall | Signal | Churn


def action_of(spec: Json | None) -> Action | None:
    """Raises UnknownField for a kind or a field that nobody here knows."""
    match spec:
        case None:
            return None
        case {"type": "close"}:
            _allow_only(spec)
            return Close(_moment(spec, leaves=True))
        case {"type": "stall_reading"}:
            _allow_only(spec, "for_s")
            return Stall(_moment(spec), float(spec["for_s"]))
        case {"type": "signal"}:
            _allow_only(spec, "signal")
            return Signal(_moment(spec), spec["signal"])
        case {"type": "churn"}:
            _allow_only(spec, "count", "clients", "parallel")
            count = int(spec["clients"] if "clients" in spec else spec["count"])
            return Churn(_moment(spec, leaves=True), count, spec.get("parallel", count))
    raise UnknownField(f"client action {spec.get('type')}")


def _moment(spec: Json, *, leaves: bool = False) -> Moment:
    after_s = spec["after_ms"] / 1000 if "after_ms" in spec else float("inf")
    return Moment(spec.get("after_events"), spec.get("after_bytes"), after_s, leaves)


def _allow_only(spec: Json, *names: str) -> None:
    unknown = sorted(set(spec) - _MOMENT - set(names))
    if unknown:
        raise UnknownField(f"client action field {unknown[0]}")
