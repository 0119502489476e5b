"""Mending one chunk: what real servers send, made into what the protocol says, with every other field kept.

Works on the chunk as a dict, since unknown fields must survive. The reader comes here only for chunks that are not
plain text in good form.
"""

from __future__ import annotations

from typing import Any

from engine.dialects.chat.calls import Placed, ToolCalls
from engine.dialects.chat.chunks import encode
from engine.dialects.chat.think import ThinkTags
from engine.events import (
    Event,
    FinishReason,
    OtherContent,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
    ToolNameDelta,
)

Json = dict[str, Any]


class ChoiceState:
    """What is remembered of one choice (its `index`) while it streams."""

    def __init__(self, index: int, *, think_tags: bool) -> None:
        self.index = index
        self.calls = ToolCalls()
        self.function_name: str | None = None
        self.tags = ThinkTags() if think_tags else None
        self.last_chunk: Json | bytes | None = None
        """The chunk that carries the finish reason, held until it is certain that nothing follows it: as the bytes it
        came in, where it is in good form."""
        self.reason: FinishReason | None = None
        self.said_reason: str | None = None

    def final_reason(self) -> FinishReason:
        """Calls that were made end a choice with `tool_calls`, where the server says `stop` or nothing."""
        if self.reason in (None, FinishReason.STOP):
            if len(self.calls):
                return FinishReason.TOOL_CALLS
            return FinishReason.FUNCTION_CALL if self.function_name is not None else FinishReason.STOP
        assert self.reason is not None
        return self.reason


def mend_delta(said: object, state: ChoiceState) -> tuple[Json, list[Event]]:
    """A choice's delta with the protocol's types, and what it says."""
    delta: Json = dict(said) if isinstance(said, dict) else {}
    events: list[Event] = []
    if isinstance(delta.get("content"), list):
        _flatten_content(delta)
    if state.tags is not None and isinstance(delta.get("content"), str):
        _split_tags(delta, state.tags)
    for key in ("reasoning_content", "reasoning"):
        if isinstance(delta.get(key), str) and delta[key]:
            events.append(ReasoningDelta(state.index, delta[key]))
            break
    if isinstance(delta.get("content"), str) and delta["content"]:
        events.append(TextDelta(state.index, delta["content"]))
    if isinstance(delta.get("refusal"), str) and delta["refusal"]:
        events.append(RefusalDelta(state.index, delta["refusal"]))
    if isinstance(delta.get("tool_calls"), list):
        delta["tool_calls"] = _mend_calls(delta["tool_calls"], state, events)
        if not delta["tool_calls"]:
            del delta["tool_calls"]
    elif "tool_calls" in delta:
        del delta["tool_calls"]
    if delta.get("function_call"):
        delta["function_call"] = _mend_function_call(delta["function_call"], state)
        events.append(OtherContent(state.index))
    elif delta.get("audio"):
        events.append(OtherContent(state.index))
    return delta, events


def _mend_function_call(said: Any, state: ChoiceState) -> Any:
    """The legacy form of a call: its name once, however often it is said."""
    if not isinstance(said, dict):
        return said
    call: Json = dict(said)
    if state.function_name is not None and call.get("name") == state.function_name:
        del call["name"]
    state.function_name = state.function_name or str(call.get("name") or "")
    return call


def _flatten_content(delta: Json) -> None:
    """Content as a list of parts (Mistral's reasoning models) becomes text and reasoning."""
    text, reasoning = "", ""
    for part in delta["content"]:
        if not isinstance(part, dict):
            text += part if isinstance(part, str) else ""
        elif part.get("type") == "thinking":
            inner = part.get("thinking")
            pieces = inner if isinstance(inner, list) else [{"text": inner}]
            reasoning += "".join(str(piece.get("text") or "") for piece in pieces if isinstance(piece, dict))
        else:
            text += str(part.get("text") or "")
    delta["content"] = text
    if reasoning:
        delta["reasoning_content"] = str(delta.get("reasoning_content") or "") + reasoning


def _split_tags(delta: Json, tags: ThinkTags) -> None:
    reasoning, text = tags.split(delta["content"])
    if text or not delta["content"]:
        delta["content"] = text
    else:
        del delta["content"]
    if reasoning:
        delta["reasoning_content"] = str(delta.get("reasoning_content") or "") + reasoning


def _mend_calls(said: list[Any], state: ChoiceState, events: list[Event]) -> list[Json]:
    """Each call once, with its number; id, type and name only where it begins; arguments as text."""
    mended: dict[int, Json] = {}
    for piece in said:
        if not isinstance(piece, dict):
            continue
        kind = "custom" if isinstance(piece.get("custom"), dict) else "function"
        body = piece.get(kind) if isinstance(piece.get(kind), dict) else {}
        assert isinstance(body, dict)
        field = "input" if kind == "custom" else "arguments"
        placed = state.calls.place(
            _whole_number(piece.get("index")),
            _text(piece.get("id")),
            _text(body.get("name")),
            _arguments(body.get(field)),
        )
        events.extend(say_call(state.index, placed))
        entry = _entry(piece, kind, field, body, placed)
        number = placed.call.number
        if number in mended:
            mended[number].setdefault(kind, {}).setdefault(field, "")
            mended[number][kind][field] += placed.arguments
        else:
            mended[number] = entry
    return list(mended.values())


def _entry(piece: Json, kind: str, field: str, body: Json, placed: Placed) -> Json:
    entry = {**piece, "index": placed.call.number, kind: {**body, field: placed.arguments}}
    if placed.is_new:
        entry |= {"id": placed.call.id, "type": piece.get("type") or kind}
        entry[kind]["name"] = placed.call.name
        return entry
    for key in ("id", "type"):
        entry.pop(key, None)
    entry[kind].pop("name", None)
    if placed.name:
        entry[kind]["name"] = placed.name
    return entry


def say_call(choice: int, placed: Placed) -> list[Event]:
    """What a placed delta says, in neutral words."""
    events: list[Event] = []
    call = placed.call
    if placed.is_new:
        events.append(ToolCallStarted(choice, call.number, call.id, call.name))
    elif placed.name:
        events.append(ToolNameDelta(choice, call.number, placed.name))
    if placed.arguments:
        events.append(ToolArgumentsDelta(choice, call.number, placed.arguments))
    return events


def _whole_number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _arguments(value: object) -> str:
    """Arguments are JSON text; some servers send the object itself."""
    if value is None:
        return ""
    return value if isinstance(value, str) else encode(value).decode()


_REASONS = {
    **{str(reason): reason for reason in FinishReason},
    "max_tokens": FinishReason.LENGTH,
    "max_output_tokens": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,
    "tool_use": FinishReason.TOOL_CALLS,
    "tool_call": FinishReason.TOOL_CALLS,
    "safety": FinishReason.CONTENT_FILTER,
    "recitation": FinishReason.CONTENT_FILTER,
    "refusal": FinishReason.CONTENT_FILTER,
}

BROKEN_OFF = ("error", "abort", "aborted", "cancelled", "insufficient_system_resource", "network_error")
"""Finish reasons by which a server says that the answer is not whole."""


def finish_reason(said: str) -> FinishReason:
    """The protocol's word for a server's own; one that nobody knows still says that the model stopped."""
    return _REASONS.get(said.lower(), FinishReason.STOP)
