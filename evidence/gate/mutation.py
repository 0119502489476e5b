"""The mutation run: whether the tests of each spec catch its mutants.

`python -m evidence.gate.mutation [--only TEXT] [--jobs N] [--json FILE] [--page FILE] [SPEC …]`. It works on HEAD, in
worktrees that it makes and removes, one a core, and refuses a tree that is not clean. Exits with 0, 1 (a mutant
survived that must not, or was caught that should not) or 2 (untrustworthy).

A verdict counts only if the untouched tree was green before the spec's first mutant and after its last, if exactly the
same tests ran under the mutant, in time and on loopback alone, and if nothing in the worktree differed from HEAD but
the mutated file.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import trio

from bench.report import write_report
from evidence.gate import Exit
from evidence.gate.baseline import LIMIT, judge
from evidence.gate.receipts import Receipt
from evidence.gate.repository import GitError, Repository
from evidence.gate.running import environment_of, run, run_tests
from evidence.gate.specs import Mutant, Spec, SpecError, load_named, spec_files
from evidence.gate.static import findings
from evidence.gate.verdicts import Result, SpecResult, Verdict, exit_of, merged, page, summary

LEAST_LIMIT = 120.0
TIMES_BASELINE = 10.0
"""A mutant's run may take so many times what the untouched tree took, and at least `LEAST_LIMIT` seconds."""
PREPARING = 120.0
"""Seconds for compiling a worktree, and for asking it where its modules come from."""

Jobs = Mapping[str, tuple[Spec, Sequence[Mutant]]]


class Bench:
    """One worktree, and the specs that are tried in it one after another."""

    def __init__(self, tree: Repository) -> None:
        self.tree = tree

    async def prepare(self, files: Sequence[str]) -> None:
        """Raises Untrustworthy if a run in this worktree would not run this worktree's code.

        Compiled modules are known by the hash of their source: by time and size, as is the custom, a mutant could be
        taken for what stood there before.
        """
        compiling = ["-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "."]
        finding = [
            "-c",
            _WHERE,
            *(file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in files),
        ]
        for words in (compiling, finding):
            status, said = await run(
                [sys.executable, *words], self.tree.root, environment_of(self.tree.root), PREPARING
            )
            if status != 0:
                raise Untrustworthy(said.strip() or f"python {words[1]} exited with {status}")
        origins = [Path(line) for line in said.splitlines()]
        for file, origin in zip(files, origins, strict=True):
            if not (self.tree.root / file).samefile(origin):
                raise Untrustworthy(f"a run in the worktree would take {file} from elsewhere ({origin})")

    async def try_spec(self, name: str, spec: Spec, mutants: Sequence[Mutant]) -> SpecResult:
        began = trio.current_time()
        before = await run_tests(self.tree.root, spec.tests, limit=LIMIT)
        limit = max(LEAST_LIMIT, TIMES_BASELINE * (trio.current_time() - began))
        exit_, says = judge(spec, before)
        results: list[Result] = []
        if exit_ is Exit.OK:
            for mutant in mutants:
                results.append(await self._try(spec, mutant, before, limit))
                print(f"{name:<12} {results[-1].seconds:5.1f} s  {mutant.name}: {results[-1].says()}", flush=True)
            exit_, says = judge(spec, await run_tests(self.tree.root, spec.tests, limit=LIMIT))
        if exit_ is not Exit.OK:
            print(f"{name:<12} UNTRUSTWORTHY: {says}", flush=True)
            why = f"the untouched tree: {says}"
            results = [_result(mutant, Verdict.UNTRUSTWORTHY, why=why) for mutant in mutants]
        return SpecResult(name, spec.promise, before.passed, spec.tests, results)

    async def _try(self, spec: Spec, mutant: Mutant, before: Receipt, limit: float) -> Result:
        began, place = trio.current_time(), self.tree.root / mutant.file
        try:
            place.write_text(mutant.applied_to(place.read_text(encoding="utf-8")), encoding="utf-8")
            receipt = await run_tests(self.tree.root, spec.tests, limit=limit)
            differing = self.tree.status()
        finally:
            self.tree.restore()
        seconds = trio.current_time() - began
        if (why := _doubt(mutant, receipt, before, differing, self.tree.status())) is not None:
            return _result(mutant, Verdict.UNTRUSTWORTHY, why=why, seconds=seconds)
        verdict = Verdict.CAUGHT if receipt.failed else Verdict.SURVIVED
        return _result(mutant, verdict, failed=receipt.failed, seconds=seconds)


def _doubt(
    mutant: Mutant, receipt: Receipt, before: Receipt, differing: Sequence[str], left: Sequence[str]
) -> str | None:
    """Why a mutant's run cannot be believed: `before` is the untouched tree's; `differing` is what git saw before the
    worktree was restored, and `left` afterwards."""
    if differing != [f" M {mutant.file}"]:
        return f"not the mutated file alone differed: {', '.join(differing) or 'nothing did'}"
    if left:
        return f"the worktree could not be restored: {left[0]}"
    if receipt.problem is not None:
        return receipt.problem
    if other := receipt.outcomes.keys() ^ before.outcomes.keys() or receipt.skipped.keys() ^ before.skipped.keys():
        return f"{len(other)} tests ran only with the mutant or only without: {min(other)}"
    return None


def _result(
    mutant: Mutant,
    verdict: Verdict,
    *,
    failed: Sequence[str] = (),
    why: str | None = None,
    seconds: float = 0.0,
) -> Result:
    return Result(
        mutant=mutant.name,
        kind=mutant.kind,
        file=mutant.file,
        verdict=verdict,
        failed=list(failed),
        why=why,
        survives=mutant.survives,
        seconds=round(seconds, 1),
    )


class Untrustworthy(Exception):
    """Nothing can be concluded. The message says why."""


_WHERE = "import importlib.util as u, sys\nfor name in sys.argv[1:]: print(getattr(u.find_spec(name), 'origin', None))"


async def try_all(trees: Sequence[Repository], jobs: Jobs) -> list[SpecResult]:
    """Each worktree takes the next spec when it is done with one; those with the most mutants come first. Raises
    Untrustworthy."""
    waiting = sorted(jobs, key=lambda name: len(jobs[name][1]))
    files = sorted({mutant.file for _, mutants in jobs.values() for mutant in mutants})
    results: dict[str, SpecResult] = {}

    async def work(bench: Bench) -> None:
        while waiting:
            name = waiting.pop()
            results[name] = await bench.try_spec(name, *jobs[name])

    benches = [Bench(tree) for tree in trees]
    for bench in benches:
        await bench.prepare(files)
    async with trio.open_nursery() as nursery:
        for bench in benches:
            nursery.start_soon(work, bench)
    return [results[name] for name in jobs]


def run_mutants(
    repository: Repository, *, names: Sequence[str] = (), only: str = "", jobs: int | None = None
) -> list[SpecResult]:
    """Raises Untrustworthy, SpecError, GitError."""
    if dirty := repository.status():
        raise Untrustworthy(f"the tree is not clean, and mutants are made of what is committed: {dirty[0].strip()}")
    if found := next(findings(repository.root, repository.tracked()), None):
        raise Untrustworthy(found)
    chosen: dict[str, tuple[Spec, Sequence[Mutant]]] = {}
    for name, spec in load_named(repository.root, names).items():
        if mutants := [mutant for mutant in spec.mutants if only in mutant.name]:
            chosen[name] = spec, mutants
    if not chosen:
        raise Untrustworthy(f"no mutant's name has {only!r} in it")
    count = min(jobs or os.cpu_count() or 1, len(chosen))
    with repository.locked(), repository.worktrees(count) as trees:
        return trio.run(try_all, trees, chosen)


def main(arguments: Sequence[str] | None = None) -> Exit:
    parser = argparse.ArgumentParser("python -m evidence.gate.mutation", allow_abbrev=False, description=__doc__)
    parser.add_argument("specs", nargs="*", metavar="SPEC", help="names of specs, without .toml (default: all)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only mutants whose name has this in it")
    parser.add_argument("--jobs", type=int, metavar="N", help="worktrees at a time (default: one a core)")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="where the verdicts go; of specs that are not named, what it says is kept",
    )
    parser.add_argument("--page", type=Path, metavar="FILE", help="where the table goes that is made of --json")
    options = parser.parse_args(arguments)
    if options.page is not None and options.json is None:
        parser.error("--page is made of --json; give both")
    try:
        repository = Repository.around(Path.cwd())
        commit = repository.git("rev-parse", "HEAD").strip()
        results = run_mutants(repository, names=options.specs, only=options.only, jobs=options.jobs)
    except (GitError, SpecError, Untrustworthy) as error:
        print(error)
        return Exit.UNTRUSTWORTHY
    if options.json is not None:
        date = datetime.now(UTC).isoformat(timespec="seconds")
        results = [msgspec.structs.replace(each, commit=commit, date=date) for each in results]
        names = [path.stem for path in spec_files(repository.root)]
        figures = {"specs": msgspec.to_builtins(merged(_earlier(options), results, names))}
        report = write_report("mutants", figures, options.json, module="evidence.gate.mutation")
        if options.page is not None:
            options.page.write_text(page(report), encoding="utf-8")
    print(summary(results))
    return exit_of(results)


def _earlier(options: argparse.Namespace) -> list[SpecResult]:
    """What the file says of the specs that were not asked for."""
    if not options.specs or not options.json.exists():
        return []
    report = msgspec.json.decode(options.json.read_bytes())
    return msgspec.convert(report["figures"]["specs"], list[SpecResult])


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the worktrees are removed then too
    with suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(Exit.UNTRUSTWORTHY)
