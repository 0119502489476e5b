"""From raw facts to what the checks look at: the client's bytes read as its dialect reads them."""

from __future__ import annotations

import json
from typing import Any

from tests.cases.observation.anthropic import derive_anthropic
from tests.cases.observation.chat import derive_chat
from tests.cases.observation.responses import derive_responses
from tests.cases.observation.sse import Json, parse_sse


def derive(dialect: str, obs: Json) -> Json:
    """Fill `obs` in place. `obs["client"]` needs status, headers (lower-case names), body (bytes), ended."""
    client = obs.setdefault("client", {})
    raw: bytes = client.pop("body", b"")
    client["text"], client["utf8"] = _text(raw)
    client["json"] = None
    sse = None
    if "text/event-stream" in (client.get("headers") or {}).get("content-type", ""):
        sse = obs["sse"] = parse_sse(raw)
    else:
        client["json"] = _json(raw)
    match dialect:
        case "openai-chat":
            obs["chat"] = derive_chat(sse, client["json"])
        case "anthropic-messages":
            obs["anthropic"] = derive_anthropic(sse, client["json"])
        case "openai-responses":
            obs["responses"] = derive_responses(sse, client["json"])
    _add_anthropic_summary(obs)
    obs["upstream_roles"] = _roles(obs.get("upstream") or {})
    return obs


def _text(raw: bytes) -> tuple[str, bool]:
    try:
        return raw.decode("utf-8"), True
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace"), False


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return None


def _add_anthropic_summary(obs: Json) -> None:
    blocks = (obs.get("anthropic") or {}).get("blocks", [])
    tools: dict[Any, list[Any]] = {}
    for block in blocks:
        if block.get("type") == "tool_use":
            tools.setdefault(block.get("name"), []).append(block.get("input"))
    obs["anthropic_tools"] = tools
    if "anthropic" in obs:
        for kind in ("text", "thinking"):
            pieces = (block.get(kind) or "" for block in blocks if block.get("type") == kind)
            obs["anthropic"][kind] = "".join(pieces)


def _roles(upstream: Json) -> list[Any]:
    first = (upstream.get("requests") or [{}])[0].get("json") or {}
    return [message.get("role") for message in first.get("messages") or []]
