"""The gateway under test: one process for each entry, its output kept, its memory and CPU read from /proc."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

import trio

from tests.cases.settings import Settings

ROOT = Path(__file__).parents[2]
DEFAULT_COMMAND = f"{shlex.quote(sys.executable)} -m server.cli serve --config {{config}}"
START_PATIENCE_S = 20.0
STOP_PATIENCE_S = 2.0
_LISTENING = re.compile(rb"listening on http://[^\s:]+:(\d+)")
_MIB = 1024


class GatewayDidNotStart(Exception):
    """Carries what the process wrote before it gave up."""


@dataclass(frozen=True)
class Usage:
    """Resident memory now and at its highest since the last mark, and CPU time so far."""

    rss_mib: float
    peak_rss_mib: float
    cpu_ms: float


class Gateway:
    """A running gateway. `log` is everything it wrote, journal included."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._output = bytearray()
        self._exited_at: float | None = None
        self._listening = trio.Event()
        self._closed_outputs = 0
        self.exited = trio.Event()
        self.port = 0

    @property
    def log(self) -> str:
        return self._output.decode("utf-8", "replace")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    @property
    def exited_at(self) -> float | None:
        return self._exited_at

    def send_signal(self, name: str) -> None:
        if self.alive:
            self._process.send_signal(signal.Signals[name])

    def usage(self) -> Usage:
        """Only of a living process. From here on the peak is counted anew (`man 5 proc`, clear_refs)."""
        status = (self._proc / "status").read_text()
        fields = (self._proc / "stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        rss, peak = (int(re.findall(rf"{name}:\s+(\d+)", status)[0]) / _MIB for name in ("VmRSS", "VmHWM"))
        (self._proc / "clear_refs").write_text("5")
        return Usage(rss, peak, ticks * 1000 / os.sysconf("SC_CLK_TCK"))

    @property
    def _proc(self) -> Path:
        return Path("/proc") / str(self._process.pid)

    async def stop(self) -> None:
        """Ask for an orderly end, then insist; afterwards the log is whole."""
        self.send_signal("SIGTERM")
        with trio.move_on_after(STOP_PATIENCE_S):
            await self.exited.wait()
        self.send_signal("SIGKILL")
        await self.exited.wait()

    async def run(self) -> None:
        """Keep its output until it ends."""
        async with trio.open_nursery() as nursery:
            assert self._process.stdout
            assert self._process.stderr
            nursery.start_soon(self._keep_output, self._process.stdout)
            nursery.start_soon(self._keep_output, self._process.stderr)
            await self._process.wait()
            self._exited_at = trio.current_time()
        self.exited.set()
        self._listening.set()

    async def _keep_output(self, pipe: trio.abc.ReceiveStream) -> None:
        async for data in pipe:
            self._output += data
            found = _LISTENING.search(self._output) if not self.port else None
            if found:
                self.port = int(found[1])
                self._listening.set()

    async def until_listening(self) -> None:
        with trio.move_on_after(START_PATIENCE_S):
            await self._listening.wait()
        if not self.port:
            raise GatewayDidNotStart(self.log.strip() or "it wrote nothing")


@asynccontextmanager
async def open_gateway(command: str, settings: Settings, upstream_port: int) -> AsyncIterator[Gateway]:
    """Start the command, in which {config} and {upstream} are filled in, and end it whatever happens."""
    with tempfile.TemporaryDirectory(prefix="tidegate-case-") as folder:
        config = Path(folder) / "gateway.toml"
        config.write_text(settings.toml)
        argv = [word.format(config=config, upstream=f"127.0.0.1:{upstream_port}") for word in shlex.split(command)]
        environment = {**os.environ, **settings.environment, "PYTHONUNBUFFERED": "1"}
        process = await trio.lowlevel.open_process(
            argv, stdin=None, stdout=PIPE, stderr=PIPE, cwd=ROOT, env=environment
        )
        try:
            async with trio.open_nursery() as nursery:
                gateway = Gateway(process)
                nursery.start_soon(gateway.run)
                await gateway.until_listening()
                yield gateway
                await gateway.stop()
        finally:
            process.kill()
            with trio.CancelScope(shield=True, deadline=trio.current_time() + STOP_PATIENCE_S):
                await process.wait()
