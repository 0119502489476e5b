"""What a strict Chat Completions client makes of an answer, streamed or whole.

Tool calls are accumulated additively by index (id, name and arguments concatenated), as strict SDKs do: a
gateway that repeats an id or a name shows here.
"""

from __future__ import annotations

from typing import Any

from tests.cases.observation.sse import Json

_TEXTS = ("text", "reasoning", "refusal")
_OF_CHOICE_0 = ("text", "reasoning", "refusal", "tool_calls", "finish", "role_chunks")
_OF_WHOLE_CHOICE_0 = ("message", "logprobs", "content_is_null")


def derive_chat(sse: Json | None, body: Any) -> Json:
    out: Json = {"choices": {}, "usage": [], "usage_empty_choices": 0, "error": None, "ids": [], "models": []}
    if sse is not None:
        for event in sse["events"]:
            if isinstance(event["json"], dict):
                _add_chunk(out, event["json"])
        _join_pieces(out)
    elif isinstance(body, dict):
        _add_whole(out, body)
    first = out["choices"].get("0") or _blank_choice()
    out |= {key: first[key] for key in _OF_CHOICE_0}
    if "message" in first:
        out |= {key: first[key] for key in _OF_WHOLE_CHOICE_0}
    return out


def _blank_choice() -> Json:
    return {"text": "", "reasoning": "", "refusal": "", "tool_calls": [], "finish": [], "role_chunks": 0}


def _reasoning(of: Json) -> str:
    return of.get("reasoning_content") or of.get("reasoning") or ""


def _add_whole(out: Json, body: Json) -> None:
    out["error"] = body.get("error")
    if body.get("usage"):
        out["usage"].append(body["usage"])
    for choice in body.get("choices") or []:
        out["choices"][str(choice.get("index", 0))] = _whole_choice(choice)


def _whole_choice(choice: Json) -> Json:
    message = choice.get("message") or {}
    finish = choice.get("finish_reason")
    return {
        **_blank_choice(),
        "text": message.get("content") or "",
        "content_is_null": message.get("content") is None,
        "reasoning": _reasoning(message),
        "refusal": message.get("refusal") or "",
        "tool_calls": [_whole_call(call) for call in message.get("tool_calls") or []],
        "finish": [] if finish is None else [finish],
        "message": message,
        "logprobs": choice.get("logprobs"),
    }


def _whole_call(call: Json) -> Json:
    function = call.get("function") or {}
    return {
        "index": call.get("index"),
        "has_index": "index" in call,
        "id": call.get("id"),
        "type": call.get("type"),
        "name": function.get("name"),
        "arguments": function.get("arguments"),
    }


def _add_chunk(out: Json, chunk: Json) -> None:
    if chunk.get("error") is not None:
        out["error"] = out["error"] or chunk["error"]
        return
    if chunk.get("id") and chunk["id"] not in out["ids"]:
        out["ids"].append(chunk["id"])
    if chunk.get("usage"):
        out["usage"].append(chunk["usage"])
        out["usage_empty_choices"] += chunk.get("choices") == []
    for choice in chunk.get("choices") or []:
        _add_delta(out["choices"].setdefault(str(choice.get("index", 0)), _choice_in_pieces()), choice)


def _add_delta(so_far: Json, choice: Json) -> None:
    delta = choice.get("delta") or {}
    so_far["text"].append(delta.get("content") or "")
    so_far["reasoning"].append(_reasoning(delta))
    so_far["refusal"].append(delta.get("refusal") or "")
    so_far["role_chunks"] += delta.get("role") is not None
    for piece in delta.get("tool_calls") or []:
        _add_call_piece(_call_at(so_far["tool_calls"], piece.get("index")), piece)
    if choice.get("finish_reason") is not None:
        so_far["finish"].append(choice["finish_reason"])


def _choice_in_pieces() -> Json:
    """Texts as lists, joined at the end: adding 200,000 strings one by one takes seconds of copying."""
    return {**_blank_choice(), **{key: [] for key in _TEXTS}}


def _join_pieces(out: Json) -> None:
    for choice in out["choices"].values():
        choice.update({key: "".join(choice[key]) for key in _TEXTS})


def _call_at(calls: list[Json], index: Any) -> Json:
    for call in calls:
        if call["index"] == index:
            return call
    calls.append({"index": index, "id": "", "type": None, "name": "", "arguments": ""})
    return calls[-1]


def _add_call_piece(call: Json, piece: Json) -> None:
    function = piece.get("function") or {}
    call["id"] += piece.get("id") or ""
    call["type"] = piece.get("type") or call["type"]
    call["name"] += function.get("name") or ""
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        call["arguments"] = call["arguments"] + arguments
    elif arguments is not None:
        call["arguments"] = arguments
    if piece.get("extra_content") is not None:
        call["extra_content"] = piece["extra_content"]
