"""A turn's bursts as a Responses client wants them: items that grow, the events that say so, and the response object.

One run of output indexes and one id an item, the same in the events, in the final object and in what is kept. A message
ends where a call or a thought begins; calls stay open to the end, because servers send pieces of them in between.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from engine.dialects.responses.items import Json, new_id
from engine.dialects.responses.outgoing import Tool
from engine.dialects.responses.request import Asked, Format
from engine.errors import Fault
from engine.events import (
    Burst,
    Completed,
    End,
    Event,
    Failed,
    Finished,
    FinishReason,
    Frame,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
    ToolNameDelta,
    UsageReported,
)
from engine.framing import sse

_INCOMPLETE = {FinishReason.LENGTH: "max_output_tokens", FinishReason.CONTENT_FILTER: "content_filter"}


class Made:
    """A response while it is being made: its id and what of the request is echoed in it."""

    def __init__(self, asked: Asked) -> None:
        self.id = new_id("resp")
        self.created_at = int(time.time())
        self.usage: Json | None = None
        self._echo = _echo(asked)

    def as_object(self, status: str, output: Sequence[Json], error: Json | None, incomplete: str | None) -> Json:
        """The response object, whole."""
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created_at,
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "error": error,
            "incomplete_details": {"reason": incomplete} if incomplete is not None else None,
            "output": output,
            "usage": self.usage,
            **self._echo,
        }


def _echo(asked: Asked) -> Json:
    request = asked.request
    reasoning, text = request.reasoning, request.text
    shown: Json = {"format": _shown_format(text.format if text is not None else None)}
    if text is not None and text.verbosity is not None:
        shown["verbosity"] = text.verbosity
    return {
        "background": False,
        "conversation": None,
        "frequency_penalty": request.frequency_penalty or 0.0,
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "max_tool_calls": request.max_tool_calls,
        "metadata": asked.metadata,
        "model": request.model,
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "presence_penalty": request.presence_penalty or 0.0,
        "previous_response_id": request.previous_response_id,
        "prompt_cache_key": request.prompt_cache_key,
        "reasoning": {
            "effort": reasoning.effort if reasoning is not None else None,
            "summary": reasoning.summary if reasoning is not None else None,
        },
        "safety_identifier": request.safety_identifier,
        "service_tier": request.service_tier or "default",
        "store": asked.is_stored,
        "temperature": 1.0 if request.temperature is None else request.temperature,
        "text": shown,
        "tool_choice": request.tool_choice or "auto",
        "tools": [_shown_tool(tool) for tool in request.tools or ()],
        "top_logprobs": request.top_logprobs or 0,
        "top_p": 1.0 if request.top_p is None else request.top_p,
        "truncation": request.truncation or "disabled",
        "user": request.user,
    }


def _shown_format(wanted: Format | None) -> Json:
    if wanted is None or wanted.type != "json_schema":
        return {"type": wanted.type if wanted is not None else "text"}
    return {
        "type": wanted.type,
        "name": wanted.name,
        "description": wanted.description,
        "schema": wanted.schema,
        "strict": bool(wanted.strict),
    }


def _shown_tool(tool: Json) -> Json:
    """Functions in their flat form, with every field of it."""
    if tool.get("type") != "function":
        return tool
    inner = tool.get("function")
    said = {**tool, **inner} if isinstance(inner, dict) else tool
    said = {key: value for key, value in said.items() if key != "function"}
    return {"description": None, "parameters": None, "strict": None, **said}


class _Call:
    """A tool call that is open. It is announced when its name is certain, or can wait no longer."""

    def __init__(self, id_: str, name: str) -> None:
        self.call_id = id_
        self.name = name
        self.arguments: list[str] = []
        self.index: int | None = None
        self.item: Json = {}


class Writer:
    """Bursts in, events out."""

    content_type = b"text/event-stream; charset=utf-8"
    keep_alive = sse.comment(b"keep-alive")

    def __init__(self, asked: Asked, tools: Mapping[str, Tool]) -> None:
        self.made = Made(asked)
        self._fault: Fault | None = None
        self.announced = self.response("in_progress", [])
        """The response object before anything was said, as JSON."""
        self.final: msgspec.Raw | None = None
        """The response object once it is over, as JSON."""
        self._status = "in_progress"
        self._tools = tools
        self._wants_logprobs = asked.wants_logprobs
        self._events: list[bytes] = []
        self._number = 0
        self._has_begun = False
        self._items: list[Json] = []
        self._is_done: list[bool] = []
        self._open: int | None = None
        """The message or the thought that text goes to."""
        self._pieces: list[str] = []
        self._logprobs: list[Any] = []
        self._calls: dict[int, _Call] = {}
        self._reason: FinishReason | None = None

    def encode(self, burst: Burst) -> bytes:
        """All of a burst but the terminal event, for one write. After an end, `final` is there."""
        if not self._has_begun:
            self._has_begun = True
            for kind in ("response.created", "response.in_progress"):
                self._say(kind, response=self.announced)
        for frame in burst.frames:
            logprobs = _logprobs_of(frame) if self._wants_logprobs else []
            for event in frame.events:
                self._take(event, logprobs)
        if burst.end is not None:
            self._end(burst.end)
        return self._said()

    def terminal(self) -> bytes:
        """The last event, and before a failure the error in a form of its own: some clients look at one, some at the
        other."""
        if self._fault is not None:
            more = {**_error_of(self._fault), "param": self._fault.param}
            self._say("error", **more, error={"type": self._fault.type or self._fault.row.openai_type, **more})
        self._say(f"response.{self._status}", response=self.final)
        return self._said()

    def done_items(self) -> list[Json]:
        return [item for item, is_done in zip(self._items, self._is_done, strict=True) if is_done]

    def fail(self, fault: Fault) -> None:
        """What is still to be said is that it failed. Of the items those remain that were done."""
        self._fault = fault
        self._status = "failed"
        self.final = self.response(self._status, self.done_items())

    def response(self, status: str, output: Sequence[Json], *, incomplete: str | None = None) -> msgspec.Raw:
        """The response object, whole, as JSON."""
        error = _error_of(self._fault) if self._fault is not None else None
        return msgspec.Raw(msgspec.json.encode(self.made.as_object(status, output, error, incomplete)))

    def _said(self) -> bytes:
        said = b"".join(self._events)
        self._events.clear()
        return said

    def _say(self, kind: str, **fields: Any) -> None:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        self._events.append(sse.encode(msgspec.json.encode(event), kind.encode()))

    # Events

    def _take(self, event: Event, logprobs: list[Any]) -> None:
        match event:
            case TextDelta(0, text):
                self._add_text("output_text", text, logprobs)
            case RefusalDelta(0, text):
                self._add_text("refusal", text, [])
            case ReasoningDelta(0, text):
                self._add_thought(text)
            case ToolCallStarted(0, call, id_, name):
                self._announce_calls()
                self._calls[call] = _Call(id_, name)
            case ToolNameDelta(0, call, text):
                self._calls[call].name += text
            case ToolArgumentsDelta(0, call, text):
                self._add_arguments(self._calls[call], text)
            case Finished(0, reason):
                self._reason = reason
            case UsageReported():
                self.made.usage = _usage(event)
            case _:
                pass  # what has no neutral word yet, and choices that nobody asked for

    def _add_item(self, item: Json) -> int:
        self._items.append(item)
        self._is_done.append(False)
        index = len(self._items) - 1
        self._say("response.output_item.added", output_index=index, item={**item, "status": "in_progress"})
        return index

    def _finish_item(self, index: int, status: str) -> None:
        item = self._items[index]
        item["status"] = status
        self._is_done[index] = True
        self._say("response.output_item.done", output_index=index, item=item)

    def _add_text(self, kind: str, text: str, logprobs: list[Any]) -> None:
        self._announce_calls()
        if self._open is None or self._items[self._open]["type"] != "message":
            self._close("completed")
            self._open = self._add_item({"type": "message", "id": new_id("msg"), "role": "assistant", "content": []})
        item = self._items[self._open]
        if not item["content"] or item["content"][-1]["type"] != kind:
            self._close_part()
            item["content"].append(_part(kind, ""))
            self._say("response.content_part.added", **self._where(), part=_part(kind, ""))
        self._pieces.append(text)
        if kind == "refusal":
            self._say("response.refusal.delta", **self._where(), delta=text)
        else:
            self._logprobs += logprobs
            self._say("response.output_text.delta", **self._where(), delta=text, logprobs=logprobs)

    def _where(self) -> Json:
        """Of the part that is open."""
        assert self._open is not None
        item = self._items[self._open]
        return {"item_id": item["id"], "output_index": self._open, "content_index": len(item["content"]) - 1}

    def _close_part(self) -> None:
        assert self._open is not None
        item = self._items[self._open]
        if not item["content"]:
            return
        part, text = item["content"][-1], "".join(self._pieces)
        self._pieces.clear()
        if part["type"] == "refusal":
            part["refusal"] = text
            self._say("response.refusal.done", **self._where(), refusal=text)
        else:
            part["text"], part["logprobs"] = text, self._logprobs
            self._say("response.output_text.done", **self._where(), text=text, logprobs=self._logprobs)
            self._logprobs = []
        self._say("response.content_part.done", **self._where(), part=part)

    def _add_thought(self, text: str) -> None:
        self._announce_calls()
        if self._open is None or self._items[self._open]["type"] != "reasoning":
            self._close("completed")
            self._open = self._add_item({"type": "reasoning", "id": new_id("rs"), "summary": []})
            part = {"type": "summary_text", "text": ""}
            self._say("response.reasoning_summary_part.added", **self._of_summary(), part=part)
        self._pieces.append(text)
        self._say("response.reasoning_summary_text.delta", **self._of_summary(), delta=text)

    def _of_summary(self) -> Json:
        assert self._open is not None
        return {"item_id": self._items[self._open]["id"], "output_index": self._open, "summary_index": 0}

    def _close(self, status: str) -> None:
        """The message or the thought that is open has had its last word."""
        if self._open is None:
            return
        item = self._items[self._open]
        if item["type"] == "message":
            self._close_part()
        else:
            part = {"type": "summary_text", "text": "".join(self._pieces)}
            self._pieces.clear()
            item["summary"].append(part)
            self._say("response.reasoning_summary_text.done", **self._of_summary(), text=part["text"])
            self._say("response.reasoning_summary_part.done", **self._of_summary(), part=part)
        self._finish_item(self._open, status)
        self._open = None

    # Calls

    def _announce_calls(self) -> None:
        for call in self._calls.values():
            if call.index is None:
                self._announce(call)

    def _announce(self, call: _Call) -> None:
        self._close("completed")
        tool = self._tools.get(call.name)
        is_custom = tool is not None and tool.is_custom
        kind, prefix, field = (
            ("custom_tool_call", "ctc", "input") if is_custom else ("function_call", "fc", "arguments")
        )
        name = tool.name if tool is not None else call.name
        call.item = {"type": kind, "id": new_id(prefix), "call_id": call.call_id, "name": name, field: ""}
        if tool is not None and tool.namespace is not None:
            call.item["namespace"] = tool.namespace
        call.index = self._add_item(call.item)

    def _add_arguments(self, call: _Call, text: str) -> None:
        if call.index is None:
            self._announce(call)
        call.arguments.append(text)
        if call.item["type"] == "function_call":
            self._say("response.function_call_arguments.delta", **_of_call(call), delta=text)

    def _finish_call(self, call: _Call, status: str) -> None:
        assert call.index is not None
        arguments = "".join(call.arguments)
        if call.item["type"] == "function_call":
            call.item["arguments"] = arguments
            self._say(
                "response.function_call_arguments.done", **_of_call(call), name=call.item["name"], arguments=arguments
            )
        else:
            call.item["input"] = text = _input_of(arguments)
            self._say("response.custom_tool_call_input.delta", **_of_call(call), delta=text)
            self._say("response.custom_tool_call_input.done", **_of_call(call), input=text)
        self._finish_item(call.index, status)

    # The end

    def _end(self, end: End) -> None:
        if isinstance(end, Failed):
            self.fail(end.fault)
            return
        assert isinstance(end, Completed)
        incomplete = _INCOMPLETE.get(self._reason) if self._reason is not None else None
        status = "completed" if incomplete is None else "incomplete"
        self._announce_calls()
        open_calls = sorted(self._calls.values(), key=lambda call: call.index or 0)
        last = self._open if self._open is not None else max((call.index or 0 for call in open_calls), default=None)
        for call in open_calls:
            if self._open is not None and call.index is not None and call.index > self._open:
                self._close(status if last == self._open else "completed")
            self._finish_call(call, status if call.index == last else "completed")
        self._close(status)
        self._status = status
        self.final = self.response(status, self._items, incomplete=incomplete)


def _of_call(call: _Call) -> Json:
    return {"item_id": call.item["id"], "output_index": call.index}


def _part(kind: str, text: str) -> Json:
    if kind == "refusal":
        return {"type": kind, "refusal": text}
    return {"type": kind, "text": text, "annotations": [], "logprobs": []}


def _input_of(arguments: str) -> str:
    """A custom tool's free text, from the function that it was for the upstream; as it came if it is no such."""
    try:
        said = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments
    text = said.get("input") if isinstance(said, dict) else None
    return text if isinstance(text, str) else arguments


def _logprobs_of(frame: Frame) -> list[Any]:
    choices = msgspec.json.decode(frame.data).get("choices") or [{}]
    logprobs = choices[0].get("logprobs") or {}
    return [
        {"bytes": each.get("bytes") or [], "top_logprobs": each.get("top_logprobs") or [], **each}
        for each in logprobs.get("content") or ()
    ]


def _usage(said: UsageReported) -> Json | None:
    """Totals are the upstream's, or a sum of its own; where it gave none, there is no usage. Of the details the schema
    wants a number: 0 where the upstream said nothing of it."""
    if said.prompt_tokens is None or said.completion_tokens is None:
        return None
    total = said.total_tokens if said.total_tokens is not None else said.prompt_tokens + said.completion_tokens
    return {
        "input_tokens": said.prompt_tokens,
        "input_tokens_details": {"cached_tokens": said.cached_tokens or 0},
        "output_tokens": said.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": said.reasoning_tokens or 0},
        "total_tokens": total,
    }


def _error_of(fault: Fault) -> Json:
    row = fault.row
    return {"code": fault.code or row.openai_code or row.openai_type, "message": fault.message}
