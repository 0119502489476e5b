"""The case runner must be able to fail: it is run against relays that are wrong on purpose."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.cases import plan
from tests.cases.run import main
from tests.cases.verdict import Verdict, judge

CASES = Path(__file__).parents[1] / "cases"


def relay(fault: str) -> str:
    return f"{shlex.quote(sys.executable)} -m tests.cases.faulty_relay {{upstream}} --fault {fault}"


async def verdict_on(case: str, fault: str) -> Verdict:
    (file,) = CASES.glob(f"{case}-*.json")
    return await judge(plan.load_file(file)[0], relay(fault))


async def test_a_relay_that_cancels_passes_the_case_of_the_client_that_leaves() -> None:
    assert (await verdict_on("108", "none")).has_passed


async def test_a_relay_that_never_cancels_fails_it() -> None:
    faults = (await verdict_on("108", "never-cancels")).faults
    assert any(fault.startswith("The gateway closes the upstream connection") for fault in faults)


async def test_a_relay_that_ends_a_cut_stream_politely_fails_the_case_of_the_cut() -> None:
    faults = (await verdict_on("059", "polite")).faults
    assert any(fault.startswith("No finish_reason reaches the client.") for fault in faults)
    assert any('"error"' in fault for fault in faults)


async def test_a_gateway_that_does_not_start_is_a_failure_and_not_a_pass() -> None:
    (file,) = CASES.glob("059-*.json")
    verdict = await judge(plan.load_file(file)[0], f"{shlex.quote(sys.executable)} -c 'exit(\"no luck\")'")
    assert len(verdict.faults) == 1
    assert "no luck" in verdict.faults[0]


def test_the_last_line_counts_and_the_exit_code_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("053-in-band-error-after-content", "059-connection-cut-mid-stream", "147-grpc-trailers-only-error"):
        (tmp_path / f"{name}.json").write_bytes((CASES / f"{name}.json").read_bytes())
    arguments = ["--cases", str(tmp_path), "--gateway-command", relay("none")]
    assert main(arguments) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 1 failed, 1 not run"
    assert main([*arguments, "--only", "053"]) == 0
