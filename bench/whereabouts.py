"""Where the gateway's CPU time goes: `sampler`'s samples as a table of functions and of parts. Pure but for reading."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from bench.figures import table

OURS = ("engine", "server")
PARTS = ("trio", "outcome", *OURS)


@dataclass(frozen=True)
class Whereabouts:
    """Samples by function; `dearest` is the line of a function that most of its own samples are on."""

    samples: int
    own: Counter[tuple[str, str]]  # file, function
    dearest: dict[tuple[str, str], int]
    under: Counter[tuple[str, str]]


def read_samples(path: Path) -> Whereabouts:
    raw = json.loads(path.read_text())
    own = Counter[tuple[str, str]]()
    lines: dict[tuple[str, str], Counter[int]] = {}
    for (file, _, function, line), count in raw["own"]:
        own[short(file), function] += count
        lines.setdefault((short(file), function), Counter())[line] += count
    under = Counter[tuple[str, str]]()
    for (file, _, function), count in raw["under"]:
        under[short(file), function] += count
    dearest = {key: counts.most_common(1)[0][0] for key, counts in lines.items()}
    return Whereabouts(own.total(), own, dearest, under)


def short(file: str) -> str:
    """From the package on: `trio/_core/_run.py`."""
    parts = Path(file).parts
    starts = [at for at, part in enumerate(parts) if part in PARTS]
    return "/".join(parts[starts[0] :] if starts else parts[-2:])


def describe(found: Whereabouts, microseconds: float, most: int = 25) -> str:
    """`microseconds` of CPU a request, shared out by samples."""
    share = microseconds / max(1, found.samples)
    own = [
        (f"{file}:{found.dearest[file, name]} {name}", f"{share * count:.1f}", f"{100 * count / found.samples:.1f}")
        for (file, name), count in found.own.most_common(most)
    ]
    ours = [(key, count) for key, count in found.under.most_common() if part_of(key[0]).startswith(OURS)]
    under = [(" ".join(key), f"{share * count:.1f}") for key, count in ours[:most]]
    parts = Counter[str]()
    for (file, _), count in found.own.items():
        parts[part_of(file)] += count
    return "\n\n".join(
        (
            table([("by itself: dearest line, function", "µs", "%"), *own]),
            table([("with all that it calls or awaits: our functions", "µs"), *under]),
            table([("by part, by itself", "µs"), *((name, f"{share * n:.1f}") for name, n in parts.most_common())]),
        )
    )


def part_of(file: str) -> str:
    """`engine/wire` and the like for our own, one word for the rest."""
    if file == "~":
        return "functions in C"
    if file.startswith("<attrs generated methods trio"):
        return "trio"
    words = file.split("/")
    if words[0] not in PARTS:
        return "other"
    return "/".join(words[:2]) if words[0] in OURS else words[0]
