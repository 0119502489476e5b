"""An upstream that never pauses: whoever reads it must pass the scheduler, or one stream stops all the others."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, lockstep_stream_pair

from engine.wire.transport import TransportBroken
from tests.helpers import chat
from tests.helpers.farend import LockstepPool, call
from tests.helpers.lockstep import LockstepTransport

PIECES = 1000
"""Reads that are there at once; after them the connection is lost, so that a reader that never pauses still ends."""


class Torrent(LockstepTransport):
    """Has its next bytes always at hand, as a socket has that is written to faster than it is read."""

    def __init__(self, *first: bytes) -> None:
        super().__init__(lockstep_stream_pair()[0])
        self._pieces = iter([chat.HEAD, *map(chat.chunk, first), *[chat.chunk(chat.COMMENT)] * PIECES])

    def try_send(self, data: memoryview) -> int:
        return len(data)

    def try_receive(self) -> bytes:
        piece = next(self._pieces, None)
        if piece is None:
            raise TransportBroken("the test's bytes are at their end")
        return piece

    async def receive(self) -> bytes:
        await trio.lowlevel.checkpoint()
        return self.try_receive()


class TorrentPool(LockstepPool):
    def __init__(self, *first: bytes) -> None:
        super().__init__()
        self._first = first

    async def _open_transport(self) -> LockstepTransport:
        return Torrent(*self._first)


@pytest.mark.parametrize("first", [[chat.text("a")], [chat.text("a"), chat.STOP]], ids=["in the middle", "after it"])
async def test_comments_without_a_pause_starve_nobody(first: list[bytes], autojump_clock: MockClock) -> None:
    async with call(TorrentPool(*first)) as source:
        await source.receive()
        with trio.CancelScope() as turn:
            turn.cancel(reason="the first pass through the scheduler shows it")
            await source.receive()
        assert turn.cancelled_caught


async def test_comments_before_the_first_event_starve_nobody(autojump_clock: MockClock) -> None:
    passes = 0

    async def another() -> None:
        nonlocal passes
        while True:
            await trio.lowlevel.checkpoint()
            passes += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(another)
        with pytest.raises(Exception, match="broke off"):
            async with call(TorrentPool()):
                pass
        nursery.cancel_scope.cancel()
    assert passes > PIECES / 2
