"""What every entry is played on: a gateway of its own between our upstream and our client, and a canary."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import trio

from tests.cases.gateway import Gateway, open_gateway
from tests.cases.plan import Entry
from tests.cases.requests import substituted
from tests.cases.settings import CLIENT_KEY, settings_for
from tests.cases.upstream import FakeUpstream, listen, open_upstream

Json = dict[str, Any]


@dataclass
class Canary:
    """A server that must never be contacted."""

    port: int = 0
    hits: int = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        self.hits += 1
        await stream.aclose()


@dataclass(frozen=True)
class Stage:
    """`names` are the placeholders that cases may use: ports that are only known now."""

    gateway: Gateway
    upstream: FakeUpstream
    canary: Canary
    config: Json
    names: Json

    @property
    def key(self) -> str:
        """A key that the gateway accepts."""
        return str(next(iter(self.config.get("api_keys", [CLIENT_KEY]))))

    def seconds(self, *names: str) -> float:
        """The first of these settings that the case has; 0 without any."""
        return float(next((self.config[name] for name in names if name in self.config), 0.0))


@asynccontextmanager
async def open_stage(entry: Entry, command: str) -> AsyncIterator[Stage]:
    """Start it all; on leaving, no process, socket or file of it is left."""
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(open_upstream())
        canary = await stack.enter_async_context(_open_canary())
        refusing_port = stack.enter_context(_refusing_port())
        names = {"canary_port": canary.port, "upstream_port": upstream.port}
        config = substituted(entry.config, names)
        settings = settings_for(config, upstream.port, refusing_port)
        gateway = await stack.enter_async_context(open_gateway(command, settings, upstream.port))
        yield Stage(gateway, upstream, canary, config, names)


@asynccontextmanager
async def _open_canary() -> AsyncIterator[Canary]:
    async with trio.open_nursery() as nursery:
        canary = Canary()
        canary.port = await listen(nursery, canary.serve)
        try:
            yield canary
        finally:
            nursery.cancel_scope.cancel()


@contextmanager
def _refusing_port() -> Iterator[int]:
    """A port that refuses: bound, so that nobody else gets it, but not listening."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
