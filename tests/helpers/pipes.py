"""Pipes of the operating system."""

from __future__ import annotations

import os
from contextlib import suppress


def fill(writing: int) -> int:
    """Fill a pipe; the bytes it took."""
    os.set_blocking(writing, False)
    taken = 0
    with suppress(BlockingIOError):
        while True:
            taken += os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    return taken


def written(reading: int, writing: int) -> list[bytes]:
    """The lines in a pipe, which is closed; each has its end, and none has another inside."""
    os.close(writing)
    data = os.read(reading, 1 << 16)
    os.close(reading)
    assert data.endswith(b"\n")
    assert b"\r" not in data
    return data.split(b"\n")[:-1]
