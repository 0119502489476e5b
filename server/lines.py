"""In which line of a TOML text a key stands. `tomllib` reads values and forgets places; complaints need them."""

from __future__ import annotations

import re
from collections import Counter

_TABLE = re.compile(r"^\s*\[(?!\[)\s*(?P<name>[^\]]+?)\s*\]")
_ARRAY = re.compile(r"^\s*\[\[\s*(?P<name>[^\]]+?)\s*\]\]")
_KEY = re.compile(r"""^\s*(?P<key>(?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")


def line_of(text: str, place: str) -> int | None:
    """The line, from 1, of the key with this dotted place (`models.0.name`), or of the innermost table around it.

    None if no part of it is in the text. Keys within inline tables and arrays are found at the line of their value.
    """
    best: tuple[int, int] | None = None
    wanted = place.split(".")
    for number, path in _paths(text):
        depth = _shared(path, wanted)
        if depth == len(path) and depth and (best is None or depth > best[0]):
            best = (depth, number)
    return best[1] if best is not None else None


def _paths(text: str) -> list[tuple[int, list[str]]]:
    """Every table header and key with its line and its place; the entries of an array of tables are numbered."""
    table: list[str] = []
    entries: Counter[str] = Counter()
    found: list[tuple[int, list[str]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if array := _ARRAY.match(line):
            name = array["name"]
            table = [*_parts(name), str(entries[name])]
            entries[name] += 1
            found.append((number, table))
        elif header := _TABLE.match(line):
            table = _parts(header["name"])
            found.append((number, table))
        elif key := _KEY.match(line):
            found.append((number, [*table, *_parts(key["key"])]))
    return found


def _parts(name: str) -> list[str]:
    return [part.strip().strip("\"'") for part in re.findall(r"""[\w-]+|"[^"]*"|'[^']*'""", name)]


def _shared(path: list[str], wanted: list[str]) -> int:
    count = 0
    for one, other in zip(path, wanted, strict=False):
        if one != other:
            break
        count += 1
    return count
