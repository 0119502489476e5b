"""Checks: a path into an observation, an operation and a value; `all`, `any` and `not` join them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.cases.observation.sse import Json


class Missing:
    """What a path that leads nowhere finds: not the same as null."""

    def __repr__(self) -> str:
        return "<missing>"


MISSING = Missing()

_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "string": str,
    "list": list,
    "number": (int, float),
    "bool": bool,
    "null": type(None),
}


def evaluate(check: Json, obs: Json) -> bool:
    """Whether the check holds. An unknown operation raises KeyError: a check nobody reads must not pass."""
    if "all" in check:
        return all(evaluate(each, obs) for each in check["all"])
    if "any" in check:
        return any(evaluate(each, obs) for each in check["any"])
    if "not" in check:
        return not evaluate(check["not"], obs)
    value = check.get("value")
    if "same_as" in check:
        value = get(obs, check["same_as"])
        if value is MISSING:
            return False
    return bool(OPS[check["op"]](get(obs, check["path"]), value))


def get(obs: Any, path: str) -> Any:
    """What stands at `a.b.0.c`, or MISSING."""
    here = obs
    for part in path.split("."):
        if isinstance(here, dict) and part in here:
            here = here[part]
        elif isinstance(here, list) and re.fullmatch(r"-?\d+", part) and -len(here) <= int(part) < len(here):
            here = here[int(part)]
        else:
            return MISSING
    return here


def paths_of(check: Json) -> Iterator[str]:
    """Every path that a check looks at."""
    if "not" in check:
        yield from paths_of(check["not"])
    for each in [*check.get("all", []), *check.get("any", [])]:
        yield from paths_of(each)
    yield from (check[key] for key in ("path", "same_as") if key in check)


def _holds(a: Any, v: Any) -> bool:
    return isinstance(a, str | list | dict) and v in a


def _has_length(a: Any) -> bool:
    return hasattr(a, "__len__")


def _is_number(a: Any) -> bool:
    return isinstance(a, int | float)


def _is_found(a: Any) -> bool:
    return a is not MISSING and a is not None


def _matches(a: Any, v: str) -> bool:
    return isinstance(a, str) and re.search(v, a) is not None


def _parsed(a: Any) -> Any:
    try:
        return json.loads(a) if isinstance(a, str) else MISSING
    except ValueError:
        return MISSING


def _is_subsequence(have: Any, want: list[Any]) -> bool:
    rest = iter(have if isinstance(have, list) else [])
    return isinstance(have, list) and all(any(h == w for h in rest) for w in want)


OPS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, v: a is not MISSING and a == v,
    "ne": lambda a, v: a != v,
    "in": lambda a, v: a in v,
    "not_in": lambda a, v: a not in v,
    "contains": _holds,
    "not_contains": lambda a, v: not _holds(a, v),
    "absent": lambda a, v: not _is_found(a),
    "present": lambda a, v: _is_found(a),
    "truthy": lambda a, v: a is not MISSING and bool(a),
    "falsy": lambda a, v: a is MISSING or not a,
    "len": lambda a, v: _has_length(a) and len(a) == v,
    "len_ge": lambda a, v: _has_length(a) and len(a) >= v,
    "len_le": lambda a, v: _has_length(a) and len(a) <= v,
    "ge": lambda a, v: _is_number(a) and a >= v,
    "le": lambda a, v: _is_number(a) and a <= v,
    "matches": _matches,
    "not_matches": lambda a, v: not _matches(a, v),
    "json_eq": lambda a, v: isinstance(a, str) and bool(_parsed(a) == v),
    "subseq": _is_subsequence,
    "last": lambda a, v: isinstance(a, list) and bool(a) and a[-1] == v,
    "first": lambda a, v: isinstance(a, list) and bool(a) and a[0] == v,
    "count": lambda a, v: isinstance(a, list) and a.count(v["item"]) == v["n"],
    "type": lambda a, v: isinstance(a, _TYPES[v]),
}
