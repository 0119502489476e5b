"""SIGTERM to a gateway with stalled readers and healthy streams: who gets an end, and when the process is gone.

Half of the healthy streams have less left than the grace and must finish; the other half never would, and must
be told by an error event. Nobody else's slowness may keep the process.
"""

import argparse
import socket
import time
from collections import Counter
from dataclasses import dataclass

from bench.child import Exit
from bench.client import Client
from bench.readers import Stalled
from bench.report import write_report
from bench.script import Script
from bench.stage import Stage, open_stage, read_arguments

BURYING = Script(size=4096, burst=4, endless=True)
UNENDING = Script(pace=0.1, endless=True)
PACE = 0.1
BEGIN_SECONDS = 20.0
PATIENCE = 10.0  # seconds over the grace until the probe gives up
HANDOVER = 0.5  # seconds after the signal when a new client tries to come in


@dataclass(frozen=True)
class Result:
    """Seconds from the signal. `ends` counts what a healthy client had when the process was gone."""

    grace: float
    stalled: int
    finishing: dict[str, int]
    unending: dict[str, int]
    exited_after: float | None
    exit_status: int | None
    newcomer: str
    journal: dict[str, int]

    @property
    def holds(self) -> bool:
        in_time = self.exited_after is not None and self.exited_after <= self.grace + 1
        return in_time and set(self.finishing) <= {"finished"} and set(self.unending) <= {"told"}


def begin(stage: Stage, count: int, grace: float) -> tuple[list[Client], list[Client]]:
    """Stalled readers 0 to count - 1, then the healthy streams; all live, and the stalled ones full."""
    finishing = Script(chunks=round(0.6 * grace / PACE) + 10, pace=PACE)
    half = count // 2
    stalled = [Stalled(stage, number, BURYING) for number in range(count)]
    short = [stage.client(number, finishing) for number in range(count, count + half)]
    long = [stage.client(number, UNENDING) for number in range(count + half, 2 * count)]
    if not stage.loop.run(BEGIN_SECONDS, until=lambda: all(each.has_body for each in short + long)):
        raise RuntimeError("not all healthy streams began")
    stage.loop.run(10 * PACE)
    if gone := sum(each.state() != "open" for each in stalled):
        raise RuntimeError(f"{gone} stalled readers were dropped before the signal")
    return short, long


def probe(stage: Stage, count: int, grace: float) -> Result:
    short, long = begin(stage, count, grace)
    process = stage.peer.process
    gone = Exit(stage.loop, process)
    start = time.perf_counter()
    process.terminate()
    stage.loop.run(min(HANDOVER, grace / 2))
    newcomer = knock(stage.peer.port)
    stage.loop.run(grace + PATIENCE, until=lambda: gone.at is not None)
    stage.loop.run(0.2)  # what it wrote last is still on its way
    return Result(
        grace=grace,
        stalled=count,
        finishing=dict(Counter(map(end_of, short))),
        unending=dict(Counter(map(end_of, long))),
        exited_after=gone.at - start if gone.at else None,
        exit_status=process.poll(),
        newcomer=newcomer,
        journal=stage.peer.ends(),
    )


def end_of(client: Client) -> str:
    """How its answer ended: politely, with an error that says so, or neither."""
    if client.body is None:
        return f"cut: {client.fault}"
    last = client.body.rstrip().rpartition(b"\n\n")[2]
    if b'"error"' in client.body[-1000:]:
        return "told"
    return "finished" if last == b"data: [DONE]" else f"ended without an end: {last[:80]!r}"


def knock(port: int) -> str:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except ConnectionRefusedError:
        return "refused"
    return "let in"


def show(result: Result) -> None:
    exited = "never" if result.exited_after is None else f"after {result.exited_after:.2f} s"
    print(f"grace {result.grace} s; {result.stalled} stalled readers; process gone {exited}")
    print(f"exit status {result.exit_status}; a newcomer during the grace was {result.newcomer}")
    print(f"healthy streams with less left than the grace: {result.finishing}")
    print(f"healthy streams that never end: {result.unending}")
    print(f"the journal's ends: {result.journal}")
    print("holds" if result.holds else "DOES NOT HOLD")


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.shutdown", description=__doc__)
    parser.add_argument("--streams", type=int, default=50, help="of each kind, stalled and healthy")
    parser.add_argument("--grace", type=float, default=3.0)
    args = read_arguments(parser)
    settings = {"deadlines.grace": args.grace, "deadlines.drain": 60, **dict(args.set)}
    with open_stage("tidegate", settings) as stage:
        result = probe(stage, args.streams, args.grace)
    show(result)
    write_report("shutdown", result, args.json)


if __name__ == "__main__":
    main()
