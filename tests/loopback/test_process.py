"""What the process takes from the system that starts it, and what it says when it cannot start."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.process import ROOT, serving

SERVE = (sys.executable, "-m", "server.cli", "serve")


@pytest.mark.skipif(not Path("/proc/self/limits").exists(), reason="only Linux shows another process's limits")
async def test_it_takes_as_many_files_as_it_may_have() -> None:
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most // 2, most))
    try:
        async with serving() as running:
            limits = Path(f"/proc/{running.process.pid}/limits").read_text()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, most))
    (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
    assert line.split()[3:5] == [str(most), str(most)]


def test_an_address_that_is_taken_is_said_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = subprocess.run([*SERVE, "--port", str(port)], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"tidegate: cannot listen on 127.0.0.1 port {port}: ")
    assert "Traceback" not in ended.stderr


def test_a_wrong_configuration_is_said_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "gate.toml"
    file.write_text("[deadlines]\ndrain = 'soon'\n")
    ended = subprocess.run([*SERVE, "--config", file], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stderr) == (2, f"{file}:2: deadlines.drain: Expected `float`, got `str`\n")
