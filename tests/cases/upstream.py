"""The fake upstream: raw sockets that play a script and log what they were asked and when they were left.

While it writes, a second task reads: that is the only way to see a gateway that hangs up. Requests for the
probe's model get a healthy answer whatever the script is, and are not logged.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from tests.cases.script import Script, framed, healthy
from tests.cases.wire import Head, MessageReader

PROBE_MODEL = "case-probe"
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_READ = 65536


@dataclass
class Served:
    """One request that the upstream got, and how its answer went. Times are trio's clock."""

    head: Head
    body: bytes
    framing_ok: bool
    received_at: float
    last_write_at: float | None = None
    longest_pause: float = -1.0
    pause_over_at: float | None = None
    bytes_sent: int = 0
    finished: bool = False
    closed_at: float | None = None
    closed: trio.Event = field(default_factory=trio.Event)

    def note_closed(self) -> None:
        if self.closed_at is None:
            self.closed_at = trio.current_time()
            self.closed.set()

    def note_pause(self, seconds: float) -> None:
        if seconds > self.longest_pause:
            self.longest_pause, self.pause_over_at = seconds, trio.current_time()

    def as_json(self) -> dict[str, Any]:
        body = _json_or_none(self.body)
        text = self.body.decode("utf-8", "replace") if body is None else json.dumps(body, ensure_ascii=False)
        return {
            "method": self.head.start[0],
            "path": self.head.start[1],
            "headers": self.head.headers,
            "text_headers": self.head.text,
            "text": text,
            "json": body,
            "framing_ok": self.framing_ok,
        }


class FakeUpstream:
    """Answers every request with the script of the moment. `served` is the log of the exchange that is on."""

    def __init__(self) -> None:
        self.port = 0
        self.script = healthy()
        self.served: list[Served] = []
        self._connections: set[_Connection] = set()

    @property
    def open_connections(self) -> int:
        """How many the gateway has not ended yet."""
        return len(self._connections)

    def begin(self, script: Script) -> None:
        """A new exchange: its script, and an empty log."""
        self.script, self.served = script, []

    async def serve(self, stream: trio.SocketStream) -> None:
        connection = _Connection(self, stream)
        self._connections.add(connection)
        async with stream:
            await connection.run()
        self.forget(connection)

    def forget(self, connection: _Connection) -> None:
        self._connections.discard(connection)


@asynccontextmanager
async def open_upstream() -> AsyncIterator[FakeUpstream]:
    """Listen on a free port of loopback; on leaving, every connection is dropped."""
    async with trio.open_nursery() as nursery:
        upstream = FakeUpstream()
        upstream.port = await listen(nursery, upstream.serve)
        try:
            yield upstream
        finally:
            nursery.cancel_scope.cancel()


async def listen(nursery: trio.Nursery, serve: Callable[[trio.SocketStream], Awaitable[object]]) -> int:
    """Serve on a free port of loopback, which is returned, until the nursery ends."""
    (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
    return int(listener.socket.getsockname()[1])


class _Connection:
    def __init__(self, upstream: FakeUpstream, stream: trio.SocketStream) -> None:
        self._upstream, self._stream = upstream, stream
        self._reader = MessageReader(is_response=False)
        self._body = bytearray()
        self._last: Served | None = None

    async def run(self) -> None:
        try:
            while await self._read_request():
                if not await self._answer(*self._accept()):
                    return
        except trio.BrokenResourceError:
            pass  # a reset between requests is an end like another
        self._note_left()

    def _note_left(self) -> None:
        self._upstream.forget(self)
        if self._last:
            self._last.note_closed()

    async def _read_request(self) -> bool:
        self._body += self._reader.feed(b"")
        while not self._reader.is_complete:
            data = await self._stream.receive_some(_READ)
            if not data:
                return False
            self._body += self._reader.feed(data)
        return True

    def _accept(self) -> tuple[Served, Script]:
        assert self._reader.head
        body = bytes(self._body)
        served = Served(self._reader.head, body, self._reader.is_lawful, trio.current_time())
        self._last = served
        self._body.clear()
        self._reader.next_message()
        asked = _json_or_none(body)
        if isinstance(asked, dict) and asked.get("model") == PROBE_MODEL:
            return served, healthy()
        self._upstream.served.append(served)
        return served, self._upstream.script

    async def _answer(self, served: Served, script: Script) -> bool:
        """Play the script beside a watch on the gateway's side; true if the connection can be used again."""
        reusable = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, nursery.cancel_scope)
            try:
                reusable = await self._play(served, script)
            except trio.BrokenResourceError:
                self._note_left()
            nursery.cancel_scope.cancel()
        return reusable and served.closed_at is None

    async def _watch(self, play: trio.CancelScope) -> None:
        try:
            while data := await self._stream.receive_some(_READ):
                self._body += self._reader.feed(data)
        except trio.BrokenResourceError:
            pass
        self._note_left()
        play.cancel()

    async def _play(self, served: Served, script: Script) -> bool:
        await trio.sleep(script.withheld_s)
        await self._send(served, script.head())
        frame: Callable[[bytes], bytes] = framed if script.is_chunked else bytes
        for delay, piece in script.writes():
            await trio.sleep(delay)
            served.note_pause(delay)
            await self._send(served, frame(piece))
            served.bytes_sent += len(piece)
        served.finished = True
        return await self._finish(served, script)

    async def _finish(self, served: Served, script: Script) -> bool:
        match script.end:
            case "clean":
                if script.is_chunked:
                    await self._send(served, b"0\r\n\r\n")
                return True
            case "hold":
                await trio.sleep(script.hold_s)
            case "rst":
                self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        return False

    async def _send(self, served: Served, data: bytes) -> None:
        if data:
            await self._stream.send_all(data)
            served.last_write_at = trio.current_time()


def _json_or_none(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None
