"""The configured upstreams as objects: pools, credentials, dialects."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from engine.deadlines import Deadlines
from engine.dialects import chat
from engine.dialects.chat import faults, whole
from engine.prompt import Prompt
from engine.turn import Upstream
from engine.upstreams.http import Dialect, HttpUpstream
from engine.upstreams.simulated import SimulatedUpstream
from engine.wire.pool import Pool
from engine.wire.tls import client_context
from server.config import Config, UpstreamConfig

Fields = list[tuple[bytes, bytes]]


class Opener(Protocol):
    """One configured upstream."""

    pool: Pool | None
    pass_headers: tuple[bytes, ...]

    def open(self, prompt: Prompt, model: str, passed_on: Fields) -> Upstream:
        """An answer of `model`, not yet begun. Raises TurnError for what this upstream cannot be asked."""


class Simulated:
    """The upstream inside the process."""

    def __init__(self, settings: UpstreamConfig, deadlines: Deadlines, limit: int) -> None:
        self.pool: Pool | None = None
        self.pass_headers: tuple[bytes, ...] = ()
        self.inner = SimulatedUpstream(
            partial(_reader, settings, limit), lambda status, body: faults.read_refusal(status, {}, body), deadlines
        )

    def open(self, prompt: Prompt, model: str, passed_on: Fields) -> Upstream:  # noqa: ARG002 — it has no headers
        return self.inner.open(msgspec.structs.replace(prompt, model=model))


class Http:
    """A server somewhere."""

    def __init__(self, settings: UpstreamConfig, deadlines: Deadlines, limit: int, key: str | None) -> None:
        url = urlsplit(settings.url)
        ca_file = Path(settings.ca_file) if settings.ca_file else None
        tls = client_context(ca_file) if url.scheme == "https" else None
        self.pool: Pool | None = Pool(url, most=settings.max_connections, connect=deadlines.connect, tls=tls)
        self.pass_headers = tuple(name.lower().encode() for name in settings.pass_headers)
        self.host = url.netloc.rpartition("@")[2].encode()
        self.base_path = url.path.rstrip("/").encode()
        self.credentials: Fields = [(b"authorization", f"Bearer {key}".encode())] if key else []
        self._inner = HttpUpstream(
            self.pool,
            Dialect(
                path=chat.PATH.encode(),
                body=partial(chat.upstream_body, ask_usage=settings.ask_usage),
                reader=partial(_reader, settings, limit),
                take_apart=whole.take_apart,
                read_refusal=faults.read_refusal,
            ),
            deadlines,
            host=self.host,
            base_path=self.base_path,
            headers=self.credentials,
        )

    def open(self, prompt: Prompt, model: str, passed_on: Fields) -> Upstream:
        return self._inner.open(prompt, model, passed_on)


def _reader(settings: UpstreamConfig, limit: int, prompt: Prompt) -> chat.StreamReader:
    return chat.StreamReader(
        think_tags=settings.reasoning == "think_tags", keep_running_usage=prompt.wants_running_usage, limit=limit
    )


def open_upstreams(config: Config, environment: Mapping[str, str]) -> dict[str, Opener]:
    """One object for each configured upstream. Raises OSError, ssl.SSLError for an unusable `ca_file`."""
    openers: dict[str, Opener] = {}
    limit = config.limits.line_bytes
    for name, settings in config.upstreams.items():
        deadlines = msgspec.structs.replace(config.deadlines, **settings.deadlines)
        if settings.url == "simulated://":
            openers[name] = Simulated(settings, deadlines, limit)
        else:
            key = environment.get(settings.key_env) if settings.key_env is not None else None
            openers[name] = Http(settings, deadlines, limit, key)
    return openers
