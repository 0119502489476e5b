"""Function calls of the gateway per request and per chunk: what a change saves, where a busy machine hides it.

CPU time on a busy machine swings by a third, calls by 3 %; and a gateway in Python costs about 0.4 µs of
CPU a call, Python's and C's alike. Two runs of different length are subtracted, so that starting up is not counted.
"""

import pstats
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from bench.child import end_children_when_told_to_stop
from bench.cpu import BURST, BURSTS, LONE, ONE, SMALL, Case
from bench.figures import table
from bench.gateway import open_gateway
from bench.load import Load
from bench.upstream import open_upstream
from bench.whereabouts import part_of, short

SHORT_RUN, LONG_RUN = 64, 256  # requests, four of each connection at least
CASES = (SMALL, ONE, BURST, BURSTS, LONE)
MOST = 40  # functions listed
CONNECTIONS = 16

Function = tuple[str, str]  # file, name


def count(upstream_port: int, case: Case, requests: int) -> Counter[Function]:
    """Calls by function in the life of a gateway that served so many requests."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        out = Path(folder, "calls")
        with open_gateway(upstream_port, under=("-m", "cProfile", "-o", str(out), "-m")) as peer:
            load = Load(peer.port, case.script, stream=case.stream, connections=CONNECTIONS)
            tally = load.run(60.0, most=requests)
            load.close()
        if tally.requests != requests:
            raise RuntimeError(f"{requests} answers wanted, {tally.requests} came: {tally.faults}")
        stats: Any = pstats.Stats(str(out))
    calls = Counter[Function]()
    for (file, _, name), (_, number, *_) in stats.stats.items():
        calls[short(file), name] += number
    return calls


def calls_per_request(upstream_port: int, case: Case) -> dict[Function, float]:
    few, many = (count(upstream_port, case, requests) for requests in (SHORT_RUN, LONG_RUN))
    return {key: (number - few[key]) / (LONG_RUN - SHORT_RUN) for key, number in many.items()}


def by_part(calls: dict[Function, float]) -> dict[str, float]:
    parts = defaultdict[str, float](float)
    for (file, _), number in calls.items():
        parts[part_of(file)] += number
    return parts


def show(found: dict[str, dict[Function, float]]) -> None:
    columns = {name: {"all": sum(calls.values()), **by_part(calls)} for name, calls in found.items()}
    parts = {part: [column.get(part, 0.0) for column in columns.values()] for part in columns[SMALL.name]}
    rows = [(part, *(f"{n:.0f}" for n in row)) for part, row in sorted(parts.items(), key=lambda item: -item[1][0])]
    print(table([("calls a request, by part", *found), *(row for row in rows if set(row[1:]) != {"0"})]))
    for name, calls in found.items():
        most = sorted(calls.items(), key=lambda item: -item[1])[:MOST]
        print("\n" + table([(f"{name}: most called", "times"), *((" ".join(key), f"{n:.1f}") for key, n in most)]))


def main() -> None:
    end_children_when_told_to_stop()
    with open_upstream() as upstream_port:
        show({case.name: calls_per_request(upstream_port, case) for case in CASES})


if __name__ == "__main__":
    main()
