"""What the gate concludes: of a baseline, of a mutant, of files in which nothing ran."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from evidence.gate import Exit
from evidence.gate.baseline import Measurement, judge, select, summary
from evidence.gate.census import census, declared
from evidence.gate.receipts import Receipt, broken
from evidence.gate.specs import ApprovedSkip, Kind, Mutant, Spec
from evidence.gate.verdicts import Result, SpecResult, Verdict, exit_of, merged, page
from evidence.gate.verdicts import summary as mutants_summary

A, B = "tests/test_a.py", "tests/test_b.py"
MUTANT = Mutant("m", Kind.DEFECT, "product.py", "x", "y")


def spec(*tests: str, passes: int = 2, skips: Sequence[ApprovedSkip] = ()) -> Spec:
    return Spec("Promised.", list(tests or (A,)), passes, [MUTANT], list(skips))


def receipt(passed: int = 0, failed: int = 0, skipped: Sequence[str] = (), file: str = A) -> Receipt:
    outcomes = {f"{file}::p{n}": "passed" for n in range(passed)} | {f"{file}::f{n}": "failed" for n in range(failed)}
    outcomes |= {f"{file}::{name}": "skipped" for name in skipped}
    return Receipt(outcomes, {f"{file}::{name}": "no ear" for name in skipped})


def approved(name: str, reason: str = "no ear", platform: str = "linux") -> ApprovedSkip:
    return ApprovedSkip(f"{A}::{name}", reason, platform)


def test_as_many_as_pinned_is_as_it_should_be() -> None:
    assert judge(spec(), receipt(2))[0] is Exit.OK


@pytest.mark.parametrize("passed", [1, 3])
def test_fewer_or_more_is_drift_in_one_sentence(passed: int) -> None:
    assert judge(spec(), receipt(passed)) == (
        Exit.WRONG,
        f"{passed} tests pass but the spec expects 2: either the suite changed or the spec is stale",
    )


def test_a_red_or_broken_baseline_is_untrustworthy() -> None:
    assert judge(spec(), receipt(2, 1)) == (
        Exit.UNTRUSTWORTHY,
        f"1 tests fail on the untouched tree: {A}::f0",
    )
    assert judge(spec(), broken("it broke")) == (Exit.UNTRUSTWORTHY, "it broke")


def test_a_skip_counts_only_if_it_is_approved_by_name_reason_and_platform() -> None:
    got = receipt(1, skipped=["s"])
    assert judge(spec(skips=[approved("s")]), got, "linux")[0] is Exit.OK
    for other in (approved("t"), approved("s", "no eye"), approved("s", platform="darwin")):
        exit_, says = judge(spec(skips=[other]), got, "linux")
        assert exit_ is Exit.UNTRUSTWORTHY
        assert f"{A}::s was skipped (no ear)" in says


def test_an_approval_for_a_test_that_is_gone_is_not_left_lying() -> None:
    exit_, says = judge(spec(skips=[approved("gone")]), receipt(2), "linux")
    assert (exit_, says) == (Exit.UNTRUSTWORTHY, f"a skip is approved for {A}::gone, which is no test")


def test_an_approved_skip_may_also_pass() -> None:
    assert judge(spec(skips=[approved("p1")]), receipt(2), "linux")[0] is Exit.OK


SPECS = {"a": spec(A), "b": spec(B), "both": spec(A, B)}


@pytest.mark.parametrize(
    ("changed", "selected"),
    [
        (set(), ["a", "b", "both"]),
        ({A}, ["a", "both"]),
        ({"evidence/mutants/b.toml"}, ["b"]),
        ({"README.md", "tests/test_a.pyc"}, []),
        ({"evidence/mutants/a.toml", B}, ["a", "b", "both"]),
    ],
)
def test_a_spec_is_touched_by_its_own_file_and_by_its_tests(changed: set[str], selected: list[str]) -> None:
    assert select(SPECS, changed) == selected


def test_the_baseline_is_summed_up_in_a_line() -> None:
    measured = [Measurement("a", exit_, "") for exit_ in (Exit.OK, Exit.OK, Exit.WRONG, Exit.UNTRUSTWORTHY)]
    assert summary(measured) == "4 specs measured, 1 drift, 1 untrustworthy"
    assert summary([]) == "no spec touched by the change"


def result(verdict: Verdict, survives: str | None = None) -> Result:
    failed = [f"{A}::test_x"] if verdict is Verdict.CAUGHT else []
    return Result("m", Kind.DEFECT, "product.py", verdict, failed, "why" if not failed else None, survives)


@pytest.mark.parametrize(
    ("verdict", "survives", "exit_", "says"),
    [
        (Verdict.CAUGHT, None, Exit.OK, "caught by 1"),
        (Verdict.CAUGHT, "Nobody looks.", Exit.WRONG, f"caught, though the spec says that it survives: by {A}::test_x"),
        (Verdict.SURVIVED, None, Exit.WRONG, "SURVIVED: no test noticed"),
        (Verdict.SURVIVED, "Nobody looks.", Exit.OK, "survived, as the spec says: Nobody looks."),
        (Verdict.UNTRUSTWORTHY, None, Exit.UNTRUSTWORTHY, "UNTRUSTWORTHY: why"),
        (Verdict.UNTRUSTWORTHY, "Nobody looks.", Exit.UNTRUSTWORTHY, "UNTRUSTWORTHY: why"),
    ],
)
def test_a_verdict_is_right_or_wrong_by_what_the_spec_says(
    verdict: Verdict, survives: str | None, exit_: Exit, says: str
) -> None:
    got = result(verdict, survives)
    assert (got.exit, got.says()) == (exit_, says)


def specs(*results: Result) -> list[SpecResult]:
    return [SpecResult("limit", "Promised.", 2, [A], list(results))]


def test_the_worst_verdict_decides_and_none_at_all_is_untrustworthy() -> None:
    ok, wrong = result(Verdict.CAUGHT), result(Verdict.SURVIVED)
    assert exit_of(specs(ok, ok)) is Exit.OK
    assert exit_of(specs(ok, wrong)) is Exit.WRONG
    assert exit_of(specs(wrong, result(Verdict.UNTRUSTWORTHY), ok)) is Exit.UNTRUSTWORTHY
    assert exit_of([]) is Exit.UNTRUSTWORTHY
    assert exit_of(specs()) is Exit.UNTRUSTWORTHY


def test_mutants_are_counted_by_verdict() -> None:
    results = specs(result(Verdict.CAUGHT), result(Verdict.SURVIVED), result(Verdict.SURVIVED, "Nobody looks."))
    assert mutants_summary(results) == ("1 specs, 3 mutants: 1 caught, 2 survived (1 as documented), 0 untrustworthy")


def test_the_page_has_a_line_a_mutant_and_breaks_no_table() -> None:
    odd = Result("a | b", Kind.LOST, "product.py", Verdict.CAUGHT, [f"{A}::test_x[a|b]"])
    builtin = {
        "spec": "limit",
        "promise": "Promised.",
        "passes": 2,
        "tests": [A],
        "commit": "c" * 40,
        "date": "2026-12-01",
        "mutants": [
            {"mutant": odd.mutant, "kind": "lost", "file": odd.file, "verdict": "caught", "failed": odd.failed}
        ],
    }
    machine = {"cpu": "a cpu", "cores": 2, "python": "3.11.7"}
    text = page({"date": "2026-12-01", "machine": machine, "figures": {"specs": [builtin]}})
    assert "| a \\| b | lost | `product.py` | caught by 1 | `test_x[a\\|b]` |" in text.splitlines()
    assert "2 cores of a cpu" in text
    assert "2026-12-01, commit cccccccccccc" in text


def test_what_was_measured_now_replaces_what_was_before_and_what_is_gone_is_left_out() -> None:
    old = [SpecResult(name, "old", 1, [A], []) for name in ("a", "b", "gone")]
    new = [SpecResult("b", "new", 1, [A], []), SpecResult("c", "new", 1, [A], [])]
    both = merged(old, new, ["a", "b", "c", "d"])
    assert [(each.spec, each.promise) for each in both] == [("a", "old"), ("b", "new"), ("c", "new")]


FILES = {A, B, "tests/conftest.py", "engine/a.py"}


def test_a_file_in_which_nothing_ran_is_wrong_unless_it_was_declared() -> None:
    exit_, says, line = census(FILES, receipt(1), ())
    assert (exit_, says) == (Exit.WRONG, [f"{B}: nothing ran (it was not collected)"])
    assert line == "2 test files, 1 inert, 1 of them not declared"
    assert census(FILES, receipt(1), {B}) == (Exit.OK, [], "2 test files, 1 inert, 0 of them not declared")


def test_a_file_that_only_skips_is_inert_and_one_that_only_fails_is_not() -> None:
    skipping = receipt(skipped=["s"])
    assert census({A}, skipping, ())[:2] == (Exit.WRONG, [f"{A}: nothing ran (no ear)"])
    assert census({A}, receipt(0, 1), ())[0] is Exit.OK


def test_what_is_declared_and_ran_is_said_and_is_no_fault() -> None:
    assert census({A}, receipt(1), {A, "tests/test_x.py"})[:2] == (
        Exit.OK,
        [f"{A} is declared inert, and is not", "tests/test_x.py is declared inert, and is not"],
    )


@pytest.mark.parametrize("suite", [None, broken("it broke")])
def test_without_a_whole_run_nothing_is_known(suite: Receipt | None) -> None:
    assert census({A}, suite, {A})[0] is Exit.UNTRUSTWORTHY


def test_declarations_are_lines_and_there_is_no_default() -> None:
    assert declared({}) == frozenset()
    assert declared({"TIDEGATE_INERT": f"{A}\n\n {B} \n"}) == {A, B}
