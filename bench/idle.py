"""Memory and CPU of many idle streams: each has begun, and its upstream is silent for longer than the probe takes."""

import argparse
from dataclasses import dataclass

from bench.client import Client
from bench.figures import table
from bench.process import cpu_seconds, rss
from bench.report import write_report
from bench.script import Script
from bench.stage import Stage, open_stage, read_arguments

SILENT = Script(pace=600, endless=True)
BEGIN_SECONDS = 30.0
AT_ONCE = 50  # streams opened together: they are to be idle, not to storm
WATCHED = 3.0  # seconds


@dataclass(frozen=True)
class Result:
    """Resident bytes of the proxy; CPU seconds that it took in `WATCHED` seconds of nothing to do."""

    peer: str
    streams: int
    memory_before: int
    memory: int
    memory_after: int
    idle_cpu: float


def probe(stage: Stage, count: int) -> Result:
    pids = stage.peer.pids
    before = rss(pids)
    clients: list[Client] = []
    for first in range(0, count, AT_ONCE):
        clients += open_some(stage, range(first, min(first + AT_ONCE, count)))
    memory, start = rss(pids), cpu_seconds(pids)
    stage.loop.run(WATCHED)
    idle_cpu = cpu_seconds(pids) - start
    for client in clients:
        client.leave()
    stage.loop.run(2.0)
    return Result(stage.peer.name, count, before, memory, rss(pids), idle_cpu)


def open_some(stage: Stage, numbers: range) -> list[Client]:
    clients = [stage.client(number, SILENT) for number in numbers]
    if not stage.loop.run(BEGIN_SECONDS, until=lambda: all(each.has_body for each in clients)):
        raise RuntimeError(f"not all of {numbers} began: {clients[0].fault}")
    return clients


def show(results: list[Result]) -> None:
    rows = [
        (
            each.peer,
            each.streams,
            *(f"{size / 2**20:.1f}" for size in (each.memory_before, each.memory, each.memory_after)),
            f"{(each.memory - each.memory_before) / each.streams / 1024:.1f}",
            f"{100 * each.idle_cpu / WATCHED:.1f}",
        )
        for each in results
    ]
    heading = ("proxy", "streams", "MiB before", "open", "after", "KiB a stream", "CPU % when idle")
    print(table([heading, *rows]))


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.idle", description=__doc__)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--alone", action="store_true", help="without nginx")
    args = read_arguments(parser)
    results = []
    for peer in ("tidegate",) if args.alone else ("tidegate", "nginx"):
        with open_stage(peer, dict(args.set)) as stage:
            results.append(probe(stage, args.streams))
    show(results)
    write_report("idle", results, args.json)


if __name__ == "__main__":
    main()
