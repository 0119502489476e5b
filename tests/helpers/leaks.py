"""What a test leaves behind: descriptors of sockets and pipes, threads, child processes, tasks. Knows no test."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import trio

PATIENCE = 0.5
"""Seconds that what is ending anyway (a thread that was told to) may take; nothing waits that has ended."""
_CACHED = "Trio thread "
"""trio's idle worker threads; while one works, it has the name of its work."""


class Held(NamedTuple):
    """What the process holds. Two of them compare: what is in the later one alone was left behind."""

    descriptors: frozenset[str]
    threads: frozenset[threading.Thread]
    children: frozenset[int]

    def beyond(self, before: Held) -> list[str]:
        """What was not held before, in words."""
        left = [f"descriptor {each}" for each in sorted(self.descriptors - before.descriptors)]
        left += [f"thread {each.name}" for each in self.threads - before.threads]
        return left + [f"child process {each}" for each in sorted(self.children - before.children)]


def held() -> Held:
    threads = frozenset(each for each in threading.enumerate() if not each.name.startswith(_CACHED))
    return Held(frozenset(_descriptors()), threads, frozenset(_children()))


def left_behind(before: Held, patience: float = PATIENCE) -> list[str]:
    """What is held now and was not then; empty if nothing is. Looks once more before it complains.

    Garbage is collected only then, since that costs more than most tests: a socket that a cycle kept is closed by
    it, and the ResourceWarning of that fails the test as well.
    """
    if not held().beyond(before):
        return []
    gc.collect()
    due = time.monotonic() + patience
    while (left := held().beyond(before)) and time.monotonic() < due:
        time.sleep(0.01)
    return left


def _descriptors() -> Iterator[str]:
    """`3 -> socket:[1234]`: the number in brackets is unique while the socket lives."""
    for entry in Path("/proc/self/fd").glob("*"):
        try:
            target = str(entry.readlink())
        except OSError:  # the descriptor of this very listing
            continue
        if target.startswith(("socket:", "pipe:")):
            yield f"{entry.name} -> {target}"


def _children() -> Iterator[int]:
    for listing in Path("/proc/self/task").glob("*/children"):
        try:
            yield from map(int, listing.read_text().split())
        except OSError:  # a thread that has just ended
            continue


def tasks() -> set[trio.lowlevel.Task]:
    """Every task of this run, trio's own included."""
    root = trio.lowlevel.current_root_task()
    return set(_family(root)) if root is not None else set()


def tasks_left(before: set[trio.lowlevel.Task]) -> list[str]:
    """Tasks that were not there before, in words. What the calling task's own nurseries hold is still owned by it:
    whoever opened them waits for their end."""
    me = trio.lowlevel.current_task()
    return sorted(f"task {each.name}" for each in tasks() - before - set(_family(me)))


def _family(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    yield task
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _family(child)
