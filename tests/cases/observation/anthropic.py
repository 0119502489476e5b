"""What a strict Anthropic Messages client makes of an answer, and every way the event order was unlawful."""

from __future__ import annotations

import json
from typing import Any

from tests.cases.observation.sse import Json

_BLOCK_OF_DELTA = {
    "text_delta": "text",
    "citations_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
}
_KEPT_AS = {"text": "text", "thinking": "thinking", "signature": "signature", "partial_json": "input_raw"}


def derive_anthropic(sse: Json | None, body: Any) -> Json:
    stream = _Stream()
    if sse is None:
        _add_whole(stream.out, body)
        return stream.out
    for event in sse["events"]:
        stream.take(event)
    stream.finish()
    return stream.out


def _add_whole(out: Json, body: Any) -> None:
    if isinstance(body, dict):
        out["error"] = body.get("error")
        out["stop_reason"], out["usage"] = body.get("stop_reason"), body.get("usage") or {}
        out["blocks"] = [{**block} for block in body.get("content") or []]


class _Stream:
    """The observation so far, the block that is open, and whether a stop_reason has come."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.open_block: Any = None
        self.seen_stop_reason = False
        self.out: Json = {
            "types": [],
            "blocks": [],
            "stop_reason": None,
            "usage": {},
            "error": None,
            "message_stops": 0,
            "lifecycle": self.problems,
            "role": None,
        }

    def take(self, event: Json) -> None:
        it = event["json"]
        if not isinstance(it, dict):
            self.problems.append(f"event without a JSON object: {event['data'][:40]!r}")
            return
        kind = it.get("type")
        self.out["types"].append(kind)
        if event["event"] != kind:
            self.problems.append(f"event name {event['event']!r} differs from type {kind!r}")
        match kind:
            case "error":
                self.out["error"] = it.get("error")
            case "message_start":
                self._start_message(it.get("message") or {})
            case "content_block_start":
                self._start_block(it)
            case "content_block_delta" | "content_block_stop":
                self._change_block(it)
            case "message_delta":
                self._change_message(it)
            case "message_stop":
                self.out["message_stops"] += 1

    def _start_message(self, message: Json) -> None:
        if len(self._types_without_pings()) != 1:
            self.problems.append("message_start is not first")
        self.out["usage"].update(message.get("usage") or {})
        self.out["role"] = message.get("role")

    def _start_block(self, it: Json) -> None:
        index, blocks = it.get("index"), self.out["blocks"]
        if self.open_block is not None:
            self.problems.append(f"block {index} started while {self.open_block} open")
        if index != len(blocks):
            self.problems.append(f"block index {index}, wanted {len(blocks)}")
        self.open_block = index
        blocks.append({**(it.get("content_block") or {}), "index": index, "stopped": False, "input_raw": ""})

    def _change_block(self, it: Json) -> None:
        index = it.get("index")
        block = next((b for b in self.out["blocks"] if b["index"] == index), None)
        if block is None or index != self.open_block:
            self.problems.append(f"{it['type']} for block {index} that is not open")
        elif it["type"] == "content_block_stop":
            self._stop_block(block)
        else:
            self._add_delta(block, it.get("delta") or {})

    def _stop_block(self, block: Json) -> None:
        block["stopped"], self.open_block = True, None
        if block.get("type") != "tool_use":
            return
        raw = block["input_raw"]
        try:
            block["input"] = json.loads(raw) if raw.strip() else (block.get("input") or {})
        except ValueError:
            self.problems.append(f"tool input is not JSON: {raw[:40]!r}")

    def _add_delta(self, block: Json, delta: Json) -> None:
        if _BLOCK_OF_DELTA.get(delta.get("type") or "") != block.get("type"):
            self.problems.append(f"{delta.get('type')} in a {block.get('type')} block")
        for name, kept_as in _KEPT_AS.items():
            if delta.get(name) is not None:
                block[kept_as] = (block.get(kept_as) or "") + delta[name]

    def _change_message(self, it: Json) -> None:
        if self.open_block is not None:
            self.problems.append(f"message_delta while block {self.open_block} open")
        stop_reason = (it.get("delta") or {}).get("stop_reason")
        if stop_reason is not None:
            if self.seen_stop_reason:
                self.problems.append("two stop_reasons")
            self.seen_stop_reason, self.out["stop_reason"] = True, stop_reason
        usage = it.get("usage") or {}
        self.out["usage"].update({key: value for key, value in usage.items() if value is not None})

    def _types_without_pings(self) -> list[Any]:
        return [kind for kind in self.out["types"] if kind != "ping"]

    def finish(self) -> None:
        out, real, stops = self.out, self._types_without_pings(), self.out["message_stops"]
        faults = {
            "first event is not message_start": bool(real) and real[0] not in ("message_start", "error"),
            "no message_stop": not stops and out["error"] is None,
            "events after message_stop": bool(stops) and out["types"][-1] != "message_stop",
            "message_stop twice": stops > 1,
            "message_stop without a stop_reason": bool(stops) and not self.seen_stop_reason,
        }
        self.problems.extend(fault for fault, present in faults.items() if present)
        out["lifecycle_ok"] = not self.problems
