"""The baseline check: whether as many tests pass on the untouched tree as each spec says.

`python -m evidence.gate.baseline [--all] [--base REVISION] [SPEC …]`. Without a name: the specs that a change touches,
that is those whose own file or test files differ from the base, from HEAD, or are untracked; all of them if nothing
differs. Exits with 0, 1 (drift) or 2 (untrustworthy). Never writes a spec.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import trio

from evidence.gate import Exit
from evidence.gate.receipts import Receipt
from evidence.gate.repository import GitError, Repository
from evidence.gate.running import run_tests
from evidence.gate.specs import FOLDER, Spec, SpecError, load_named

LIMIT = 300.0
"""Seconds for all the tests of one spec."""


class Measurement(msgspec.Struct, frozen=True):
    """What came of one spec, and why."""

    spec: str
    exit: Exit
    says: str
    seconds: float = 0.0

    def line(self) -> str:
        return f"{self.spec:<12} {self.seconds:5.1f} s  {self.says}"


def select(specs: Mapping[str, Spec], changed: Collection[str]) -> list[str]:
    """The names of the specs that these paths touch; of all if there are no paths."""
    if not changed:
        return list(specs)
    return [name for name, spec in specs.items() if not {str(FOLDER / f"{name}.toml"), *spec.tests}.isdisjoint(changed)]


def judge(spec: Spec, receipt: Receipt, platform: str = sys.platform) -> tuple[Exit, str]:
    """Whether the tests of the untouched tree did as the spec says."""
    if receipt.problem is not None:
        return Exit.UNTRUSTWORTHY, receipt.problem
    if red := receipt.failed:
        return Exit.UNTRUSTWORTHY, f"{len(red)} tests fail on the untouched tree: {red[0]}"
    approved = {skip.test: skip.reason for skip in spec.skips_on(platform)}
    for test, reason in receipt.skipped.items():
        if approved.get(test) != reason:
            return Exit.UNTRUSTWORTHY, f"{test} was skipped ({reason}), and the spec approves no such skip"
    if gone := approved.keys() - receipt.outcomes.keys() - receipt.skipped.keys():
        return Exit.UNTRUSTWORTHY, f"a skip is approved for {min(gone)}, which is no test"
    if (found := receipt.passed + len(receipt.skipped)) != spec.passes:
        says = f"{found} tests pass but the spec expects {spec.passes}: either the suite changed or the spec is stale"
        return Exit.WRONG, says
    return Exit.OK, f"{found} tests pass, as the spec says"


async def measure(root: Path, specs: Mapping[str, Spec]) -> list[Measurement]:
    """As many at a time as there are cores; in the order of the specs. Each is printed when it is there."""
    measured: dict[str, Measurement] = {}
    cores = trio.CapacityLimiter(os.cpu_count() or 1)

    async def one(name: str, spec: Spec) -> None:
        async with cores:
            began = trio.current_time()
            exit_, says = judge(spec, await run_tests(root, spec.tests, limit=LIMIT))
            measured[name] = Measurement(name, exit_, says, trio.current_time() - began)
            print(measured[name].line(), flush=True)

    async with trio.open_nursery() as nursery:
        for name, spec in specs.items():
            nursery.start_soon(one, name, spec)
    return [measured[name] for name in specs]


def check(repository: Repository, *, names: Sequence[str] = (), everything: bool, base: str | None) -> tuple[Exit, str]:
    """Measure, and say in one line what came of it. Raises SpecError, GitError."""
    specs = load_named(repository.root, names)
    if not names and not everything:
        touched = select(specs, repository.changed(repository.base(base)))
        specs = {name: specs[name] for name in touched}
    measurements = trio.run(measure, repository.root, specs)
    return worst(measurement.exit for measurement in measurements), summary(measurements)


def worst(exits: Iterable[Exit]) -> Exit:
    return max(exits, default=Exit.OK)


def summary(measurements: Collection[Measurement]) -> str:
    if not measurements:
        return "no spec touched by the change"
    count = {each: sum(measurement.exit == each for measurement in measurements) for each in Exit}
    return f"{len(measurements)} specs measured, {count[Exit.WRONG]} drift, {count[Exit.UNTRUSTWORTHY]} untrustworthy"


def main(arguments: Sequence[str] | None = None) -> Exit:
    parser = argparse.ArgumentParser("python -m evidence.gate.baseline", allow_abbrev=False, description=__doc__)
    parser.add_argument("specs", nargs="*", metavar="SPEC", help="names of specs, without .toml")
    parser.add_argument("--all", action="store_true", help="every spec, whatever changed")
    parser.add_argument("--base", help="the revision to compare with (default: origin/main, else main)")
    options = parser.parse_args(arguments)
    try:
        repository = Repository.around(Path.cwd())
        exit_, says = check(repository, names=options.specs, everything=options.all, base=options.base)
    except (GitError, SpecError) as error:
        exit_, says = Exit.UNTRUSTWORTHY, str(error)
    print(says)
    return exit_


if __name__ == "__main__":
    sys.exit(main())
