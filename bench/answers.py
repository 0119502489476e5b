"""The bytes of an upstream's answers in the chat dialect, rendered before they are needed. Pure."""

import itertools
import json
from dataclasses import dataclass
from functools import lru_cache

from bench.http1 import TERMINATOR
from bench.script import Script, read_script

ALPHABET = "abcdefghijklmnopqrstuvwxyz "
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
USAGE = {"prompt_tokens": 4, "completion_tokens": 8, "total_tokens": 12}


@dataclass(frozen=True)
class Answer:
    """The writes of one answer in order; an endless one repeats the last for ever."""

    writes: tuple[bytes, ...]
    pace: float
    delay: float
    endless: bool
    number: int  # which of a probe's clients asked; -1 for the load's, which are all alike


@lru_cache(maxsize=256)
def answer_to(body: bytes) -> Answer:
    """Cached by the request's bytes: a load repeats few, and the upstream must not be what is measured."""
    request = json.loads(body)
    script = read_script(request["model"])
    wants_usage = bool((request.get("stream_options") or {}).get("include_usage"))
    writes = stream_writes(script, wants_usage=wants_usage) if request.get("stream") else (whole(script),)
    number = asked_by(request["messages"][-1]["content"])
    return Answer(writes, script.pace, script.delay, script.endless, number)


def asked_by(text: object) -> int:
    name, _, number = str(text).rpartition(" ")
    return int(number) if name == "client" else -1


def stream_writes(script: Script, *, wants_usage: bool) -> tuple[bytes, ...]:
    """Each event is an HTTP chunk of its own, as servers send them; a burst is many of those in one write."""
    chunk = http_chunk(event({"content": text_of(script.size)}))
    full, rest = divmod(script.chunks, script.burst)
    writes = [chunk * script.burst] * full + [chunk * rest] * bool(rest)
    writes[0] = STREAM_HEAD + http_chunk(event({"role": "assistant", "content": ""})) + writes[0]
    if script.endless:
        return (writes[0], chunk * script.burst)
    writes[-1] += last_events(wants_usage=wants_usage)
    return tuple(writes)


def last_events(*, wants_usage: bool) -> bytes:
    usage = [chunk_event(choices=[], usage=USAGE)] if wants_usage else []
    events = [event({}, "stop"), *usage, b"data: [DONE]\n\n"]
    return b"".join(map(http_chunk, events)) + TERMINATOR


def event(delta: dict[str, str], finish: str | None = None) -> bytes:
    return chunk_event(choices=[{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}])


def chunk_event(**members: object) -> bytes:
    chunk = {
        "id": "chatcmpl-0123456789abcdef",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "simulated",
    }
    return b"data: " + compact(chunk | members) + b"\n\n"


def whole(script: Script) -> bytes:
    message = {"role": "assistant", "content": text_of(script.size) * script.chunks}
    body = compact(
        {
            "id": "chatcmpl-0123456789abcdef",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": "simulated",
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
            "usage": USAGE,
        }
    )
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def text_of(size: int) -> str:
    return "".join(itertools.islice(itertools.cycle(ALPHABET), size))


def http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
