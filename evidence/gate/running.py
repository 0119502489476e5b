"""Runs pytest in a process group of its own: bounded in time, on loopback alone, and gone afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import trio

from evidence.gate.receipts import Receipt, broken, read

PRELOAD = Path(__file__).with_name("preload")
TEST_SECONDS = 20
"""A single test may take this long; then it has hung, and failed. The slowest of a spec takes about three."""
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")
"""What a run sees of the environment. Whatever else is set here could change what tests do."""
ENDS_WITHIN = 5.0
"""Seconds for the process to be gone once it was killed."""


async def run_tests(root: Path, tests: Sequence[str], *, limit: float) -> Receipt:
    """Run these test files in a checkout, at most `limit` seconds. Each run decides as the last one did: the seed of
    hypothesis is fixed, and what it found before is not kept."""
    with tempfile.TemporaryDirectory(prefix="tidegate-run-") as folder:
        log, denied = Path(folder, "log"), Path(folder, "denied")
        command = [sys.executable, "-m", "pytest", "-q", "--report-log", str(log), f"--timeout={TEST_SECONDS}"]
        command += ["--hypothesis-seed=0", "-p", "no:cacheprovider", *tests]
        environment = environment_of(root) | {
            "PYTHONPATH": os.pathsep.join((str(PRELOAD), str(root))),
            "TIDEGATE_GATE_DENIED": str(denied),
            "TMPDIR": folder,
            "HYPOTHESIS_STORAGE_DIRECTORY": str(Path(folder, "hypothesis")),
        }
        status, output = await run(command, root, environment, limit)
        if status is None:
            return broken(f"the run took longer than {limit:.0f} s")
        if denied.exists():
            return broken(f"a process looked beyond loopback: {denied.read_text(encoding='utf-8').splitlines()[0]}")
        receipt = read(log, status)
        if receipt.problem and not receipt.outcomes and (last := output.strip().splitlines()):
            return broken(f"{receipt.problem} ({last[-1]})")
        return receipt


def environment_of(root: Path) -> dict[str, str]:
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ} | {"PYTHONPATH": str(root)}


async def run(
    command: Sequence[str], root: Path, environment: Mapping[str, str], limit: float
) -> tuple[int | None, str]:
    """The exit status, None if the time was up; and what was said on both channels. Nothing of the group is left."""
    with tempfile.TemporaryFile() as output:
        process = await trio.lowlevel.open_process(
            list(command),
            cwd=root,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output.fileno(),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            with trio.move_on_after(limit) as patience:
                await process.wait()
        finally:
            _kill_group(process.pid)
            with trio.move_on_after(ENDS_WITHIN, shield=True):
                await process.wait()
        output.seek(0)
        said = output.read().decode("utf-8", "replace")
    return (None if patience.cancelled_caught else process.returncode), said


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
