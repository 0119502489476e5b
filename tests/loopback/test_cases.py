"""Every case of `tests/cases`, against the real gateway; what cannot be played yet is skipped with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases import plan
from tests.cases.capabilities import why_not
from tests.cases.gateway import DEFAULT_COMMAND
from tests.cases.verdict import judge

ENTRIES = plan.load(Path(__file__).parents[1] / "cases")


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
async def test_the_case_holds(entry: plan.Entry) -> None:
    reason = why_not(entry)
    if reason:
        pytest.skip(reason)
    verdict = await judge(entry, DEFAULT_COMMAND)
    if verdict.faults:
        pytest.fail("\n".join(verdict.faults), pytrace=False)
