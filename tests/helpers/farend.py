"""The upstream's end of a pool's connections, on lockstep streams: the test itself is the upstream."""

from __future__ import annotations

import math
from contextlib import suppress
from urllib.parse import urlsplit

import trio
from trio.testing import lockstep_stream_pair

from engine.deadlines import Deadlines
from engine.dialects import chat as dialect
from engine.dialects.chat import faults, whole
from engine.events import Burst
from engine.turn import Upstream
from engine.upstreams.http import Dialect, HttpCall, HttpUpstream
from engine.wire.pool import Pool
from tests.helpers import chat
from tests.helpers.gates import Gate
from tests.helpers.http import END_OF_HEAD
from tests.helpers.lockstep import LockstepTransport, close_now

DEADLINES = Deadlines()


class FarEnd:
    """One connection as the upstream has it; `near` is the gateway's end, which keeps how it was ended."""

    def __init__(self, stream: trio.StapledStream[trio.abc.SendStream, trio.abc.ReceiveStream]) -> None:
        self._stream = stream
        self._data = bytearray()
        self.near: LockstepTransport

    async def request(self) -> bytes:
        """The next request, whole."""
        while (end := self._data.find(END_OF_HEAD)) < 0:
            self._data += await self._stream.receive_some()
        length = int(bytes(self._data[:end]).partition(b"content-length: ")[2].partition(b"\r\n")[0])
        whole = end + len(END_OF_HEAD) + length
        while len(self._data) < whole:
            self._data += await self._stream.receive_some()
        data = bytes(self._data[:whole])
        del self._data[:whole]
        return data

    async def send(self, *pieces: bytes) -> None:
        """Each piece as it is, one after the other taken."""
        for piece in pieces:
            await self._stream.send_all(piece)

    async def stream(self, *events: bytes) -> None:
        """The head of a stream, and events, each a chunk of its own."""
        await self.send(chat.HEAD, *map(chat.chunk, events))

    async def answer(self, *events: bytes) -> None:
        """A request taken and a whole answer given, `[DONE]` and the body's end included."""
        await self.request()
        await self.stream(*events, chat.STOP + chat.DONE)
        await self.send(chat.LAST)

    async def drip(self, piece: bytes, *, every: float = 0.0, most: int = 10_000_000) -> int:
        """One piece again and again, until the gateway closes; the bytes that it took."""
        taken = 0
        with suppress(trio.BrokenResourceError):
            while taken < most:
                await self.send(piece)
                taken += len(piece)
                await trio.sleep(every)
        return taken

    def close(self) -> None:
        close_now(self._stream)


class LockstepPool(Pool):
    """A pool whose connections lead to the test. `connecting` holds each of them back while it is closed."""

    def __init__(self, *, most: int = 10, connect: float = 5.0, connecting: Gate | None = None) -> None:
        super().__init__(urlsplit("http://upstream"), most=most, connect=connect)
        self.connecting = connecting
        self._came, self._coming = trio.open_memory_channel[FarEnd](math.inf)
        self.opened = 0

    async def _open_transport(self) -> LockstepTransport:
        if self.connecting is not None:
            await self.connecting.wait()
        near, far = lockstep_stream_pair()
        end = FarEnd(far)
        end.near = LockstepTransport(near)
        self.opened += 1
        self._came.send_nowait(end)
        return end.near

    async def connection(self) -> FarEnd:
        """The far end of the next connection that the pool opens."""
        return await self._coming.receive()


def upstream(pool: Pool, deadlines: Deadlines = DEADLINES) -> HttpUpstream:
    """A Chat Completions upstream behind a pool."""
    words = Dialect(
        path=dialect.PATH.encode(),
        body=lambda prompt, model: prompt.body,
        reader=lambda prompt: dialect.StreamReader(),
        take_apart=whole.take_apart,
        read_refusal=faults.read_refusal,
    )
    return HttpUpstream(pool, words, deadlines, host=b"upstream", base_path=b"/v1", headers=[])


def call(pool: Pool, deadlines: Deadlines = DEADLINES) -> HttpCall:
    return upstream(pool, deadlines).open(chat.prompt(), "m", [])


async def all_of(call: Upstream) -> list[Burst]:
    """Every burst of a call, and the call left again."""
    bursts = []
    async with call as source:
        while (burst := await source.receive()) is not None:
            bursts.append(burst)
    return bursts


def text_of(bursts: list[Burst]) -> str:
    frames = [frame for burst in bursts for frame in burst.frames]
    return chat.said(b"".join(frame.wire or b"data: " + frame.data + b"\n" for frame in frames))
