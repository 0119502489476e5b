"""The gate: every step runs, whatever became of those before it, and each has a line in the summary.

`python -m evidence.gate [--release] [--base REVISION]`. Without `--release` it is about what a change touches: the
baseline of those specs alone, and no mutants. Exits with the worst of its steps: 0, 1 or 2.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from evidence.gate import Exit, baseline, secret_scan, static, verdicts
from evidence.gate.census import census, declared
from evidence.gate.mutation import Untrustworthy, run_mutants
from evidence.gate.receipts import Receipt, read
from evidence.gate.repository import GitError, Repository
from evidence.gate.specs import SpecError

Outcome = tuple[Exit, str]


class Step(NamedTuple):
    name: str
    run: Callable[[], Outcome]


class Row(NamedTuple):
    """A line of the summary. `exit` is None for a step that this scope does not have."""

    name: str
    exit: Exit | None
    says: str
    seconds: float = 0.0

    def line(self) -> str:
        word = "SKIP" if self.exit is None else ("PASS", "FAIL", "UNTRUSTWORTHY")[self.exit]
        return f"{word:<13} {self.name:<12} {self.seconds:6.1f} s  {self.says}"


class Gate:
    """One pass through the steps, in the checkout around the working directory."""

    def __init__(self, repository: Repository, *, release: bool, base: str | None) -> None:
        self._repository = repository
        self._release = release
        self._base = base
        self._suite: Receipt | None = None

    def pass_through(self) -> Exit:
        rows = [run(step) for step in self._steps()]
        if not self._release:
            rows.append(Row("mutants", None, "not in this scope: `make gate-release` executes them"))
        exit_ = max(row.exit for row in rows if row.exit is not None)
        print()
        for row in rows:
            print(row.line())
        seconds = sum(row.seconds for row in rows)
        print(f"gate ({'release' if self._release else 'incremental'}): exit {exit_:d} ({exit_.name}), {seconds:.0f} s")
        return exit_

    def _steps(self) -> list[Step]:
        steps = [
            Step("static", self._static),
            Step("baseline", self._baseline),
            Step("secrets", lambda: secret_scan.scan(self._repository)),
            Step("suite", self._run_suite),
            Step("census", self._census),
            Step("whitespace", self._whitespace),
        ]
        return [*steps, Step("mutants", self._mutants)] if self._release else steps

    def _static(self) -> Outcome:
        found = list(static.findings(self._repository.root, self._repository.tracked()))
        for complaint in found:
            print(complaint)
        if found:
            return Exit.UNTRUSTWORTHY, f"{len(found)} findings"
        return Exit.OK, static.summary(self._repository.root)

    def _baseline(self) -> Outcome:
        return baseline.check(self._repository, everything=self._release, base=self._base)

    def _run_suite(self) -> Outcome:
        """All tests, as `make test` runs them, with this process's own environment."""
        with tempfile.TemporaryDirectory(prefix="tidegate-suite-") as folder:
            log = Path(folder, "log")
            command = [sys.executable, "-m", "pytest", "-q", "--report-log", str(log)]
            status = subprocess.run(command, cwd=self._repository.root, check=False).returncode
            self._suite = read(log, status)
        if self._suite.problem is not None:
            return Exit.UNTRUSTWORTHY, self._suite.problem
        return (Exit.WRONG if self._suite.failed else Exit.OK), self._suite.summary()

    def _census(self) -> Outcome:
        exit_, says, line = census(self._repository.files(), self._suite, declared(os.environ))
        for each in says:
            print(each)
        return exit_, line

    def _whitespace(self) -> Outcome:
        found = self._repository.whitespace(self._base)
        for each in found:
            print(each)
        return (Exit.WRONG if found else Exit.OK), f"git diff --check: {len(found)} findings"

    def _mutants(self) -> Outcome:
        results = run_mutants(self._repository)
        return verdicts.exit_of(results), verdicts.summary(results)


def run(step: Step) -> Row:
    """A step that breaks is untrustworthy, and the next one runs."""
    print(f"\n--- {step.name}", flush=True)
    began = time.monotonic()
    try:
        exit_, says = step.run()
    except (GitError, SpecError, Untrustworthy) as error:
        exit_, says = Exit.UNTRUSTWORTHY, str(error)
    except Exception as error:
        traceback.print_exc()
        exit_, says = Exit.UNTRUSTWORTHY, f"the step itself broke: {error!r}"
    return Row(step.name, exit_, says.partition("\n")[0], time.monotonic() - began)


def main(arguments: Sequence[str] | None = None) -> Exit:
    parser = argparse.ArgumentParser("python -m evidence.gate", allow_abbrev=False, description=__doc__)
    parser.add_argument("--release", action="store_true", help="every spec, and its mutants executed")
    parser.add_argument("--base", help="the revision to compare with (default: origin/main, else main)")
    options = parser.parse_args(arguments)
    try:
        repository = Repository.around(Path.cwd())
        base = repository.base(options.base)
    except GitError as error:
        print(error)
        return Exit.UNTRUSTWORTHY
    return Gate(repository, release=options.release, base=base).pass_through()


if __name__ == "__main__":
    sys.exit(main())
