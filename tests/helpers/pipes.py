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
