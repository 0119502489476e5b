"""What a simulated upstream is to do, written in a model name or in a prompt: `chunks=64,pace=0.01,cut@5`.

Pure and deterministic: the same script makes the same bytes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from engine.errors import Kind, TurnError, client_error
from engine.prompt import Prompt

NAME = "simulated"
COMMAND = "/simulate "
CREATED = 1_700_000_000
DEFAULT_TEXT = ("The ", "tide ", "comes ", "in, ", "the ", "tide ", "goes ", "out.")
_WORDS = ("tide", "gate", "moon", "ebb", "flow", "salt", "rope", "buoy", "quay", "swell")


class Script(Struct, frozen=True):
    """One answer. Times in seconds, sizes in bytes of text; `(…, n)` pairs name the chunk before which it happens."""

    chunks: int = len(DEFAULT_TEXT)
    size: int = 0
    pace: float = 0.0
    burst: int = 1
    delay: float = 0.0
    tools: int = 0
    reasoning: int = 0
    usage: bool = True
    endless: bool = False
    nofinish: bool = False
    nodone: bool = False
    seed: int = 0
    stall: tuple[float, int] | None = None
    error: tuple[int, int | None] | None = None
    cut: int | None = None
    reset: int | None = None


class Step(Struct, frozen=True):
    """One write of the stream: wait `pause` seconds, then send `data`, which carries `chunks` chunks."""

    pause: float
    data: bytes
    chunks: int


class CutHere(Exception):
    """The script says that the connection ends here."""

    def __init__(self, *, reset: bool) -> None:
        super().__init__("cut by the script")
        self.reset = reset


def script_of(prompt: Prompt) -> Script:
    """The script in the model's name or in the last message. Raises TurnError (bad_request) naming the word."""
    if prompt.choices > MOST_CHOICES:
        raise client_error(Kind.BAD_REQUEST, f"`n` is not right: a simulation has at most {MOST_CHOICES} choices.", "n")
    if prompt.last_words is not None and prompt.last_words.startswith(COMMAND):
        return parse_script(prompt.last_words.removeprefix(COMMAND).strip(), "messages")
    _, _, text = prompt.model.partition("/")
    return parse_script(text, "model")


def parse_script(text: str, param: str) -> Script:
    """`word`, `word=value`, `word@chunk` and `word=value@chunk`, separated by commas."""
    said: dict[str, Any] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, value = _word(word, param)
        said[name] = value
    return Script(**said)


MOST = {"size": 64 * 1024, "burst": 1024, "chunks": 10_000_000, "tools": 1000, "reasoning": 10_000_000}
"""Bounds of what one script can make the process hold or do in one step."""
MOST_CHOICES = 128
MOST_WRITE = 16 * 1024 * 1024
"""Bytes of text in one write: choices, chunks and sizes multiply."""
LONGEST_PAUSE = 86_400.0
_WHOLE = ("chunks", "size", "burst", "tools", "reasoning", "seed")
_SECONDS = ("pace", "delay")
_FLAGS = ("endless", "nofinish", "nodone")
_PLACES = ("cut", "reset")


def _word(word: str, param: str) -> tuple[str, object]:
    name, equals, rest = word.partition("=")
    name, at, place = name.partition("@") if not equals else (name, "", "")
    try:
        if name in _FLAGS and not equals and not at:
            return name, True
        if name in _PLACES and at:
            return name, int(place)
        if name in _WHOLE and equals:
            return name, _number(name, int(rest))
        if name in _SECONDS and equals:
            return name, _pause(rest)
        if name == "usage" and equals:
            return name, rest not in ("0", "false")
        value, at, place = rest.partition("@")
        if name == "stall" and at:
            return name, (_pause(value), int(place))
        if name == "error" and equals:
            return name, (_status(value), int(place) if at else None)
    except ValueError:
        pass
    raise _not_understood(word, param)


def _number(name: str, value: int) -> int:
    if value > MOST.get(name, value):
        raise ValueError(name)
    return max(value, 1 if name == "burst" else 0)


def _pause(text: str) -> float:
    value = float(text)
    if not 0 <= value <= LONGEST_PAUSE:
        raise ValueError(text)
    return value


def _status(text: str) -> int:
    value = int(text)
    if not 400 <= value <= 599:
        raise ValueError(text)
    return value


def _not_understood(word: str, param: str) -> TurnError:
    known = "chunks=N, size=N, burst=N, tools=N, reasoning=N, seed=N, pace=S, delay=S, usage=0, stall=S@N, error=STATUS"
    more = "error=STATUS@N, cut@N, reset@N, endless, nofinish, nodone"
    return client_error(Kind.BAD_REQUEST, f"The simulation script's `{word}` is not one of: {known}, {more}.", param)


def steps(script: Script, prompt: Prompt) -> Iterator[Step]:
    """The stream, write by write; `script.burst` chunks to a write. Raises CutHere where the script says so."""
    pending: list[bytes] = []
    pause = script.delay
    burst = min(script.burst, max(1, MOST_WRITE // (max(script.size, 256) * prompt.choices)))
    for number, piece in enumerate(_pieces(script, prompt)):
        cut_here = number in (script.cut, script.reset)
        stalls = script.stall is not None and script.stall[1] == number
        if pending and (len(pending) >= burst or cut_here or stalls):
            yield Step(pause, b"".join(pending), len(pending))
            pending, pause = [], script.pace
        if cut_here:
            raise CutHere(reset=number == script.reset)
        if stalls and script.stall is not None:
            pause += script.stall[0]
        pending.append(piece)
    yield Step(pause, b"".join(pending), len(pending))


def _pieces(script: Script, prompt: Prompt) -> Iterator[bytes]:
    """The stream's events, one by one. `error@N` ends them."""
    writer = _ChunkWriter(script, prompt)
    for number, delta in enumerate(_deltas(script, prompt)):
        if script.error is not None and script.error[1] == number:
            yield writer.error(script.error[0])
            return
        yield writer.chunk(delta)
    if not script.nofinish:
        yield writer.finish()
    if script.usage and prompt.wants_usage:
        yield writer.usage()
    if not script.nodone:
        yield b"data: [DONE]\n\n"


def _deltas(script: Script, prompt: Prompt) -> Iterator[dict[str, Any]]:
    for at in range(script.reasoning):
        yield {"reasoning_content": f"{_WORDS[at % len(_WORDS)]} "}
    limit = script.chunks if prompt.token_limit is None else min(script.chunks, prompt.token_limit)
    number = 0
    chooser = random.Random(script.seed)  # noqa: S311 — a deterministic text, not a secret
    while number < limit or script.endless:
        yield {"content": _text(script, number, chooser)}
        number += 1
    for call in range(script.tools):
        name = {"name": f"tool_{call}", "arguments": ""}
        yield {
            "tool_calls": [{"index": call, "id": f"call_{script.seed}_{call}", "type": "function", "function": name}]
        }
        for part in ('{"number":', f"{call}", "}"):
            yield {"tool_calls": [{"index": call, "function": {"arguments": part}}]}


def _text(script: Script, number: int, chooser: random.Random) -> str:
    if script.size:
        word = _WORDS[number % len(_WORDS)] + " "
        return (word * (script.size // len(word) + 1))[: script.size]
    if number < len(DEFAULT_TEXT):
        return DEFAULT_TEXT[number]
    return f"{chooser.choice(_WORDS)} "


class _ChunkWriter:
    def __init__(self, script: Script, prompt: Prompt) -> None:
        self._script = script
        self._prompt = prompt
        self._completion_tokens = 0
        self._envelope = {
            "id": f"chatcmpl-sim{script.seed}",
            "object": "chat.completion.chunk",
            "created": CREATED,
            "model": prompt.model,
        }

    def chunk(self, delta: dict[str, Any]) -> bytes:
        first = {"role": "assistant"} if self._completion_tokens == 0 else {}
        self._completion_tokens += 1
        choices = [
            {"index": index, "delta": {**first, **delta}, "finish_reason": None}
            for index in range(self._prompt.choices)
        ]
        return self._event({**self._envelope, "choices": choices})

    def finish(self) -> bytes:
        limit = self._prompt.token_limit
        is_cut = limit is not None and limit < self._script.chunks
        reason = "length" if is_cut else "tool_calls" if self._script.tools else "stop"
        choices = [{"index": index, "delta": {}, "finish_reason": reason} for index in range(self._prompt.choices)]
        return self._event({**self._envelope, "choices": choices})

    def usage(self) -> bytes:
        prompt, completion = len(self._prompt.last_words or ""), self._completion_tokens * self._prompt.choices
        counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        return self._event({**self._envelope, "choices": [], "usage": counts})

    def error(self, status: int) -> bytes:
        return self._event({"error": simulated_error(status)})

    @staticmethod
    def _event(value: object) -> bytes:
        return b"data: " + msgspec.json.encode(value) + b"\n\n"


def simulated_error(status: int) -> dict[str, object]:
    """The error object of a scripted error, as a Chat Completions server would send it."""
    kind = {400: "invalid_request_error", 429: "rate_limit_error"}.get(status, "server_error")
    return {"message": f"A simulated error with status {status}.", "type": kind, "param": None, "code": status}
