"""A prompt for a Chat Completions upstream: the client's own body, with as little changed as can be."""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw

from engine.prompt import Prompt

_fields = msgspec.json.Decoder(dict[str, Raw])
_TRUE = Raw(b"true")
_ESCAPED_KEY = re.compile(rb'\\u[0-9a-fA-F]{4}[^"\\]*"\s*:')


def upstream_body(prompt: Prompt, model: str, *, ask_usage: bool) -> bytes:
    """The request body to send up.

    The upstream is always asked to stream, also for a client that wants the answer whole: only a stream shows that
    an answer is being made, and only a stream can be cancelled before it is finished. Usage is asked for where the
    client wants it, where a whole answer must have it, or where the operator counts it (`ask_usage`).
    """
    ask_usage = ask_usage or prompt.wants_usage or not prompt.wants_stream
    is_right = prompt.wants_stream and model == prompt.model and prompt.wants_usage == ask_usage
    if is_right and _names_one_model(prompt.body):
        return prompt.body
    fields = _fields.decode(prompt.body)
    fields["model"] = Raw(msgspec.json.encode(model))
    fields["stream"] = _TRUE
    if ask_usage:
        fields["stream_options"] = _with_usage(fields.get("stream_options"))
    return msgspec.json.encode(fields)


def _names_one_model(body: bytes) -> bool:
    """Whether no reader of the body can see another model than we did: with the key twice (or once more in escapes),
    some parsers take the first."""
    return body.count(b'"model"') == 1 and (b"\\u" not in body or _ESCAPED_KEY.search(body) is None)


def _with_usage(options: Raw | None) -> Raw:
    said = _fields.decode(options) if options is not None and bytes(options) != b"null" else {}
    said["include_usage"] = _TRUE
    return Raw(msgspec.json.encode(said))
