"""From case files to entries: each one play of a case, complete, with nothing left to look up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.cases.observation import paths_of

Json = dict[str, Any]

DIALECT_OF_PATH = {
    "/v1/chat/completions": "openai-chat",
    "/v1/responses": "openai-responses",
    "/v1/messages": "anthropic-messages",
}


@dataclass(frozen=True)
class Expectation:
    """One sentence about the observation; without a check it is for readers only."""

    say: str
    check: Json | None = None
    is_must: bool = True


@dataclass(frozen=True)
class Exchange:
    """One client request, what the upstream answers to it, and what must be seen."""

    client_dialect: str
    upstream_dialect: str
    request: Json
    script: Json | None
    action: Json | None
    expect: tuple[Expectation, ...]
    name: str = ""
    capture: dict[str, str] = field(default_factory=dict)

    @property
    def paths(self) -> set[str]:
        return {path for one in self.expect if one.check for path in paths_of(one.check)}

    def looks_at(self, *starts: str) -> bool:
        """Whether a check looks at one of these paths or below it: what is dear is observed only then."""
        return any(path == start or path.startswith(start + ".") for path in self.paths for start in starts)


@dataclass(frozen=True)
class Entry:
    """One play of a case."""

    case: str
    exchanges: tuple[Exchange, ...]
    variant: str = ""
    config: Json = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    unreadable: str = ""

    @property
    def name(self) -> str:
        return f"{self.case} [{self.variant}]" if self.variant else self.case

    def looks_at(self, *starts: str) -> bool:
        return any(exchange.looks_at(*starts) for exchange in self.exchanges)


def load(folder: Path) -> list[Entry]:
    """Every entry of the folder's `*.json`, in order of file name."""
    return [entry for file in sorted(folder.glob("*.json")) for entry in load_file(file)]


def load_file(file: Path) -> list[Entry]:
    """What is no case becomes an entry that cannot be run: it must show in the count."""
    try:
        case = json.loads(file.read_bytes())
        return list(entries_of(case))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"the file cannot be read as a case: {type(error).__name__} {error}"
        return [Entry(case=file.stem, exchanges=(), unreadable=reason)]


def entries_of(case: Json) -> Iterator[Entry]:
    """The case as written (once for each of its variants), then its other requests, then its other dialects."""
    exchanges = tuple(_exchange(part) for part in case.get("steps") or [case])
    written = Entry(
        case=case["id"],
        exchanges=exchanges,
        config=case.get("config") or {},
        requires=tuple(case.get("requires") or ()),
    )
    yield from _variants(written)
    for request in (case.get("client_action") or {}).get("repeat_with") or []:
        yield _with_request(written, request)
    for dialect, part in (case.get("also_as") or {}).items():
        yield _as_dialect(written, dialect, part)


def _exchange(part: Json) -> Exchange:
    return Exchange(
        client_dialect=part["client_dialect"],
        upstream_dialect=part["upstream_dialect"],
        request=part["client_request"],
        script=part.get("upstream_stream") or part.get("upstream_response"),
        action=part.get("client_action"),
        expect=_expectations(part["expect"]),
        name=part.get("name", ""),
        capture=part.get("capture") or {},
    )


def _expectations(items: list[Json]) -> tuple[Expectation, ...]:
    return tuple(Expectation(item["say"], item.get("check"), item.get("level", "must") == "must") for item in items)


def _variants(written: Entry) -> Iterator[Entry]:
    (first, *others) = written.exchanges
    variants = first.request.get("variants") if not others else None
    if not variants:
        yield written
    for variant in variants or []:
        request = {key: value for key, value in first.request.items() if key != "variants"}
        name = variant if isinstance(variant, str) else json.dumps(variant)
        changed = replace(first, request={**request, "variant": variant})
        yield replace(written, exchanges=(changed,), variant=name)


def _with_request(written: Entry, request: Json) -> Entry:
    (first,) = written.exchanges
    dialect = DIALECT_OF_PATH.get(request["path"], first.client_dialect)
    changed = replace(first, client_dialect=dialect, request=request)
    return replace(written, exchanges=(changed,), variant=request["path"])


def _as_dialect(written: Entry, dialect: str, part: Json) -> Entry:
    (first,) = written.exchanges
    changed = replace(
        first,
        client_dialect=dialect,
        request=part["client_request"],
        expect=_expectations(part["expect"]),
    )
    return replace(written, exchanges=(changed,), variant=dialect)
