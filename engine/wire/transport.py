"""A byte stream with a synchronous core: try first, wait only where the peer is slow.

Trio's own SocketStream passes the scheduler on every call, also where the kernel has the answer at hand; that is about
6 µs a call, four calls a burst. Here `try_send` and `try_receive` do the work, and only `send_some` and `receive`
wait. Both the socket and any trio stream (TLS, the lockstep streams of the tests) can be a transport.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Callable
from typing import Protocol

import trio

READ_SIZE = 64 * 1024
"""Bytes of one read: the most that a burst can hold. Larger reads were no faster on loopback."""

_BLOCKED = (BlockingIOError, InterruptedError)


class TransportBroken(Exception):
    """The peer reset the connection, or it was closed here."""


class Transport(Protocol):
    """One connection's bytes, both ways. Any method raises TransportBroken once the connection is lost."""

    def try_send(self, data: memoryview) -> int:
        """Bytes taken at once; 0 when the peer's side is full."""

    async def send_some(self, data: memoryview) -> int:
        """Wait until something can be sent; bytes taken, at least 1. Cancelled, it may have taken some."""

    def try_receive(self) -> bytes | None:
        """What has come, at most READ_SIZE bytes; None when nothing has; empty at the end of the stream."""

    async def receive(self) -> bytes:
        """The same, waiting for it. Cancelled, nothing is lost."""

    def is_quiet(self) -> bool:
        """Whether nothing has come, not even the end: what an idle connection must be to be used again."""

    def finish_sending(self) -> None:
        """Say that nothing more comes (a TCP FIN), as far as the transport can without waiting."""

    def close(self) -> None:
        """Let go at once. Idempotent; never waits."""

    def reset(self) -> None:
        """Let go so that the peer cannot take what it got for complete (a TCP RST)."""


class SocketTransport(trio.abc.Stream):
    """A connected, non-blocking stream socket. It is a trio stream as well, for TLS to stand on."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._closed = False

    def try_send(self, data: memoryview) -> int:
        try:
            return self._socket.send(data)
        except _BLOCKED:
            return 0
        except OSError as error:
            raise TransportBroken(str(error)) from error

    async def send_some(self, data: memoryview) -> int:
        while True:
            await self._wait(trio.lowlevel.wait_writable)
            if sent := self.try_send(data):
                return sent

    def try_receive(self) -> bytes | None:
        try:
            return self._socket.recv(READ_SIZE)
        except _BLOCKED:
            return None
        except OSError as error:
            raise TransportBroken(str(error)) from error

    async def receive(self) -> bytes:
        while True:
            await self._wait(trio.lowlevel.wait_readable)
            if (data := self.try_receive()) is not None:
                return data

    def is_quiet(self) -> bool:
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except _BLOCKED:
            return True
        except OSError:
            return False
        return False

    async def _wait(self, until: Callable[[socket.socket], object]) -> None:
        try:
            await until(self._socket)  # type: ignore[misc]
        except (trio.ClosedResourceError, ValueError, OSError) as error:
            raise TransportBroken("closed here") from error

    def finish_sending(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            if error.errno not in (errno.ENOTCONN, errno.EBADF):
                raise

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    def reset(self) -> None:
        if not self._closed:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self.try_send(rest) :]
                if rest:
                    rest = rest[await self.send_some(rest) :]
        except TransportBroken as error:
            raise trio.BrokenResourceError from error

    async def wait_send_all_might_not_block(self) -> None:
        await self._wait(trio.lowlevel.wait_writable)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:  # noqa: ARG002 — one read is READ_SIZE
        await trio.lowlevel.checkpoint()
        try:
            data = self.try_receive()
            return data if data is not None else await self.receive()
        except TransportBroken as error:
            raise trio.BrokenResourceError from error

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()


class StreamTransport:
    """Any trio stream as a transport: it can never tell at once, so everything waits.

    `close_below` lets go of what the stream stands on without waiting, as closing a trio stream may; `is_quiet_below`
    looks whether anything has come there.
    """

    PIECE = 16 * 1024
    """Bytes of one send: what progress is measured in, since a trio stream sends all or nothing."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        close_below: Callable[[], None],
        is_quiet_below: Callable[[], bool] = lambda: True,
    ) -> None:
        self._stream = stream
        self._close_below = close_below
        self._is_quiet_below = is_quiet_below

    def try_send(self, data: memoryview) -> int:  # noqa: ARG002 — never at once
        return 0

    async def send_some(self, data: memoryview) -> int:
        piece = data[: self.PIECE]
        try:
            await self._stream.send_all(bytes(piece))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise TransportBroken("broken") from error
        return len(piece)

    def try_receive(self) -> bytes | None:
        return None

    async def receive(self) -> bytes:
        try:
            return bytes(await self._stream.receive_some(READ_SIZE))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise TransportBroken("broken") from error

    def is_quiet(self) -> bool:
        return self._is_quiet_below()

    def finish_sending(self) -> None:
        """A trio stream can only do this by waiting; the close that follows does as well."""

    def close(self) -> None:
        self._close_below()

    def reset(self) -> None:
        self._close_below()
