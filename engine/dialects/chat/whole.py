"""Answers in one piece: a chat completion taken apart into chunks, and chunks put together into one.

Putting together is generic, so that fields nobody here knows arrive: texts are joined, lists go on, the rest is
what was said last.
"""

from __future__ import annotations

from itertools import starmap
from typing import Any

from engine.dialects.chat.chunks import decode_object, encode
from engine.events import Burst, Finished, FinishReason

Json = dict[str, Any]
_JOINED = {"content", "reasoning_content", "reasoning", "refusal"}


def take_apart(body: bytes) -> bytes:
    """A whole chat completion as the stream that would have said it. Raises ValueError if it is none.

    The result goes through the StreamReader like any other stream, and is mended there.
    """
    answer = decode_object(body)
    if not isinstance(answer.get("choices"), list):
        if "error" in answer or answer.get("object") == "error":
            return b"data: " + encode(answer) + b"\n\n"
        raise ValueError("not a chat completion: it has no choices")
    envelope = {key: value for key, value in answer.items() if key not in ("choices", "usage")}
    envelope["object"] = "chat.completion.chunk"
    chunks = [{**envelope, "choices": [choice]} for choice in starmap(_as_delta, enumerate(answer["choices"]))]
    if answer.get("usage"):
        chunks.append({**envelope, "choices": [], "usage": answer["usage"]})
    return b"".join(b"data: " + encode(chunk) + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


def _as_delta(at: int, choice: Any) -> Json:
    said: Json = choice if isinstance(choice, dict) else {}
    delta = dict(said.get("message") or {})
    if isinstance(delta.get("tool_calls"), list):
        delta["tool_calls"] = [
            {**call, "index": at} if isinstance(call, dict) else call for at, call in enumerate(delta["tool_calls"])
        ]
    index = said.get("index")
    others = {key: value for key, value in said.items() if key != "message"}
    return {**others, "index": index if isinstance(index, int) else at, "delta": delta}


class Assembler:
    """Chunks in, one chat completion out."""

    def __init__(self) -> None:
        self._envelope: Json = {}
        self._choices: dict[int, Json] = {}
        self._texts: dict[tuple[int, str], list[str]] = {}
        self._arguments: dict[tuple[int, int, str], list[str]] = {}
        self._usage: object = None

    def add(self, burst: Burst) -> None:
        for frame in burst.frames:
            chunk = decode_object(frame.data)
            if chunk.get("usage"):
                self._usage = chunk["usage"]
            for choice in chunk.pop("choices", None) or ():
                self._add_choice(choice)
            chunk.pop("usage", None)
            self._envelope |= chunk
            self._end_choices(frame.events)

    def result(self) -> bytes:
        """The response body."""
        for (index, key), pieces in self._texts.items():
            self._choices[index]["message"][key] = "".join(pieces)
        for (index, call, path), pieces in self._arguments.items():
            kind, field = path.split(".")
            self._choices[index]["message"]["tool_calls"][call][kind][field] = "".join(pieces)
        choices = [self._choices[index] for index in sorted(self._choices)]
        answer = {**self._envelope, "object": "chat.completion", "choices": choices}
        if self._usage is not None:
            answer["usage"] = self._usage
        return encode(answer)

    def _end_choices(self, events: tuple[object, ...]) -> None:
        for event in events:
            if isinstance(event, Finished):
                self._choices[event.choice]["finish_reason"] = str(FinishReason(event.reason))

    def _add_choice(self, choice: Json) -> None:
        index: int = choice["index"]
        whole = self._choices.get(index)
        if whole is None:
            message: Json = {"role": "assistant", "content": None, "refusal": None}
            whole = self._choices[index] = {
                "index": index,
                "message": message,
                "logprobs": None,
                "finish_reason": None,
            }
        for key, value in choice.items():
            if key == "delta":
                self._add_delta(index, whole["message"], value)
            elif key == "logprobs":
                whole[key] = _joined_logprobs(whole[key], value)
            elif isinstance(value, list):
                whole[key] = _merged(whole.get(key), value)
            elif value is not None:
                whole[key] = value

    def _add_delta(self, index: int, message: Json, delta: Json) -> None:
        for key, value in delta.items():
            if key in _JOINED and isinstance(value, str):
                self._texts.setdefault((index, key), []).append(value)
            elif key == "tool_calls" and value:
                self._add_calls(index, message.setdefault("tool_calls", []), value)
            elif value is not None:
                message[key] = _merged(message.get(key), value) if key != "role" else value

    def _add_calls(self, index: int, calls: list[Json], pieces: list[Json]) -> None:
        for piece in pieces:
            number: int = piece["index"]
            if number == len(calls):
                calls.append({})
            call = calls[number]
            for key, value in piece.items():
                if key in ("function", "custom"):
                    self._add_body(index, number, key, call.setdefault(key, {}), value)
                elif key != "index":
                    call[key] = value

    def _add_body(self, index: int, number: int, kind: str, body: Json, piece: Json) -> None:
        for key, value in piece.items():
            if key in ("arguments", "input") and isinstance(value, str):
                body.setdefault(key, "")
                self._arguments.setdefault((index, number, f"{kind}.{key}"), []).append(value)
            elif value is not None:
                body[key] = body.get(key, "") + value if key == "name" and isinstance(value, str) else value


def _joined_logprobs(so_far: Any, more: Any) -> Any:
    if not isinstance(more, dict):
        return so_far
    return _merged(so_far, more)


def _merged(so_far: Any, more: Any) -> Any:
    """Texts are joined and lists go on, at any depth; what is neither is replaced."""
    if isinstance(so_far, str) and isinstance(more, str):
        return so_far + more
    if isinstance(so_far, list) and isinstance(more, list):
        so_far.extend(more)
        return so_far
    if isinstance(so_far, dict) and isinstance(more, dict):
        for key, value in more.items():
            so_far[key] = _merged(so_far.get(key), value)
        return so_far
    return so_far if more is None else more
