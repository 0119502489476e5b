"""What a well-formed stream chunk looks like, as types. A chunk that decodes is well typed; one that does not is
left to repair.py. Fields that are not named here are not looked at, and so pass untouched."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from engine.events import UsageReported


class FunctionPiece(Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class CustomPiece(Struct, gc=False):
    name: str | None = None
    input: str | None = None


class CallPiece(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: FunctionPiece | None = None
    custom: CustomPiece | None = None


class Delta(Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[CallPiece] | None = None
    function_call: Raw | UnsetType = UNSET
    audio: Raw | UnsetType = UNSET

    def is_empty(self) -> bool:
        """Whether it says nothing (a role alone is nothing)."""
        said = self.content or self.reasoning_content or self.reasoning or self.refusal
        return not said and self.tool_calls is None and self.function_call is UNSET and self.audio is UNSET


class Choice(Struct, gc=False):
    delta: Delta
    index: int
    finish_reason: str | None = None


class Details(Struct, gc=False):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class Usage(Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: Details | None = None
    completion_tokens_details: Details | None = None


class Chunk(Struct, gc=False):
    choices: list[Choice]
    usage: Usage | None = None
    error: Raw | None = None
    object: str | None = None


_SURROGATES = re.compile("[\ud800-\udfff]")

decode_chunk = msgspec.json.Decoder(Chunk).decode
encode = msgspec.json.encode


def decode_object(data: bytes) -> dict[str, Any]:
    """Any JSON object, also one with escaped lone surrogates, which become U+FFFD. Raises ValueError."""
    try:
        value = _decode_any(data)
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 — a value error of the peer's data, not of a caller
    return value


def _decode_any(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        text = json.dumps(json.loads(data.decode("utf-8", "replace")), ensure_ascii=False)
        return json.loads(_SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text))


def report(usage: Usage) -> UsageReported:
    """The counts in neutral words; what was not said stays None."""
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    return UsageReported(
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.total_tokens,
        prompt.cached_tokens if prompt else None,
        completion.reasoning_tokens if completion else None,
    )


def report_any(usage: object) -> UsageReported:
    """The same for counts of whatever type: what is not a whole number was not said."""
    try:
        return report(msgspec.convert(usage, Usage, strict=False))
    except msgspec.ValidationError:
        return UsageReported()
