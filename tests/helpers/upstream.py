"""An upstream on a real socket: it sends exact bytes, always reads, and knows when and how it was left."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal

import trio

from tests.helpers import chat
from tests.helpers.http import END_OF_HEAD

Script = Callable[["Accepted"], Awaitable[None]]


class Accepted:
    """One connection that the gateway opened."""

    def __init__(self, sock: trio.socket.SocketType) -> None:
        self._socket = sock
        self._data = bytearray()
        self._news = trio.Event()
        self._left = trio.Event()
        self._taken = trio.Event()
        self.how: Literal["end", "reset"] | None = None
        """How the gateway ended it, once it has."""
        self.requests: list[bytes] = []
        self.sent = 0
        """Bytes that the kernel took from us, so at most what it holds plus what the gateway has read."""

    async def left(self) -> None:
        """Wait until the gateway has ended the connection."""
        await self._left.wait()

    async def request(self) -> bytes:
        """The next request, whole."""
        while (size := self._size()) is None:
            self._news = trio.Event()
            await self._news.wait()
        request = bytes(self._data[:size])
        del self._data[:size]
        self.requests.append(request)
        self._taken.set()
        return request

    async def request_taken(self) -> None:
        """Wait until the script has taken its first request."""
        await self._taken.wait()

    def _size(self) -> int | None:
        """Bytes of the request at hand; None if it is not whole."""
        head, blank, _ = self._data.partition(END_OF_HEAD)
        length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        size = len(head) + len(blank) + int(length or b"0")
        return size if blank and len(self._data) >= size else None

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                count = await self._socket.send(rest)
                self.sent += count
                rest = rest[count:]

    async def stream(self, *events: bytes) -> None:
        """The head of a stream, and events, each a chunk and a write of its own."""
        await self.send(chat.HEAD, *map(chat.chunk, events))

    async def finish(self, *events: bytes) -> None:
        """More events, the end mark, and the body's end."""
        await self.send(*map(chat.chunk, (*events, chat.STOP + chat.DONE)), chat.LAST)

    async def refuse(self, status: int, body: bytes, *fields: str) -> None:
        lines = [f"HTTP/1.1 {status} No", "content-type: application/json", f"content-length: {len(body)}", *fields]
        await self.send("\r\n".join(lines).encode() + END_OF_HEAD + body)

    def close(self) -> None:
        self._socket.close()

    def reset(self) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    async def run(self, script: Script) -> None:
        """Follow the script, until it is done or the gateway leaves; then close."""
        with self._socket, trio.CancelScope() as acting:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read, acting)
                try:
                    await script(self)
                except OSError:  # the gateway went in the middle of a write; the reading side says how
                    await self._left.wait()
                nursery.cancel_scope.cancel()

    async def _read(self, acting: trio.CancelScope) -> None:
        try:
            while data := await self._socket.recv(65536):
                self._data += data
                self._news.set()
            self.how = "end"
        except OSError:
            self.how = "reset"
        except trio.ClosedResourceError:  # by the script itself
            return
        self._left.set()
        acting.cancel()


class Upstream:
    """A listening upstream and its connections, in the order they came."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.accepted: list[Accepted] = []
        self._news = trio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def setting(self) -> str:
        """The `--set` that makes it a gateway's only upstream."""
        return f'upstreams={{default={{url="{self.url}"}}}}'

    async def connection(self, number: int = 0) -> Accepted:
        """The connection of that number, when it has come."""
        while len(self.accepted) <= number:
            self._news = trio.Event()
            await self._news.wait()
        return self.accepted[number]

    def add(self, accepted: Accepted) -> None:
        self.accepted.append(accepted)
        self._news.set()


@asynccontextmanager
async def upstream(script: Script, *, send_buffer: int | None = None) -> AsyncIterator[Upstream]:
    """Listen on a free port; every connection follows the script."""
    with trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        if send_buffer is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        await listener.bind(("127.0.0.1", 0))
        listener.listen(100)
        server = Upstream(listener.getsockname()[1])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_accept, listener, server, script, nursery)
            try:
                yield server
            finally:
                nursery.cancel_scope.cancel()


async def _accept(listener: trio.socket.SocketType, server: Upstream, script: Script, nursery: trio.Nursery) -> None:
    while True:
        sock, _ = await listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        accepted = Accepted(sock)
        server.add(accepted)
        nursery.start_soon(accepted.run, script)


# Scripts that several tests need


def answering(*texts: str) -> Script:
    """Answers every request with these texts."""

    async def script(peer: Accepted) -> None:
        while True:
            await peer.request()
            await peer.stream(chat.ROLE, *map(chat.text, texts))
            await peer.finish()

    return script


async def silent(peer: Accepted) -> None:
    """Takes the request, and says nothing."""
    await peer.request()
    await trio.sleep_forever()


async def begins(peer: Accepted) -> None:
    """Says one word, and then nothing."""
    await peer.request()
    await peer.stream(chat.ROLE, chat.text("tide"))
    await trio.sleep_forever()


async def endless(peer: Accepted) -> None:
    """As much as is taken."""
    await peer.request()
    await peer.stream(chat.ROLE)
    more = chat.chunk(chat.text("x" * 1000))
    while True:
        await peer.send(more)
