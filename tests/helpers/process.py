"""The gateway as the process that an operator starts: its port, its journal on stdout, and how it exits."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import trio

from tests.helpers.gateway import Client, connected_to

ROOT = Path(__file__).parents[2]
STARTS = 15.0
"""Seconds."""
LATEST = 10.0
"""Seconds for a line of the journal: one that never comes fails its test, and does not hang it."""
_LISTENING = re.compile(rb"listening on http://127\.0\.0\.1:(\d+)")


class Process:
    """A gateway that has said where it listens."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.port = 0
        self.log = bytearray()
        self._told, self._telling = trio.open_memory_channel[dict[str, Any]](math.inf)

    def signal(self, number: int = signal.SIGTERM) -> float:
        """Send it; when, on the test's clock."""
        self.process.send_signal(number)
        return trio.current_time()

    async def exited(self) -> int:
        """Wait for its end; the exit status."""
        return await self.process.wait()

    async def record(self) -> dict[str, Any]:
        """The next line of the journal."""
        with trio.fail_after(LATEST):
            return await self._telling.receive()

    @asynccontextmanager
    async def client(self, *, receive_buffer: int | None = None) -> AsyncIterator[Client]:
        async with connected_to(self.port, receive_buffer=receive_buffer) as client:
            yield client

    async def read_journal(self) -> None:
        assert self.process.stdout is not None
        lines = bytearray()
        async for data in self.process.stdout:
            lines += data
            *whole, rest = lines.split(b"\n")
            lines = bytearray(rest)
            for line in whole:
                self._told.send_nowait(json.loads(line))
        self._told.close()

    async def read_log(self, listening: trio.Event) -> None:
        assert self.process.stderr is not None
        async for data in self.process.stderr:
            self.log += data
            if not self.port and (found := _LISTENING.search(self.log)):
                self.port = int(found[1])
                listening.set()
        listening.set()


@asynccontextmanager
async def serving(*options: str, environment: Mapping[str, str] | None = None) -> AsyncIterator[Process]:
    """Start it with these options of `serve`; whatever happens, it is gone afterwards."""
    command = [sys.executable, "-m", "server.cli", "serve", "--port", "0", *options]
    process = await trio.lowlevel.open_process(
        command, stdin=None, stdout=PIPE, stderr=PIPE, cwd=ROOT, env={**os.environ, **(environment or {})}
    )
    running, listening = Process(process), trio.Event()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(running.read_journal)
            nursery.start_soon(running.read_log, listening)
            with trio.fail_after(STARTS):
                await listening.wait()
            assert running.port, running.log.decode()
            yield running
            process.kill()  # if it has not exited; then its pipes end, and with them the readers
    finally:
        await _gone(process)  # noqa: ASYNC102 — it shields itself


async def _gone(process: trio.Process) -> None:
    with trio.move_on_after(STARTS, shield=True):
        process.kill()
        await process.wait()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            await pipe.aclose()


def simulated(*settings: str) -> list[str]:
    """Options: nothing but the simulated upstream, and these settings."""
    return [part for setting in settings for part in ("--set", setting)]
