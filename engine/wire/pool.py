"""Keep-alive connections to one origin: leased one by one, returned only if clean, never more than a bound."""

from __future__ import annotations

import logging
import socket
import ssl
from types import TracebackType
from urllib.parse import SplitResult

import trio

from engine.deadlines import Deadline, seconds
from engine.errors import Fault, Kind, TurnError
from engine.wire.http1_client import ClientConnection
from engine.wire.listener import tune
from engine.wire.tls import wrap
from engine.wire.transport import SocketTransport, Transport

log = logging.getLogger(__name__)

RECEIVE_BUFFER = 64 * 1024
"""Bytes the kernel may hold of an answer that its client has not taken. Linux doubles it for its own bookkeeping.
Tokens come at kilobytes a second, so a small window costs nothing; a large one is what an upstream runs ahead by."""
IDLE_SECONDS = 60.0
"""How long a connection is kept without use; below the 75 s at which common servers close it."""


class Pool:
    """Connections to one scheme, host and port.

    The wait for a free place, the name's resolution, the TCP and the TLS handshake share the `connect` deadline.
    """

    def __init__(self, origin: SplitResult, *, most: int, connect: float, tls: ssl.SSLContext | None = None) -> None:
        assert origin.hostname is not None
        self._host = origin.hostname
        self._port = origin.port or (443 if origin.scheme == "https" else 80)
        self._tls = tls
        self._connect_deadline = connect
        self._places = trio.Semaphore(most, max_value=most)
        self._most = most
        self._idle: list[tuple[float, ClientConnection]] = []

    @property
    def leased(self) -> int:
        """Connections in use, or being made."""
        return self._most - self._places.value

    @property
    def idle(self) -> int:
        return len(self._idle)

    def lease(self) -> Lease:
        """A connection for the time of an `async with`."""
        return Lease(self)

    def close(self) -> None:
        """Close what is idle. What is leased closes when it comes back."""
        while self._idle:
            self._idle.pop()[1].transport.close()

    def expire(self) -> None:
        """Close what has been idle for too long."""
        oldest = trio.current_time() - IDLE_SECONDS
        while self._idle and self._idle[0][0] < oldest:
            self._idle.pop(0)[1].transport.close()

    async def acquire(self, *, fresh: bool = False) -> ClientConnection:
        """An idle connection or a new one; its place is taken until `release`. Raises TurnError."""
        due: float | None = None
        try:
            self._places.acquire_nowait()
        except trio.WouldBlock:
            due = trio.current_time() + seconds(self._connect_deadline)
            await self._wait_for_place(due)
        if fresh:
            self.close()  # one of the idle connections was dead, so the others are hardly alive
        try:
            while self._idle:
                _, connection = self._idle.pop()
                if not connection.is_stale():
                    return connection
                connection.transport.close()
            return await self._connect(due or trio.current_time() + seconds(self._connect_deadline))
        except BaseException:
            self._places.release()
            raise

    def release(self, connection: ClientConnection) -> None:
        """Give back: kept if it is clean, closed otherwise. Never waits."""
        self._places.release()
        if connection.is_reusable:
            self._idle.append((trio.current_time(), connection))
        else:
            connection.transport.close()

    async def _wait_for_place(self, due: float) -> None:
        with trio.move_on_at(due) as patience:
            await self._places.acquire()
        if patience.cancelled_caught:
            raise TurnError(Fault(Kind.UPSTREAM_OVERLOADED, "All connections to the upstream are in use."))

    async def _connect(self, due: float) -> ClientConnection:
        try:
            with trio.move_on_at(due) as patience:
                return ClientConnection(await self._open_transport())
        except (OSError, ssl.SSLError, trio.BrokenResourceError) as error:
            log.warning("cannot connect to %s port %d: %s", self._host, self._port, error)
            raise TurnError(Fault(Kind.UPSTREAM_UNREACHABLE, "The upstream cannot be reached.")) from error
        assert patience.cancelled_caught
        late = f"The upstream did not accept a connection within {self._connect_deadline:g} s."
        raise TurnError(Fault(Kind.UPSTREAM_TIMEOUT, late, code=f"{Deadline.CONNECT}_timeout"))

    async def _open_transport(self) -> Transport:
        stream = await trio.open_tcp_stream(self._host, self._port)
        fd = stream.socket.detach()
        transport = SocketTransport(_adopt(fd))
        if self._tls is None:
            return transport
        return await wrap(transport, self._tls, self._host)


class Lease:
    """A connection, and its way back to the pool whatever happens."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._connection: ClientConnection | None = None

    async def __aenter__(self) -> ClientConnection:
        self._connection = await self._pool.acquire()
        return self._connection

    async def replace(self) -> ClientConnection:
        """A new connection in exchange for one that turned out to be stale."""
        stale, self._connection = self._connection, None
        if stale is not None:
            self._pool.release(stale)
        self._connection = await self._pool.acquire(fresh=True)
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_back()

    def give_back(self) -> None:
        """Return the connection. Idempotent; never waits, so that it may be done while being cancelled."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.release(connection)


def _adopt(fd: int) -> socket.socket:
    sock = socket.socket(fileno=fd)
    tune(sock, receive_buffer=RECEIVE_BUFFER)
    return sock
