"""CPU time of the gateway per request and per chunk, beside nginx in the same run: `make bench`.

Only the proxy's own processes are counted, so client and upstream may cost what they like. Gateway and nginx
take turns, case by case and round by round, and are compared within a round: a busy neighbour slows both.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.child import end_children_when_told_to_stop
from bench.figures import Spread, spread, table
from bench.gateway import add_set_option, open_gateway, open_simulated
from bench.load import Load
from bench.nginx import open_nginx
from bench.peer import Peer
from bench.process import cpu_seconds, cpu_ticks
from bench.report import add_json_option, write_report
from bench.script import Script
from bench.upstream import open_upstream
from bench.whereabouts import describe, read_samples

WARM_UP = 32  # requests


@dataclass(frozen=True)
class Case:
    name: str
    script: Script
    stream: bool = True


SMALL = Case("small", Script(chunks=1), stream=False)
ONE = Case("one", Script(chunks=1))
BURST = Case("burst", Script(chunks=64, burst=64))
BURSTS = Case("bursts", Script(chunks=64, burst=16, pace=0.002))
RUSH = Case("rush", Script(chunks=64))
LONE = Case("lone", Script(chunks=64, pace=0.005))
CASES = (SMALL, ONE, BURST, BURSTS, RUSH, LONE)

# What is printed: either a case's cost per request, or what 64 chunks cost more than one, per chunk.
FIGURES = {
    "a request, whole answer": (SMALL, None),
    "a request, streamed, 1 chunk": (ONE, None),
    "a request, streamed, 64 in one burst": (BURST, None),
    "a chunk, 64 in one burst": (BURST, ONE),
    "a chunk, bursts of 16, 2 ms apart": (BURSTS, ONE),
    "a chunk, a write each, no pause": (RUSH, ONE),
    "a lone chunk, 5 ms apart": (LONE, ONE),
}


@dataclass(frozen=True)
class Reading:
    """One case on one peer: CPU microseconds per request, and the share of them inside the kernel."""

    microseconds: float
    kernel_share: float
    requests: int
    per_second: float
    faults: dict[str, int]


Round = dict[str, dict[str, Reading]]  # peer, case


def measure(peer: Peer, case: Case, seconds: float, connections: int) -> Reading:
    load = Load(peer.port, case.script, stream=case.stream, connections=connections)
    load.run(seconds, most=WARM_UP)
    ticks, start = cpu_ticks(peer.pids), cpu_seconds(peer.pids)
    tally = load.run(seconds)
    spent = cpu_seconds(peer.pids) - start
    user, system = (after - before for after, before in zip(cpu_ticks(peer.pids), ticks, strict=True))
    load.close()
    return Reading(
        microseconds=1e6 * spent / max(1, tally.requests),
        kernel_share=system / max(1, user + system),
        requests=tally.requests,
        per_second=tally.requests / tally.seconds,
        faults=dict(tally.faults),
    )


def cost(readings: dict[str, Reading], figure: str) -> float:
    """Microseconds of one figure in one round of one peer."""
    case, less = FIGURES[figure]
    spent = readings[case.name].microseconds
    if less is None:
        return spent
    return (spent - readings[less.name].microseconds) / (case.script.chunks - less.script.chunks)


def run_rounds(peers: Sequence[Peer], args: argparse.Namespace) -> list[Round]:
    rounds: list[Round] = []
    for number in range(args.rounds):
        readings: Round = {peer.name: {} for peer in peers}
        for case in CASES:
            for peer in peers:
                readings[peer.name][case.name] = measure(peer, case, args.seconds, args.connections)
        rounds.append(readings)
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
    return rounds


def summary(rounds: Sequence[Round], peers: Sequence[Peer]) -> dict[str, dict[str, Spread]]:
    """Per figure: each peer's microseconds, and the first peer's as a multiple of each other's, round by round."""
    first, *others = (peer.name for peer in peers)
    found: dict[str, dict[str, Spread]] = {}
    for figure in FIGURES:
        costs = {name: [cost(readings[name], figure) for readings in rounds] for name in (first, *others)}
        found[figure] = {name: spread(values) for name, values in costs.items()}
        for other in others:
            pairs = zip(costs[first], costs[other], strict=True)
            found[figure][f"times {other}"] = spread([ours / theirs for ours, theirs in pairs])
    return found


def show(found: dict[str, dict[str, Spread]], rounds: Sequence[Round]) -> None:
    columns = next(iter(found.values()))
    rows = [(name, *row.values()) for name, row in found.items()]
    print(table([("CPU, µs: median (least-most)", *columns), *rows]))
    for name in rounds[0]:
        shares = (f"{case.name} {kernel_share(rounds, name, case):.0%}" for case in CASES)
        print(f"{name}, share of it in the kernel: {', '.join(shares)}")


def kernel_share(rounds: Sequence[Round], peer: str, case: Case) -> float:
    return spread([readings[peer][case.name].kernel_share for readings in rounds]).median


def faults(rounds: Sequence[Round]) -> list[str]:
    return [
        f"{peer}, {case}: {reading.faults}"
        for readings in rounds
        for peer, cases in readings.items()
        for case, reading in cases.items()
        if reading.faults
    ]


def compare(upstream_port: int, args: argparse.Namespace) -> None:
    with ExitStack() as stack:
        peers = [stack.enter_context(open_gateway(upstream_port, dict(args.set)))]
        if not args.alone:
            peers.append(stack.enter_context(open_nginx(upstream_port)))
        rounds = run_rounds(peers, args)
    found = summary(rounds, peers)
    show(found, rounds)
    versions = {peer.name: peer.version for peer in peers}
    write_report("cpu", {"versions": versions, "microseconds": found, "rounds": rounds}, args.json)
    if wrong := faults(rounds):
        sys.exit("not every answer was whole:\n" + "\n".join(wrong))


def profile(upstream_port: int, args: argparse.Namespace) -> None:
    """Each case on a fresh gateway under the sampler, after a clean reading that says what a request costs."""
    for case in CASES:
        with open_gateway(upstream_port, dict(args.set)) as peer:
            clean = measure(peer, case, args.seconds, args.connections)
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            samples = Path(folder, "samples.json")
            with open_gateway(upstream_port, dict(args.set), under=("-m", "bench.sampler", str(samples))) as peer:
                measure(peer, case, args.seconds, args.connections)
            print(f"\n{case.name} ({case.script.model}): {clean.microseconds:.0f} µs of CPU a request,")
            print(f"{clean.kernel_share:.0%} of it in the kernel, {clean.per_second:.0f} requests a second\n")
            print(describe(read_samples(samples), clean.microseconds))


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.cpu", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="per case, peer and round")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--alone", action="store_true", help="without nginx")
    parser.add_argument("--simulated", action="store_true", help="against `tidegate simulate`, not bench.upstream")
    add_set_option(parser)
    parser.add_argument("--profile", action="store_true", help="say where the gateway's time goes, and only that")
    add_json_option(parser)
    args = parser.parse_args()
    end_children_when_told_to_stop()
    with open_simulated() if args.simulated else open_upstream() as upstream_port:
        (profile if args.profile else compare)(upstream_port, args)


if __name__ == "__main__":
    main()
