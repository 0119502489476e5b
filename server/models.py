"""Which upstreams serve a model's name, and which names there are to ask for."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase, translate
from typing import Any

import msgspec
import trio

from engine.errors import Kind, TurnError, client_error, shown
from engine.prompt import Prompt
from engine.upstreams.routing import Choice, FirstThatAnswers
from engine.wire.http1 import Headers, passed_on, render_head
from engine.wire.http1_client import BadResponse, ConnectionLost
from server.config import ModelConfig
from server.upstreams import Fields, Http, Opener

log = logging.getLogger(__name__)

LISTING = 5.0
"""Seconds that an upstream has to list its models; one that is late is left out of the list."""
MOST_LISTING_BYTES = 4 * 1024 * 1024


class ModelTable:
    """The models of the configuration, in its order."""

    def __init__(self, models: list[ModelConfig], openers: Mapping[str, Opener]) -> None:
        self._models = models
        self._patterns = [(model, re.compile(translate(model.name))) for model in models]
        self._openers = openers

    def route(self, prompt: Prompt, headers: Headers, request_id: str) -> FirstThatAnswers:
        """The upstreams for a prompt, in order. Raises TurnError (unknown_model)."""
        identity = (b"x-request-id", request_id.encode())
        for model, pattern in self._patterns:
            if model.name == prompt.model or pattern.match(prompt.model):
                return FirstThatAnswers([self._choice(route, prompt, headers, identity) for route in _routes(model)])
        message = f"The model `{shown(prompt.model)}` does not exist here; GET /v1/models lists those that do."
        raise client_error(Kind.UNKNOWN_MODEL, message, "model")

    def _choice(
        self, route: tuple[str, str | None], prompt: Prompt, headers: Headers, identity: tuple[bytes, bytes]
    ) -> Choice:
        name, alias = route
        opener = self._openers[name]
        fields = [*passed_on(headers, opener.pass_headers), identity]
        return Choice(name, lambda: opener.open(prompt, alias or prompt.model, fields))

    async def listing(self) -> list[dict[str, Any]]:
        """All names: the configured ones, and for each pattern those that its first upstream lists."""
        found: dict[str, dict[str, Any]] = {}
        for model in self._models:
            if not model.is_pattern:
                found.setdefault(model.name, {"id": model.name, **_OURS})
                continue
            opener = self._openers[_routes(model)[0][0]]
            for entry in await _list(opener) if isinstance(opener, Http) else ():
                if fnmatchcase(entry["id"], model.name):
                    found.setdefault(entry["id"], entry)
        return list(found.values())


_OURS = {"object": "model", "created": 0, "owned_by": "tidegate"}


def _routes(model: ModelConfig) -> list[tuple[str, str | None]]:
    return [(route, None) if isinstance(route, str) else (route.upstream, route.model) for route in model.upstreams]


async def _list(upstream: Http) -> list[dict[str, Any]]:
    """What an upstream's GET /models says; nothing if it does not say it in time, or says something else."""
    fields: Fields = [(b"host", upstream.host), (b"accept", b"application/json"), *upstream.credentials]
    head = render_head(b"GET " + upstream.base_path + b"/models HTTP/1.1", fields)
    body = b""
    try:
        with trio.move_on_after(LISTING):
            body = await _get(upstream, head)
        data = msgspec.json.decode(body or b"{}").get("data")
        entries = data if isinstance(data, list) else []
        return [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
    except (ConnectionLost, BadResponse, TurnError, msgspec.DecodeError, AttributeError) as error:
        log.warning("an upstream did not list its models: %s", error)
        return []


async def _get(upstream: Http, head: bytes) -> bytes:
    assert upstream.pool is not None
    async with upstream.pool.lease() as connection:
        await connection.send(head, b"")
        answer = await connection.receive_head()
        body = b""
        while len(body) <= MOST_LISTING_BYTES and (data := await connection.receive_body()):
            body += data
    return body if answer.status == 200 else b""
