"""What came of each mutant, as values: what is written to the raw file, and the page that is made of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from evidence.gate import Exit
from evidence.gate.specs import Kind


class Verdict(StrEnum):
    CAUGHT = "caught"
    SURVIVED = "survived"
    UNTRUSTWORTHY = "untrustworthy"


class Result(msgspec.Struct, frozen=True):
    """One mutant. `failed` are the tests that caught it, `why` is said of a verdict that is not to be trusted, and
    `survives` is the spec's own reason for a survivor that is expected."""

    mutant: str
    kind: Kind
    file: str
    verdict: Verdict
    failed: list[str] = []
    why: str | None = None
    survives: str | None = None
    seconds: float = 0.0

    @property
    def exit(self) -> Exit:
        if self.verdict is Verdict.UNTRUSTWORTHY:
            return Exit.UNTRUSTWORTHY
        return Exit.OK if (self.verdict is Verdict.SURVIVED) == (self.survives is not None) else Exit.WRONG

    def says(self) -> str:
        match self.verdict:
            case Verdict.CAUGHT if self.survives is not None:
                return f"caught, though the spec says that it survives: by {self.failed[0]}"
            case Verdict.CAUGHT:
                return f"caught by {len(self.failed)}"
            case Verdict.SURVIVED if self.survives is not None:
                return f"survived, as the spec says: {self.survives}"
            case Verdict.SURVIVED:
                return "SURVIVED: no test noticed"
            case Verdict.UNTRUSTWORTHY:
                return f"UNTRUSTWORTHY: {self.why}"


class SpecResult(msgspec.Struct, frozen=True):
    """One spec: its promise, the tests that passed on the untouched tree, its mutants, and what was measured when."""

    spec: str
    promise: str
    passes: int
    tests: list[str]
    mutants: list[Result]
    commit: str = ""
    date: str = ""


def merged(old: Sequence[SpecResult], new: Sequence[SpecResult], names: Sequence[str]) -> list[SpecResult]:
    """The specs of these names: as they were measured now, or else as before."""
    known = {each.spec: each for each in (*old, *new)}
    return [known[name] for name in names if name in known]


def exit_of(results: Sequence[SpecResult]) -> Exit:
    return max((each.exit for spec in results for each in spec.mutants), default=Exit.UNTRUSTWORTHY)


def summary(results: Sequence[SpecResult]) -> str:
    mutants = [each for spec in results for each in spec.mutants]
    count = Counter(each.verdict for each in mutants)
    expected = sum(each.verdict is Verdict.SURVIVED and each.exit is Exit.OK for each in mutants)
    return (
        f"{len(results)} specs, {len(mutants)} mutants: {count[Verdict.CAUGHT]} caught, "
        f"{count[Verdict.SURVIVED]} survived ({expected} as documented), {count[Verdict.UNTRUSTWORTHY]} untrustworthy"
    )


def page(report: Mapping[str, Any]) -> str:
    """The table in Markdown, of what `bench.report` wrote or read."""
    results = msgspec.convert(report["figures"]["specs"], list[SpecResult])
    machine = report["machine"]
    lines = [
        "# Mutants",
        "",
        "Each line is a wrong edit of the product that somebody could have made, and what the tests behind the promise",
        "said of it. Made by `make mutants` from [mutants.json](../figures/mutants.json), not by hand.",
        "",
        f"{machine['cores']} cores of {machine['cpu']}, Python {machine['python']}: **{summary(results)}.**",
    ]
    for spec in results:
        files = ", ".join(f"`{test}`" for test in spec.tests)
        lines += ["", f"## {spec.spec}", spec.promise, ""]
        lines += [f"{spec.passes} tests in {files}; {spec.date}, commit {spec.commit[:12]}", ""]
        lines += ["| mutant | kind | in | verdict | by, among others |", "| --- | --- | --- | --- | --- |"]
        lines += [
            f"| {_cell(each.mutant)} | {each.kind} | `{each.file}` | {_cell(each.says())} | {_first(each.failed)} |"
            for each in spec.mutants
        ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _first(failed: Sequence[str]) -> str:
    return f"`{_cell(failed[0].partition('::')[2])}`" if failed else ""
