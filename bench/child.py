"""A server under measurement as a child process: started, waited for, read, and ended whatever happens."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.loop import Loop

START_SECONDS = 15.0
STOP_SECONDS = 10.0
LOOK_AGAIN = 0.02  # seconds


@dataclass(frozen=True)
class Child:
    """A running process and where its output goes: files, as nobody drains a pipe during a load."""

    process: subprocess.Popen[bytes]
    stdout: Path
    stderr: Path

    def said(self) -> str:
        return self.stderr.read_text(errors="replace")

    def wait_for(self, mark: str) -> str:
        """The rest of the first line of stderr that has `mark`; RuntimeError with what was said instead."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            for line in self.said().splitlines(keepends=True):
                if mark in line and line.endswith("\n"):
                    return line.partition(mark)[2].strip()
            if self.process.poll() is not None:
                break
            time.sleep(LOOK_AGAIN)
        raise RuntimeError(f"{self.process.args!r} did not say {mark!r} but:\n{self.said()[-2000:]}")


class Exit:
    """Notes when a process is gone, as an event of the loop: `at` is a `time.perf_counter`."""

    def __init__(self, loop: Loop, process: subprocess.Popen[bytes]) -> None:
        self.at: float | None = None
        self._watch = os.pidfd_open(process.pid)
        loop.watch(self._watch, self._gone)
        self._loop = loop

    def _gone(self, _mask: int) -> None:
        self.at = time.perf_counter()
        self._loop.forget(self._watch)
        os.close(self._watch)


@contextmanager
def running(command: list[str], *, env: dict[str, str] | None = None) -> Iterator[Child]:
    """Ended with SIGTERM when left, and with SIGKILL if that does not help."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        stdout, stderr = Path(folder, "stdout"), Path(folder, "stderr")
        with stdout.open("wb") as out, stderr.open("wb") as err:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env)
        try:
            yield Child(process, stdout, stderr)
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end_children_when_told_to_stop() -> None:
    """SIGTERM unwinds like Ctrl-C, so that `running` ends what it started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
