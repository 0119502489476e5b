"""Clients that never read, against an endless upstream: what piles up where, and when each is dropped.

Beside them slow readers, who must not be dropped, and healthy clients, who must not notice.
"""

import argparse
import time
from collections import Counter
from dataclasses import dataclass

from bench.figures import Spread, spread, table
from bench.load import Load, Tally
from bench.piles import read_piles, summarize
from bench.process import rss
from bench.readers import Slow, Stalled
from bench.report import write_report
from bench.script import Script
from bench.stage import Stage, open_stage, read_arguments

ENDLESS = Script(size=4096, burst=4, endless=True)
HEALTHY = Script(chunks=16, pace=0.02)
HEALTHY_CLIENTS = 10
SLOW_CLIENTS = 5
QUIET = 1.0  # seconds without any stream's progress: a steady state
DEADLINES_OUTLIVED = 3  # by a slow reader


@dataclass(frozen=True)
class Heap:
    """The steady state. Memory is the proxy's resident set before and then, in bytes."""

    reached_after: float
    piles: dict[str, Spread]
    memory_before: int
    memory: int


@dataclass(frozen=True)
class Drops:
    """Seconds from the last byte that an upstream could send to the end of its connection."""

    streams: int
    dropped: int
    after: Spread | None
    seen_by_clients: dict[str, int]


@dataclass(frozen=True)
class Bystanders:
    """The slow, of whom none may be dropped, and the healthy, before and while the others stall."""

    slow: int
    slow_dropped: int
    slow_seconds: float
    slow_read: list[int]
    healthy_alone: Tally
    healthy: Tally


def pile_up(stage: Stage, stalled: dict[int, Stalled], drain: float, memory_before: int) -> Heap:
    """Waits until no upstream of theirs could send for a while, and looks where everything is."""
    start = time.perf_counter()
    numbers = range(len(stalled))

    def is_quiet() -> bool:
        exchanges = stage.exchanges(numbers)
        last = max((each.sent_at for each in exchanges.values()), default=start)
        return len(exchanges) == len(stalled) and time.perf_counter() - last > QUIET

    is_steady = stage.loop.run(drain + QUIET, until=is_quiet)
    if not is_steady or any(each.state() != "open" for each in stalled.values()):
        raise RuntimeError(f"no steady state before the drain deadline of {drain} s: set a longer one")
    reached_after = time.perf_counter() - start - QUIET
    sockets = {number: each.sock for number, each in stalled.items()}
    piles = read_piles(stage.exchanges(numbers), sockets)
    return Heap(reached_after, summarize(piles), memory_before, rss(stage.peer.pids))


def wait_for_drops(stage: Stage, stalled: dict[int, Stalled], drain: float) -> Drops:
    exchanges = stage.exchanges(range(len(stalled))).values()
    stage.loop.run(2 * drain + 5, until=lambda: all(each.cut_at for each in exchanges))
    stage.loop.run(0.2)  # a reset that comes with it
    after = [each.cut_at - each.sent_at for each in exchanges if each.cut_at]
    seen = Counter(each.state() for each in stalled.values())
    return Drops(len(stalled), len(after), spread(after) if after else None, dict(seen))


def probe(stage: Stage, count: int, drain: float) -> tuple[Heap, Drops, Bystanders]:
    load = Load(stage.peer.port, HEALTHY, stream=True, connections=HEALTHY_CLIENTS, loop=stage.loop)
    alone = load.run(3.0)
    memory = rss(stage.peer.pids)
    load.start(3600)
    start = time.perf_counter()
    slow = [Slow(stage, number, ENDLESS) for number in range(count, count + SLOW_CLIENTS)]
    stalled = {number: Stalled(stage, number, ENDLESS) for number in range(count)}
    heap = pile_up(stage, stalled, drain, memory)
    drops = wait_for_drops(stage, stalled, drain)
    stage.loop.run(start + DEADLINES_OUTLIVED * drain - time.perf_counter())
    slow_exchanges = stage.exchanges(range(count, count + len(slow))).values()
    healthy = load.stop()
    bystanders = Bystanders(
        slow=len(slow),
        slow_dropped=sum(each.cut_at is not None for each in slow_exchanges),
        slow_seconds=time.perf_counter() - start,
        slow_read=[each.read for each in slow],
        healthy_alone=alone,
        healthy=healthy,
    )
    for each in slow:
        each.close()
    return heap, drops, bystanders


def show(heap: Heap, drops: Drops, others: Bystanders) -> None:
    rows = [(name.replace("_", " "), *kib(value)) for name, value in heap.piles.items()]
    print(table([("bytes of a stalled stream, KiB", "median", "least", "most"), *rows]))
    growth = (heap.memory - heap.memory_before) / 1024
    print(f"steady after {heap.reached_after:.1f} s; resident memory of the proxy grew by {growth:.0f} KiB,")
    print(f"which is {growth / drops.streams:.0f} KiB a stream")
    print(f"dropped: {drops.dropped} of {drops.streams}, after s: {drops.after}")
    print(f"what their sockets say of it: {drops.seen_by_clients}")
    print(f"slow readers dropped: {others.slow_dropped} of {others.slow} in {others.slow_seconds:.0f} s")
    for name, tally in (("alone", others.healthy_alone), ("beside them", others.healthy)):
        slowest = f"slowest {tally.slowest:.2f} s"
        print(f"healthy clients {name}: {tally.requests} answers, {slowest}, faults {dict(tally.faults)}")


def kib(value: Spread) -> tuple[str, ...]:
    return tuple(f"{size / 1024:.1f}" for size in (value.median, value.least, value.most))


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.stall", description=__doc__)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--drain", type=float, default=5.0, help="seconds; the gateway's drain deadline")
    args = read_arguments(parser, peers=("tidegate", "nginx"))
    settings = {"deadlines.drain": args.drain, **dict(args.set)}
    with open_stage(args.peer, settings) as stage:
        heap, drops, bystanders = probe(stage, args.streams, args.drain)
        stage.loop.run(0.5)  # the last records
        journal = stage.peer.ends()
    show(heap, drops, bystanders)
    print(f"the journal's ends: {journal or 'it keeps none'}")
    figures = {"peer": args.peer, "drain": args.drain, "heap": heap, "drops": drops}
    write_report("stall", figures | {"bystanders": bystanders, "journal": journal}, args.json)


if __name__ == "__main__":
    main()
