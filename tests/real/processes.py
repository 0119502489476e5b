"""A child process that says when it is ready, and whose words are kept for the day it is not.

Knows neither the gateway nor the model server.
"""

import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO

PROJECT = Path(__file__).parents[2]  # where the children's modules are found, wherever pytest was started
PATIENCE = 10.0  # seconds that a child gets to end by itself after SIGTERM


class DidNotStart(Exception):
    """The child ended, or said nothing for too long, before its ready line. Carries what it did say."""


@contextmanager
def running(command: Sequence[str], ready: re.Pattern[str], log: Path, within: float) -> Iterator[str]:
    """Yields the first group of the line that matches `ready`; the child is gone when this is left, however it is.

    Both of its outputs go to `log`. Its standard input is a pipe that nobody writes to: it ends when we do.
    Raises `DidNotStart` after `within` seconds.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command,
        cwd=PROJECT,
        stdin=pipe,
        stdout=pipe,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as child:
        assert child.stdout is not None
        told: SimpleQueue[str | None] = SimpleQueue()
        listener = threading.Thread(target=_listen, args=(child.stdout, ready, log, told))
        listener.start()
        try:
            if (word := _first(told, within)) is None:
                raise DidNotStart(f"{' '.join(command)}\n{log.read_text()}")
            yield word
        finally:
            _end(child)
            listener.join()


def _listen(lines: IO[str], ready: re.Pattern[str], log: Path, told: SimpleQueue[str | None]) -> None:
    """Reads the child to its end, so that it never blocks on a full pipe; passes on what ready lines say."""
    with log.open("w", encoding="utf-8") as kept:
        for line in lines:
            kept.write(line)
            kept.flush()
            if found := ready.search(line):
                told.put(found[1])
    told.put(None)


def _first(told: SimpleQueue[str | None], within: float) -> str | None:
    try:
        return told.get(timeout=within)
    except Empty:
        return None


def _end(child: subprocess.Popen[str]) -> None:
    child.terminate()
    try:
        child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()
