"""What a strict Responses client makes of an answer, and every way the event order was unlawful."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tests.cases.observation.sse import DONE, Json

_TERMINAL = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_ABOUT_THE_WHOLE = ("response.created", "response.in_progress", "response.queued")
_NEEDS_CONTENT_INDEX = (
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.added",
    "response.content_part.done",
)
_OF_CALL = ("type", "name", "call_id", "arguments", "input", "id", "status")


def derive_responses(sse: Json | None, body: Any) -> Json:
    stream = _Stream()
    if sse is not None:
        for event in sse["events"]:
            stream.take(event)
        stream.finish()
    elif isinstance(body, dict):
        stream.out["error"] = body.get("error")
        stream.out["final"] = body if body.get("object") == "response" else None
    return {**stream.out, **_of_final(stream.out["final"] or {})}


def _of_final(final: Json) -> Json:
    items = final.get("output") or []
    messages = [item for item in items if item.get("type") == "message"]
    parts = [part for message in messages for part in message.get("content") or []]
    calls = [item for item in items if item.get("type") in ("function_call", "custom_tool_call")]
    return {
        "status": final.get("status"),
        "items": items,
        "item_types": [item.get("type") for item in items],
        "text": "".join(part.get("text") or "" for part in parts if part.get("type") == "output_text"),
        "calls": [{key: call.get(key) for key in _OF_CALL} for call in calls],
    }


class _Stream:
    """The observation so far, the items that were announced, and the pieces of each text and argument."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.items: dict[Any, Json] = {}
        self.texts: dict[Any, str] = {}
        self.arguments: dict[Any, str] = {}
        self.out: Json = {
            "types": [],
            "final": None,
            "error": None,
            "lifecycle": self.problems,
            "seq": [],
            "terminals": 0,
        }

    def take(self, event: Json) -> None:
        it = event["json"]
        if not isinstance(it, dict):
            if event["data"].strip() != DONE:
                self.problems.append(f"event without JSON: {event['data'][:40]!r}")
            return
        kind = it.get("type")
        self._note(event["event"], kind, it)
        if kind == "error":
            self.out["error"] = it.get("error") or {key: it.get(key) for key in ("code", "message", "param")}
        elif kind in _TERMINAL:
            self._end(it.get("response"))
        elif kind == "response.output_item.added":
            self._add_item(it)
        elif kind == "response.output_item.done":
            self._finish_item(it)
        elif kind not in _ABOUT_THE_WHOLE:
            self._change_item(kind, it)

    def _note(self, name: Any, kind: Any, it: Json) -> None:
        self.out["types"].append(kind)
        if name != kind:
            self.problems.append(f"event name {name!r} differs from type {kind!r}")
        self.out["seq"].append(it.get("sequence_number"))
        if self.out["terminals"]:
            self.problems.append(f"{kind} after the terminal event")

    def _end(self, response: Any) -> None:
        self.out["terminals"] += 1
        self.out["final"] = response
        self.out["error"] = (response or {}).get("error")

    def _add_item(self, it: Json) -> None:
        index = it.get("output_index")
        if index in self.items or index != len(self.items):
            self.problems.append(f"output_index {index} reused or out of order")
        self.items[index] = {"id": (it.get("item") or {}).get("id"), "added": it.get("item"), "done": None}

    def _finish_item(self, it: Json) -> None:
        item = self.items.get(it.get("output_index"))
        if item is None:
            self.problems.append("item done without added")
            return
        if item["done"] is not None:
            self.problems.append("item done twice")
        item["done"] = it.get("item")
        if (it.get("item") or {}).get("id") != item["id"]:
            self.problems.append("item id differs between added and done")

    def _change_item(self, kind: Any, it: Json) -> None:
        index = it.get("output_index")
        if kind in _NEEDS_CONTENT_INDEX and not isinstance(it.get("content_index"), int):
            self.problems.append(f"{kind} without content_index")
        item = self.items.get(index)
        if item is None or item["done"] is not None:
            self.problems.append(f"{kind} for an item that is not open")
        elif it.get("item_id") != item["id"]:
            self.problems.append(f"{kind} carries item_id {it.get('item_id')!r}, item is {item['id']!r}")
        self._add_piece(kind, it, index, (index, it.get("content_index")))

    def _add_piece(self, kind: Any, it: Json, index: Any, part: Any) -> None:
        match kind:
            case "response.output_text.delta":
                self.texts[part] = self.texts.get(part, "") + it.get("delta", "")
            case "response.output_text.done" if self.texts.get(part, "") != it.get("text"):
                self.problems.append("output_text.done differs from its deltas")
            case "response.function_call_arguments.delta":
                self.arguments[index] = self.arguments.get(index, "") + it.get("delta", "")
            case "response.function_call_arguments.done":
                if self.arguments.get(index, "") != it.get("arguments"):
                    self.problems.append("function_call_arguments.done differs from its deltas")

    def finish(self) -> None:
        out, types, numbers = self.out, self.out["types"], self.out["seq"]
        if types and types[0] != "response.created":
            self.problems.append("first event is not response.created")
        if not all(isinstance(n, int) for n in numbers) or any(b != a + 1 for a, b in pairwise(numbers)):
            self.problems.append("sequence_number is not a run of +1")
        if not out["terminals"] and types and types[-1] == "error":
            out["terminals"] = 1
        if out["terminals"] != 1:
            self.problems.append(f"{out['terminals']} terminal events")
        final = out["final"] or {}
        if final.get("status") in ("completed", "incomplete"):
            self._compare_with_final(final)
        out["lifecycle_ok"] = not self.problems

    def _compare_with_final(self, final: Json) -> None:
        done = [item["done"] for _, item in sorted(self.items.items())]
        if any(item is None for item in done):
            self.problems.append("item never done")
        if done != (final.get("output") or []):
            self.problems.append("final output differs from the done items")
