"""A place where a fake waits until the test lets it go on: how a test forces an order."""

from __future__ import annotations

import trio


class Gate:
    """Closed until `open`. It counts who stands before it, and who was turned away by a cancellation."""

    def __init__(self) -> None:
        self._opened = trio.Event()
        self._reached = trio.Event()
        self.waiting = 0
        self.cancelled = 0

    async def wait(self) -> None:
        self.waiting += 1
        self._reached.set()
        try:
            await self._opened.wait()
        except trio.Cancelled:
            self.cancelled += 1
            raise
        finally:
            self.waiting -= 1

    def open(self) -> None:
        self._opened.set()

    async def reached(self) -> None:
        """Wait until somebody has come to the gate."""
        await self._reached.wait()
