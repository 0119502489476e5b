"""The check that nothing is left behind must be able to fail: what it looks for, and that it runs after each test."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import trio

from tests.helpers import leaks

ROOT = Path(__file__).parents[2]


def test_a_socket_is_found_until_it_is_closed() -> None:
    before = leaks.held()
    with socket.socket():
        assert [left.partition(" ")[0] for left in leaks.left_behind(before, 0)] == ["descriptor"]
    assert leaks.left_behind(before, 0) == []


def test_both_ends_of_a_pipe_are_found() -> None:
    before = leaks.held()
    ends = os.pipe()
    assert len(leaks.left_behind(before, 0)) == 2
    for end in ends:
        os.close(end)
    assert leaks.left_behind(before, 0) == []


def test_a_thread_is_found_until_it_has_ended() -> None:
    before, end = leaks.held(), threading.Event()
    thread = threading.Thread(target=end.wait, name="worker")
    thread.start()
    assert leaks.left_behind(before, 0) == ["thread worker"]
    end.set()
    thread.join()
    assert leaks.left_behind(before, 0) == []


def test_a_child_process_is_found_until_it_is_waited_for() -> None:
    before = leaks.held()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert f"child process {child.pid}" in leaks.left_behind(before, 0)
        assert child.stdin is not None
        child.stdin.write(b"\n")
    assert leaks.left_behind(before, 0) == []


async def test_trios_cached_threads_are_not_counted_and_busy_ones_are() -> None:
    def work() -> None:
        busy.set()
        end.wait()

    before, busy, end = leaks.held(), threading.Event(), threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, work)
        await trio.to_thread.run_sync(busy.wait)
        assert any(left.startswith("thread") for left in leaks.left_behind(before, 0))
        end.set()
    assert not any(left.startswith("thread") for left in leaks.left_behind(before))


async def test_a_task_that_nobody_here_owns_is_found() -> None:
    before, end = leaks.tasks(), trio.Event()
    trio.lowlevel.spawn_system_task(end.wait, name="stray")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(end.wait)
        assert leaks.tasks_left(before) == ["task stray"]
        end.set()
    assert leaks.tasks_left(before) == []


LEAKY = """
import socket, trio
kept = []

async def test_socket(): kept.append(socket.socket())
async def test_task(): trio.lowlevel.spawn_system_task(trio.sleep_forever)
async def test_nothing(): pass
"""


def test_a_leaking_test_fails_and_a_clean_one_passes(tmp_path: Path) -> None:
    file = tmp_path / "test_leaky.py"
    file.write_text(LEAKY)
    command = [sys.executable, "-m", "pytest", "-q", "-c", "pyproject.toml", "-p", "tests.conftest", str(file)]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    failed = {line.partition("::")[2].partition(" ")[0] for line in told.stdout.splitlines() if "::" in line}
    assert failed == {"test_socket", "test_task"}
