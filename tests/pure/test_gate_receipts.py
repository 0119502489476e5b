"""What a run of pytest says of itself, and when it is not believed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evidence.gate.receipts import Receipt, read

Line = dict[str, object]


def report(test: str, outcome: str = "passed", when: str = "call", **more: object) -> Line:
    return {
        "$report_type": "TestReport",
        "nodeid": f"tests/test_a.py::{test}",
        "outcome": outcome,
        "when": when,
        **more,
    }


def passing(test: str) -> list[Line]:
    return [report(test, when=when) for when in ("setup", "call", "teardown")]


def collected(file: str, outcome: str = "passed", **more: object) -> Line:
    return {"$report_type": "CollectReport", "nodeid": file, "outcome": outcome, **more}


def end(status: int) -> Line:
    return {"$report_type": "SessionFinish", "exitstatus": status}


def receipt(folder: Path, *lines: Line, status: int = 0) -> Receipt:
    log = folder / "log"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read(log, status)


def test_a_whole_run_is_believed(tmp_path: Path) -> None:
    skipped = report("c", "skipped", "setup", longrepr=["tests/test_a.py", 3, "Skipped: no ear"])
    lines = [*passing("a"), report("b", when="setup"), report("b", "failed"), report("b", when="teardown"), skipped]
    got = receipt(tmp_path, collected("tests/test_a.py"), *lines, report("c", when="teardown"), end(1), status=1)
    assert got.problem is None
    assert (got.passed, got.failed) == (1, ["tests/test_a.py::b"])
    assert got.skipped == {"tests/test_a.py::c": "no ear"}
    assert (got.ran_in("tests/test_a.py"), got.ran_in("tests/test_b.py")) == (2, 0)
    assert got.summary() == "1 passed, 1 failed, 1 skipped"


@pytest.mark.parametrize("when", ["setup", "call", "teardown"])
def test_a_test_that_fails_at_any_moment_has_failed(when: str, tmp_path: Path) -> None:
    lines = [report("a", "failed" if each == when else "passed", each) for each in ("setup", "call", "teardown")]
    assert receipt(tmp_path, *lines, end(1), status=1).failed == ["tests/test_a.py::a"]


def test_a_whole_file_that_is_skipped_is_named(tmp_path: Path) -> None:
    whole = collected("tests/test_b.py", "skipped", longrepr=["tests/test_b.py", 1, "Skipped: no ear"])
    got = receipt(tmp_path, whole, *passing("a"), end(0))
    assert got.skipped == {"tests/test_b.py": "no ear"}


DOUBTS: dict[str, tuple[list[Line], int, str]] = {
    "no end": (passing("a"), 0, "the run broke off: its log has 0 ends, and pytest exited with 0"),
    "two ends": ([*passing("a"), end(0), end(0)], 0, "the run broke off: its log has 2 ends"),
    "another end": ([*passing("a"), end(0)], 1, "pytest exited with 1, but its log says 0"),
    "a signal": ([*passing("a")], -9, "pytest exited with -9"),
    "interrupted": ([*passing("a"), end(2)], 2, "pytest exited with 2"),
    "wrong use": ([end(4)], 4, "pytest exited with 4"),
    "nothing": ([end(5)], 5, "pytest exited with 5"),
    "nothing, and green": ([end(0)], 0, "no test ran"),
    "a file that broke": (
        [collected("tests/test_b.py", "failed"), *passing("a"), end(1)],
        1,
        "tests/test_b.py could not be collected",
    ),
    "a test that was only begun": (
        [report("a", when="setup"), report("a", when="teardown"), end(0)],
        0,
        "tests/test_a.py::a was begun and never called",
    ),
    "red and green": ([*passing("a"), report("b", "failed"), end(0)], 0, "which its tests' outcomes do not bear out"),
    "green and red": ([*passing("a"), end(1)], 1, "which its tests' outcomes do not bear out"),
    "an expected failure": (
        [report("a", "skipped", wasxfail="some day"), *passing("b"), end(0)],
        0,
        "tests/test_a.py::a is expected to fail",
    ),
}


@pytest.mark.parametrize("name", DOUBTS)
def test_what_is_not_believed(name: str, tmp_path: Path) -> None:
    lines, status, problem = DOUBTS[name]
    assert problem in str(receipt(tmp_path, *lines, status=status).problem)


def test_a_log_that_is_cut_or_missing_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(json.dumps(end(0)) + '\n{"$report_type": "Te')
    assert "the report log cannot be read" in str(read(tmp_path / "log", 0).problem)
    assert "the report log cannot be read" in str(read(tmp_path / "none", 0).problem)
