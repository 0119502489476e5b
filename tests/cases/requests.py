"""The bytes of a client's request, from the case's words. Pure."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

_LINE = {"method", "path", "http_version", "headers", "raw_b64"}
_BODY = {"json", "body_b64", "body_generator", "body_framing"}
_MANNER = {"wait_for_100", "then_send", "sequence", "variant"}
_CHUNK = 16384
_WRONG_KEY = "sk-wrong-key-of-the-case-runner"  # pragma: allowlist secret


class UnknownRequest(ValueError):
    """A case asks for a request that this runner cannot make."""


@dataclass(frozen=True)
class Request:
    """Exactly what goes over the wire. `wants_answer_with` is the status a sequence counts as complete."""

    head: bytes
    body: bytes
    method: str = "POST"
    waits_for_100: bool = False
    body_after_answer: bool = False
    wants_answer_with: int | None = None


def requests_of(spec: Json) -> list[Request]:
    """One request, or the requests of a `sequence`, in order. Raises UnknownRequest."""
    unknown = sorted(set(spec) - _LINE - _BODY - _MANNER)
    if unknown:
        raise UnknownRequest(f"request field {unknown[0]}")
    if "raw_b64" in spec:
        raw = base64.b64decode(spec["raw_b64"])
        return [Request(raw, b"", raw.partition(b" ")[0].decode("latin-1"))]
    if "sequence" in spec:
        return [_of_sequence(spec, words) for words in spec["sequence"]]
    return [_request(_as_variant(spec, spec.get("variant", "")))]


def _as_variant(spec: Json, variant: str | Json) -> Json:
    """A variant is a framing in words ("transfer-encoding: chunked"), or fields to replace."""
    if isinstance(variant, dict):
        return {**spec, **variant}
    words = [word for word in re.split(r" with |, ?| and ", variant.lower()) if word]
    for word in words:
        spec = {**spec, **_framing_called(word, spec)}
    return spec


def _framing_called(word: str, spec: Json) -> Json:
    match word:
        case "content-length":
            return {"body_framing": "content-length"}
        case "transfer-encoding: chunked" | "chunked":
            return {"body_framing": "chunked"}
        case "expect: 100-continue":
            return {"wait_for_100": True, "headers": {**spec["headers"], "expect": "100-continue"}}
        case "http/1.0":
            return {"http_version": "1.0"}
    raise UnknownRequest(f"variant {word!r}")


def _of_sequence(spec: Json, words: str | Json) -> Request:
    """Fields to replace, or words: `stream`, `non-stream …`; `64 KiB body` pads it; `refused by 401` spoils the key."""
    if isinstance(words, dict):
        return _request({**spec, **words})
    if not re.match(r"(non-)?stream\b", words):
        raise UnknownRequest(f"sequence item {words!r}")
    body = {**spec["json"], "stream": not words.startswith("non-")}
    headers = dict(spec["headers"])
    padding = re.search(r"(\d+) KiB body", words)
    if padding:
        body["user"] = "x" * (int(padding[1]) * 1024)
    refusal = re.search(r"refused by (\d{3})", words)
    if refusal and refusal[1] == "401":
        headers["authorization"] = f"Bearer {_WRONG_KEY}"
    status = int(refusal[1]) if refusal else 200
    return _request({**spec, "json": body, "headers": headers}, wants_answer_with=status)


def _request(spec: Json, wants_answer_with: int | None = None) -> Request:
    body = _body(spec)
    method = spec.get("method", "POST")
    is_chunked = spec.get("body_framing") == "chunked"
    fields = {"host": "127.0.0.1", **spec.get("headers", {})}
    if is_chunked:
        fields["transfer-encoding"] = "chunked"
    elif body or method == "POST":
        fields["content-length"] = str(len(body))
    lines = [f"{method} {spec['path']} HTTP/{_version(spec)}"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return Request(
        head=("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"),
        body=_in_chunks(body) if is_chunked else body,
        method=method,
        waits_for_100=bool(spec.get("wait_for_100")),
        body_after_answer=bool(spec.get("then_send")),
        wants_answer_with=wants_answer_with,
    )


def _version(spec: Json) -> str:
    version = str(spec.get("http_version") or "1.1").upper().removeprefix("HTTP/")
    if version not in ("1.0", "1.1"):
        raise UnknownRequest(f"HTTP/{version}")
    return version


def _body(spec: Json) -> bytes:
    if "body_b64" in spec:
        return base64.b64decode(spec["body_b64"])
    if "body_generator" in spec:
        maker = spec["body_generator"]
        prefix, repeated, suffix = (base64.b64decode(maker[f"{k}_b64"]) for k in ("prefix", "repeat", "suffix"))
        return prefix + repeated * int(maker["count"]) + suffix
    return json.dumps(spec["json"], separators=(",", ":")).encode() if "json" in spec else b""


def _in_chunks(body: bytes) -> bytes:
    """At least two chunks, so that nobody can take the first for the whole."""
    size = min(_CHUNK, max(1, len(body) // 2))
    pieces = (body[at : at + size] for at in range(0, len(body), size))
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def substituted(value: Any, captured: Json) -> Any:
    """`{{name}}` replaced in every string of a request."""
    if isinstance(value, str):
        return re.sub(r"\{\{(\w+)\}\}", lambda m: str(captured.get(m[1], m[0])), value)
    if isinstance(value, dict):
        return {key: substituted(item, captured) for key, item in value.items()}
    if isinstance(value, list):
        return [substituted(item, captured) for item in value]
    return value
