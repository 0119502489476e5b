"""How long after its client left does an upstream learn of it: 200 clients at once, by FIN and by RST.

Client and upstream share this process and its clock; the proxy is between them. The time of a stream runs from
just before the client's close to when the end of the proxy's connection was read at the upstream.
"""

import argparse
import time
from dataclasses import dataclass

from bench.client import Client
from bench.figures import percentile, table
from bench.process import open_files
from bench.report import write_report
from bench.script import Script
from bench.stage import Stage, open_stage, read_arguments

BEGIN_SECONDS = 20.0
END_SECONDS = 10.0


@dataclass(frozen=True)
class Situation:
    """Where clients are in their turns when they leave. `seen`: the answer has begun to come."""

    name: str
    script: Script
    stream: bool
    seen: bool
    by_relays: bool = True  # a plain proxy can be in it, too


SILENT = Script(delay=3600)
LIVE = Script(endless=True, pace=0.2)
SITUATIONS = (
    Situation("mid-stream", LIVE, stream=True, seen=True),
    Situation("before the first byte", SILENT, stream=True, seen=False),
    Situation("whole answer, nothing yet", SILENT, stream=False, seen=False),
    Situation("whole answer, being collected", LIVE, stream=False, seen=False, by_relays=False),
)


@dataclass(frozen=True)
class Result:
    """Milliseconds over the streams that ended; `never` did not within END_SECONDS."""

    situation: str
    ending: str
    streams: int
    median_ms: float
    p99_ms: float
    max_ms: float
    never: int
    leaving_took_ms: float


def probe(stage: Stage, situation: Situation, ending: str, numbers: range) -> Result:
    clients = begin(stage, situation, numbers)
    start = time.perf_counter()
    for client in clients.values():
        client.leave(reset=ending == "RST")
    leaving = time.perf_counter() - start
    exchanges = stage.exchanges(numbers)
    stage.loop.run(END_SECONDS, until=lambda: all(each.cut_at for each in exchanges.values()))
    times = [
        1e3 * (exchange.cut_at - left_at)
        for number, exchange in exchanges.items()
        if exchange.cut_at and (left_at := clients[number].left_at)
    ]
    if not times:
        raise RuntimeError(f"{situation.name}: no upstream saw its client leave within {END_SECONDS} s")
    return Result(
        situation.name,
        ending,
        len(clients),
        percentile(times, 0.5),
        percentile(times, 0.99),
        max(times),
        never=len(clients) - len(times),
        leaving_took_ms=1e3 * leaving,
    )


def begin(stage: Stage, situation: Situation, numbers: range) -> dict[int, Client]:
    """All of the clients, each with its turn as far as the situation wants it."""
    clients = {number: stage.client(number, situation.script, stream=situation.stream) for number in numbers}

    def is_there() -> bool:
        if situation.seen:
            return all(client.has_body for client in clients.values())
        return len(stage.exchanges(numbers)) == len(clients)

    if not stage.loop.run(BEGIN_SECONDS, until=is_there):
        faults = {client.fault or client.received[:200] for client in clients.values()}
        raise RuntimeError(f"{situation.name}: not all turns began: {faults}")
    stage.loop.run(0.3)  # let the newest of them settle: they leave out of a steady state
    return clients


def show(results: list[Result]) -> None:
    heading = ("client leaves", "by", "streams", "median ms", "p99 ms", "max ms", "never")
    print(table([heading, *(row(each) for each in results)]))


def row(result: Result) -> tuple[object, ...]:
    times = (f"{value:.1f}" for value in (result.median_ms, result.p99_ms, result.max_ms))
    return (result.situation, result.ending, result.streams, *times, result.never)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.abort", description=__doc__)
    parser.add_argument("--streams", type=int, default=200)
    args = read_arguments(parser, peers=("tidegate", "nginx"))
    results: list[Result] = []
    with open_stage(args.peer, dict(args.set)) as stage:
        idle_files = open_files(stage.peer.pids)
        for situation in SITUATIONS:
            if args.peer == "nginx" and not situation.by_relays:
                continue
            for ending in ("FIN", "RST"):
                first = args.streams * len(results)
                results.append(probe(stage, situation, ending, range(first, first + args.streams)))
        stage.loop.run(0.5)  # the last turn's record and sockets
        left_open = open_files(stage.peer.pids) - idle_files
        ends = stage.peer.ends()
    show(results)
    print(f"files that {args.peer} has open more than before the first client: {left_open}")
    print(f"how its journal says they ended: {ends or 'it keeps none'}")
    figures = {"peer": args.peer, "results": results, "files_left_open": left_open, "journal": ends}
    write_report("abort", figures, args.json)


if __name__ == "__main__":
    main()
