"""Errors of this dialect: read from an upstream's answer or stream, and said to a client."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from engine.dialects.chat.chunks import decode_object
from engine.errors import Fault, Kind

LONGEST_MESSAGE = 4096
"""Characters of an upstream's error text that are passed on; some servers send the whole prompt back."""
LONGEST_WORD = 256
"""Characters of its code, type and param."""
_PASSED_ON = (b"x-ratelimit-", b"anthropic-ratelimit-")


def error_body(fault: Fault) -> bytes:
    """The error object, as a response body or as the data of a stream's last event."""
    row = fault.row
    error = {
        **fault.more,
        "message": fault.message,
        "type": fault.type or row.openai_type,
        "param": fault.param,
        "code": fault.code if fault.code is not None else row.openai_code,
    }
    return msgspec.json.encode({"error": error})


def read_refusal(status: int, headers: Mapping[bytes, bytes], body: bytes) -> Fault:
    """An upstream's answer with an error status. `body` may be cut short; `headers` are lower case."""
    try:
        said = _error_of(decode_object(body)) or {}
    except ValueError:
        said = {}
    passed_on = tuple((name, value) for name, value in headers.items() if name.startswith(_PASSED_ON))
    fault = _fault(status, said)
    retry_after = headers.get(b"retry-after")
    return msgspec.structs.replace(
        fault, retry_after=retry_after.decode("latin-1") if retry_after else None, headers=passed_on
    )


def read_error_event(chunk: dict[str, Any]) -> Fault | None:
    """The fault in a stream's chunk, if it is an error: an `error` object, or an object that calls itself one."""
    said = _error_of(chunk)
    if said is None:
        return None
    code = said.get("code")
    status = code if isinstance(code, int) and 400 <= code <= 599 else said.get("status_code")
    return _fault(status if isinstance(status, int) and 400 <= status <= 599 else 502, said)


def _error_of(answer: dict[str, Any]) -> dict[str, Any] | None:
    """Servers wrap an error as {"error": {…}}, {"error": "…"}, {"object": "error", …} or {"detail": …}."""
    error = answer.get("error")
    if isinstance(error, dict):
        return error
    if error:
        return {
            "message": str(error),
            **{key: answer[key] for key in ("code", "type", "param") if key in answer},
        }
    if answer.get("object") == "error" or answer.get("type") == "error":
        return answer
    if "choices" not in answer and ("detail" in answer or "message" in answer):
        detail = answer.get("message") or answer.get("detail")
        return {
            **answer,
            "message": detail if isinstance(detail, str) else msgspec.json.encode(detail).decode(),
        }
    return None


def _fault(status: int, said: dict[str, Any]) -> Fault:
    kind = _kind(status)
    if said.get("type") == "authentication_error" or said.get("code") == "invalid_api_key":
        kind = Kind.UPSTREAM_CREDENTIALS
    if kind is Kind.UPSTREAM_CREDENTIALS:
        # The client's key was right. What the upstream says may show a part of the operator's.
        return Fault(kind, "The upstream did not accept the gateway's credentials.")
    message = said.get("message")
    text = message if isinstance(message, str) and message else f"The upstream answered with status {status}."
    code = said.get("code")
    return Fault(
        kind,
        _shown(text),
        param=_word(said.get("param")),
        code=str(code) if isinstance(code, int) and not isinstance(code, bool) else _word(code),
        type=_word(said.get("type")),
        status_said=status,
        more=_small({key: value for key, value in said.items() if key not in _OWN}),
    )


def _shown(text: str) -> str:
    """An upstream's message, cut, and without a credential that it may quote (debug pages show the request)."""
    text = _BEARER.sub(r"\1[…]", text)
    return text if len(text) <= LONGEST_MESSAGE else text[:LONGEST_MESSAGE] + " […]"


def _word(value: object) -> str | None:
    return value[:LONGEST_WORD] if isinstance(value, str) else None


def _small(more: dict[str, Any]) -> dict[str, Any]:
    """Further members, unless they are a document of their own."""
    return more if len(msgspec.json.encode(more)) <= LONGEST_MESSAGE else {}


_BEARER = re.compile(r"(?i)\b(bearer\s+)[^\s\"',}]+")


_OWN = frozenset(("message", "type", "param", "code", "object", "detail", "error"))


def _kind(status: int) -> Kind:
    if status == 401:
        return Kind.UPSTREAM_CREDENTIALS
    if status == 429:
        return Kind.UPSTREAM_RATE_LIMIT
    if status in (503, 529):
        return Kind.UPSTREAM_OVERLOADED
    return Kind.UPSTREAM_REFUSED if 400 <= status < 500 else Kind.UPSTREAM_FAILED
