"""What a run of pytest says of itself, from its report log (pytest-reportlog): complete, or not believed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class Receipt(msgspec.Struct, frozen=True):
    """`outcomes` and the reasons of `skipped` go by pytest's node id, or by the file where a whole one was skipped.

    `problem` says why none of it can be believed; None if it can.
    """

    outcomes: dict[str, str]
    skipped: dict[str, str]
    problem: str | None = None

    @property
    def failed(self) -> list[str]:
        return [test for test, outcome in self.outcomes.items() if outcome == FAILED]

    @property
    def passed(self) -> int:
        return sum(outcome == PASSED for outcome in self.outcomes.values())

    def ran_in(self, file: str) -> int:
        """How many tests of a file passed or failed."""
        return sum(outcome != SKIPPED and test.partition("::")[0] == file for test, outcome in self.outcomes.items())

    def summary(self) -> str:
        return f"{self.passed} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"


class _Line(msgspec.Struct, frozen=True):
    """One line of the log, of whatever type: what of it is looked at."""

    type: str = msgspec.field(name="$report_type")
    nodeid: str = ""
    outcome: str = ""
    when: str = ""
    longrepr: Any = None
    wasxfail: str | None = None
    exitstatus: int | None = None


def read(log: Path, exit_status: int) -> Receipt:
    """The receipt of a run that exited so."""
    try:
        lines = list(msgspec.json.Decoder(_Line).decode_lines(log.read_bytes()))
    except (OSError, msgspec.DecodeError) as error:
        return broken(f"the report log cannot be read: {error}")
    outcomes: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for line in lines:
        match line.type:
            case "TestReport":
                outcomes[line.nodeid] = _worse(outcomes.get(line.nodeid), line)
                if line.outcome == SKIPPED:
                    skipped[line.nodeid] = reason(line.longrepr)
            case "CollectReport" if line.outcome == SKIPPED:
                skipped[line.nodeid] = reason(line.longrepr)
    problem = next(_problems(lines, outcomes, exit_status), None)
    return Receipt(outcomes, skipped, problem)


def broken(problem: str) -> Receipt:
    return Receipt({}, {}, problem)


def _worse(before: str | None, line: _Line) -> str:
    """A test is set up, called and torn down: it failed if any of these did, and passed only if the call did."""
    if FAILED in (before, line.outcome):
        return FAILED
    if line.outcome == SKIPPED or before == SKIPPED:
        return SKIPPED
    return PASSED if line.when == "call" or before == PASSED else "begun"


def _problems(lines: list[_Line], outcomes: dict[str, str], exit_status: int) -> Iterator[str]:
    finish = [line.exitstatus for line in lines if line.type == "SessionFinish"]
    if len(finish) != 1:
        yield f"the run broke off: its log has {len(finish)} ends, and pytest exited with {exit_status}"
    elif finish[0] != exit_status:
        yield f"pytest exited with {exit_status}, but its log says {finish[0]}"
    if wrong := [line.nodeid for line in lines if line.type == "CollectReport" and line.outcome == FAILED]:
        yield f"{wrong[0]} could not be collected"
    if exit_status not in (0, 1):
        yield f"pytest exited with {exit_status}"
    if not outcomes:
        yield "no test ran"
    if begun := [test for test, outcome in outcomes.items() if outcome == "begun"]:
        yield f"{begun[0]} was begun and never called"
    if expected := [line.nodeid for line in lines if line.wasxfail is not None]:
        yield f"{expected[0]} is expected to fail; a test that may fail shows nothing"
    if (FAILED in outcomes.values()) != (exit_status == 1):
        yield f"pytest exited with {exit_status}, which its tests' outcomes do not bear out"


def reason(longrepr: object) -> str:
    """pytest's `[file, line, "Skipped: why"]`."""
    text = str(longrepr[-1]) if isinstance(longrepr, list) and longrepr else str(longrepr)
    return text.removeprefix("Skipped: ")
