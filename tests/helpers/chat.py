"""Chat Completions bytes, as an upstream sends them, and the request that asks for them."""

from __future__ import annotations

import json

from engine.dialects import chat
from engine.prompt import Prompt

DONE = b"data: [DONE]\n\n"
COMMENT = b": processing\n\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"


def body(model: str = "m", *, stream: bool = True, **fields: object) -> bytes:
    """A client's request body."""
    messages = [{"role": "user", "content": "hello"}]
    return json.dumps({"model": model, "messages": messages, "stream": stream, **fields}).encode()


def prompt(*, stream: bool = True) -> Prompt:
    return chat.parse(body(stream=stream))


def event(delta: dict[str, object], finish: str | None = None) -> bytes:
    """One chunk of the dialect, as a server-sent event."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    value = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


ROLE = event({"role": "assistant", "content": ""})
STOP = event({}, "stop")


def text(said: str) -> bytes:
    return event({"content": said})


def chunk(data: bytes) -> bytes:
    """HTTP's chunk around bytes of a body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def said(stream: bytes) -> str:
    """The text of a stream's events, joined."""
    pieces = []
    for line in stream.split(b"\n"):
        if line.startswith(b"data: {"):
            choices = json.loads(line.removeprefix(b"data: ")).get("choices", [])
            pieces += [choice["delta"].get("content") or "" for choice in choices]
    return "".join(pieces)
