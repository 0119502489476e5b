"""The whole gateway in the test's own process and nursery: what `serve` builds, without signals and without stdout."""

from __future__ import annotations

import json
import math
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio

from engine.history.store import Store
from engine.wire.http1_server import Handler, Limits
from engine.wire.listener import open_listeners
from server.config import Config
from server.gateway import Gateway
from server.journal import Journal, Record
from server.listen import Listener
from server.load import load
from tests.helpers import chat
from tests.helpers.http import Answer, HttpClient, request

Json = dict[str, Any]
LIMITS = Limits()
LATEST = 10.0
"""Seconds for a line of the journal: one that never comes fails its test, and does not hang it."""


class KeptJournal(Journal):
    """Keeps the lines it would write."""

    def __init__(self) -> None:
        super().__init__(-1)
        self.lines: list[str] = []
        self._told, self._telling = trio.open_memory_channel[Json](math.inf)

    def write(self, record: Record) -> None:
        line = msgspec.json.encode(record).decode()
        self.lines.append(line)
        self._told.send_nowait(json.loads(line))

    async def record(self) -> Json:
        """The next record, as its line says it."""
        with trio.fail_after(LATEST):
            return await self._telling.receive()


class Client(HttpClient):
    """A client on a socket."""

    def __init__(self, stream: trio.SocketStream) -> None:
        super().__init__(stream)
        self.socket = stream

    async def chat(self, model: str = "m", *headers: str, stream: bool = True, **fields: object) -> None:
        """Ask for a turn, and do not wait for its answer."""
        await self.send(chat_request(model, *headers, stream=stream, **fields))

    async def chatted(self, model: str = "m", *headers: str, stream: bool = True, **fields: object) -> Answer:
        await self.chat(model, *headers, stream=stream, **fields)
        return await self.answer()

    async def dropped(self) -> bytes:
        """What had arrived before a reset; fails if the stream ends in any other way."""
        taken = bytearray()
        try:
            while data := await self.stream.receive_some():
                taken += data
        except trio.BrokenResourceError:
            return bytes(taken)
        raise AssertionError("the connection was closed as if all had been said")

    async def finish_sending(self) -> None:
        """A FIN; the answer could still be read."""
        await self.socket.send_eof()

    async def close(self) -> None:
        await self.socket.aclose()

    async def reset(self) -> None:
        """A RST."""
        self.socket.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self.socket.aclose()


def chat_request(model: str = "m", *headers: str, stream: bool = True, **fields: object) -> bytes:
    body = chat.body(model, stream=stream, **fields)
    return request("POST /v1/chat/completions HTTP/1.1", "Content-Type: application/json", *headers, body=body)


@asynccontextmanager
async def connected_to(port: int, *, receive_buffer: int | None = None) -> AsyncIterator[Client]:
    with trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await sock.connect(("127.0.0.1", port))
        yield Client(trio.SocketStream(sock))


class Running:
    """A gateway that is being served."""

    def __init__(self, gateway: Gateway, listener: Listener, journal: KeptJournal, port: int) -> None:
        self.gateway = gateway
        self.listener = listener
        self.journal = journal
        self.port = port

    async def ask(self, line: str = "GET /health HTTP/1.1", *fields: str, body: bytes = b"") -> Answer:
        """One request on a connection of its own."""
        async with connected_to(self.port) as client:
            return await client.ask(line, *fields, body=body)

    async def chatted(self, model: str = "m", *headers: str, stream: bool = True, **fields: object) -> Answer:
        async with connected_to(self.port) as client:
            return await client.chatted(model, *headers, stream=stream, **fields)


@asynccontextmanager
async def gateway(
    *sets: str, environment: Mapping[str, str] | None = None, history: Store | None = None
) -> AsyncIterator[Running]:
    """A gateway with a configuration made of `--set` lines; without any, it has the simulated upstream."""
    config = load(None, list(sets), environment or {})
    journal = KeptJournal()
    inner = Gateway(config, environment or {}, journal, history)
    listener = Listener(
        inner,
        limits_of(config),
        config.deadlines,
        connections=config.limits.connections,
        idle_seconds=config.limits.idle_connection_seconds,
    )
    try:
        async with listening(listener) as port:
            yield Running(inner, listener, journal, port)
    finally:
        inner.close()


@asynccontextmanager
async def listening(listener: Listener) -> AsyncIterator[int]:
    """Serve on a free port, until the body is left."""
    sockets = await open_listeners("127.0.0.1", 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.serve, sockets)  # noqa: ASYNC113 — who connects earlier waits in the backlog
        try:
            yield int(sockets[0].getsockname()[1])
        finally:
            listener.cancel()


def listener_of(handler: Handler, limits: Limits = LIMITS) -> Listener:
    """A listener for a handler that is no gateway."""
    config = Config()
    return Listener(handler, limits, config.deadlines, connections=100)


def limits_of(config: Config) -> Limits:
    limits = config.limits
    return Limits(limits.head_bytes, limits.body_bytes, limits.pipelined_bytes, limits.requests_per_connection)
