"""Listening, and stopping: one nursery for all connections, and a drain that ends whatever the clients do.

The first signal drains: not ready, no new connections, turns get `grace` seconds, then their client is told that the
gateway is shutting down. The second signal, or `LAST_SECOND` after the grace, cancels what is left.
"""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Awaitable, Callable

import trio

from engine.deadlines import Deadlines, seconds
from engine.errors import Fault, Kind
from engine.wire.http1_server import Handler, Limits, ServerConnection
from engine.wire.listener import accept_forever, open_listeners
from engine.wire.transport import SocketTransport

log = logging.getLogger(__name__)

SWEEP = 1.0
"""Seconds between looks for idle connections: how exact their limit is."""
LAST_SECOND = 0.5
"""Seconds, after the grace, for the last error events to be written; with the exit itself that stays below one."""
SHUTTING_DOWN = Fault(Kind.SHUTTING_DOWN, "The gateway is shutting down; the answer is not complete.", retry_after="1")


class Listener:
    """A data plane on its sockets. `drain` may be called from anywhere in the same loop."""

    def __init__(
        self, handler: Handler, limits: Limits, deadlines: Deadlines, *, connections: int, idle_seconds: float = 75.0
    ) -> None:
        self._handler = handler
        self._limits = limits
        self._deadlines = deadlines
        self._idle_seconds = seconds(idle_seconds)
        self._room = trio.Semaphore(connections)
        self._connections: set[ServerConnection] = set()
        self._accepting = trio.CancelScope()
        self._serving = trio.CancelScope()
        self._is_empty = trio.Event()
        self._is_draining = False

    async def serve(self, sockets: list[socket.socket]) -> None:
        """Serve until `drain` has ended it, or it is cancelled. Closes the sockets."""
        with self._serving:
            async with trio.open_nursery() as connections:
                with self._accepting:
                    try:
                        async with trio.open_nursery() as accepting:
                            accepting.start_soon(self._close_idle)
                            for each in sockets:
                                accepting.start_soon(accept_forever, each, self._starter(connections))
                    finally:
                        for each in sockets:
                            each.close()

    async def drain(self, stop_turns: Callable[[Fault], None]) -> None:
        """Stop accepting, wait out the grace, then end what is left. Returns when no connection is."""
        self._is_draining = True
        self._accepting.cancel(reason="draining")
        for connection in list(self._connections):
            connection.finish()
        with trio.move_on_after(self._deadlines.grace):  # no grace means none, not for ever
            await self._until_empty()
            return
        stop_turns(SHUTTING_DOWN)
        with trio.move_on_after(LAST_SECOND):
            await self._until_empty()
            return
        self.cancel()

    def cancel(self) -> None:
        """End all at once."""
        self._accepting.cancel(reason="cancelled")
        self._serving.cancel(reason="cancelled")

    async def _close_idle(self) -> None:
        """Close connections that have long had no request. One sweep a second for all of them: a deadline of its own
        would cost each request as much as reading it does."""
        while True:
            await trio.sleep(SWEEP)
            oldest = trio.current_time() - self._idle_seconds
            for connection in list(self._connections):
                if connection.idle_since is not None and connection.idle_since < oldest:
                    connection.finish()

    async def _until_empty(self) -> None:
        while self._connections:
            self._is_empty = trio.Event()
            await self._is_empty.wait()

    def _starter(self, connections: trio.Nursery) -> Callable[[socket.socket], Awaitable[None]]:
        async def start(client: socket.socket) -> None:
            try:
                await self._room.acquire()
            except BaseException:
                client.close()
                raise
            connections.start_soon(self._serve_one, client)

        return start

    async def _serve_one(self, client: socket.socket) -> None:
        connection = ServerConnection(SocketTransport(client), self._handler, self._limits, self._deadlines)
        self._connections.add(connection)
        if self._is_draining:
            connection.finish()
        try:
            await connection.run()
        except Exception:
            log.exception("a connection failed by a fault of the gateway's own")
        finally:
            self._room.release()
            self._connections.discard(connection)
            if not self._connections:
                self._is_empty.set()


async def watch_signals(
    on_first: Callable[[], None],
    on_second: Callable[[], None],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Call one for the first SIGTERM or SIGINT, the other for each later one."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            log.info("%s: draining; once more to stop at once", signal.Signals(number).name)
            on_first()
            break
        async for _ in signals:
            on_second()


async def open_sockets(host: str, port: int, name: str, announce: Callable[[str], None]) -> list[socket.socket]:
    """Listen, and say where. Raises OSError."""
    sockets = await open_listeners(host, port)
    address = sockets[0].getsockname()
    shown = f"[{address[0]}]" if ":" in address[0] else address[0]
    announce(f"{name}: listening on http://{shown}:{address[1]}")
    return sockets
