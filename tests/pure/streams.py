"""Chat Completions streams for these tests: made, cut into reads, read, and added up as a client adds them up."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from engine.dialects.chat.reader import StreamReader
from engine.dialects.chat.run import RunLearner
from engine.dialects.chat.writer import StreamWriter, WholeWriter
from engine.events import (
    Burst,
    End,
    Event,
    Failed,
    Finished,
    Frame,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
    ToolNameDelta,
    UsageReported,
)
from engine.prompt import Prompt

Json = dict[str, Any]

RECORDINGS = Path(__file__).parent / "recordings"
DONE = b"data: [DONE]\n\n"
ENVELOPE: Json = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000000, "model": "m"}
PROMPT = Prompt("chat", "m", b"{}", wants_stream=True, wants_usage=True)
_MADE_UP = re.compile(r"^call_[0-9a-f]{24}$")


def recording(name: str) -> bytes:
    return (RECORDINGS / name).read_bytes()


def chunk(delta: object, finish: str | None = None, index: int = 0, **more: object) -> Json:
    """A stream chunk with one choice."""
    return {**ENVELOPE, "choices": [{"index": index, "delta": delta, "finish_reason": finish}], **more}


def text(words: str, index: int = 0) -> Json:
    return chunk({"content": words}, index=index)


def called(**piece: object) -> Json:
    """A chunk with one delta of a tool call."""
    return chunk({"tool_calls": [piece]})


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def stream(*chunks: object, done: bool = True) -> bytes:
    return b"".join(map(event, chunks)) + (DONE if done else b"")


def bytes_of(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    at = [0, *sorted(places), len(data)]
    return [data[start:stop] for start, stop in pairwise(at)]


def every_cut(data: bytes) -> Iterator[list[bytes]]:
    """Whole, byte by byte, and in two at each place."""
    yield [data]
    yield bytes_of(data)
    for place in range(1, len(data)):
        yield [data[:place], data[place:]]


def cuttings(length: int) -> st.SearchStrategy[list[int]]:
    """Places to cut so many bytes at; sometimes many, close together."""
    few = st.lists(st.integers(0, length), max_size=12)
    steps = st.integers(1, 40).map(lambda step: list(range(step, length, step)))
    return few | steps


class NeverLearns(RunLearner):
    """Runs switched off: each chunk is decoded by itself."""

    def learn(self, data: bytes, event: TextDelta | ReasoningDelta) -> None: ...


def without_runs(reader: StreamReader | None = None) -> StreamReader:
    reader = reader or StreamReader()
    reader._runs = NeverLearns()
    return reader


@dataclass
class Read:
    """What a reader made of a stream."""

    bursts: list[Burst]

    @property
    def frames(self) -> list[Frame]:
        return [frame for burst in self.bursts for frame in burst.frames]

    @property
    def events(self) -> list[Event]:
        return [event for frame in self.frames for event in frame.events]

    @property
    def chunks(self) -> list[Json]:
        return [json.loads(frame.data) for frame in self.frames]

    @property
    def end(self) -> End | None:
        return self.bursts[-1].end if self.bursts else None

    @property
    def fault_message(self) -> str:
        assert isinstance(self.end, Failed)
        return self.end.fault.message

    def written(self, prompt: Prompt = PROMPT) -> bytes:
        """What a streaming client gets."""
        writer = StreamWriter(prompt)
        return b"".join(writer.encode(burst) for burst in self.bursts)

    def whole(self) -> Json:
        """What a client gets that does not stream."""
        writer = WholeWriter(PROMPT)
        for burst in self.bursts:
            writer.add(burst)
        answer: Json = json.loads(writer.result())
        return answer


def read(data: bytes | Iterable[bytes], reader: StreamReader | None = None) -> Read:
    """Feed until the end, as an upstream does; close where there is none."""
    reader = reader or StreamReader()
    bursts: list[Burst] = []
    for piece in [data] if isinstance(data, bytes) else data:
        bursts.append(reader.feed(piece))
        if bursts[-1].end is not None:
            return Read(bursts)
    bursts.append(reader.close())
    return Read(bursts)


@dataclass
class Said:
    """An answer added up. Ids that the gateway made up are all the same here."""

    text: dict[int, str] = field(default_factory=dict)
    reasoning: dict[int, str] = field(default_factory=dict)
    refusal: dict[int, str] = field(default_factory=dict)
    calls: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    """(choice, call) → id, name, arguments; each the sum of what was sent for it."""
    finish: dict[int, list[str]] = field(default_factory=dict)
    usage: list[int | None] = field(default_factory=list)

    def add_text(self, sums: dict[int, str], choice: int, words: str) -> None:
        if words:
            sums[choice] = sums.get(choice, "") + words

    def add_call(self, place: tuple[int, int], *news: str) -> None:
        so_far = self.calls.setdefault(place, ["", "", ""])
        self.calls[place] = [old + new for old, new in zip(so_far, news, strict=True)]

    def settled(self) -> Said:
        for call in self.calls.values():
            call[0] = _MADE_UP.sub("made up", call[0])
        return self


def said_by_events(events: Iterable[Event]) -> Said:
    said = Said()
    for event in events:
        match event:
            case TextDelta(choice, words):
                said.add_text(said.text, choice, words)
            case ReasoningDelta(choice, words):
                said.add_text(said.reasoning, choice, words)
            case RefusalDelta(choice, words):
                said.add_text(said.refusal, choice, words)
            case ToolCallStarted(choice, call, id_, name):
                said.add_call((choice, call), id_, name, "")
            case ToolNameDelta(choice, call, words):
                said.add_call((choice, call), "", words, "")
            case ToolArgumentsDelta(choice, call, words):
                said.add_call((choice, call), "", "", words)
            case Finished(choice, reason):
                said.finish.setdefault(choice, []).append(str(reason))
            case UsageReported():
                said.usage.append(event.completion_tokens)
    return said.settled()


def said_to_client(written: bytes) -> Said:
    """What a client adds up that knows nothing but the protocol."""
    said = Said()
    for data in events_of(written):
        for choice in data.get("choices", ()):
            _add_choice(said, choice)
        if data.get("usage"):
            said.usage.append(data["usage"].get("completion_tokens"))
    return said.settled()


def _add_choice(said: Said, choice: Json) -> None:
    index, delta = choice["index"], choice["delta"]
    said.add_text(said.text, index, delta.get("content") or "")
    said.add_text(said.reasoning, index, delta.get("reasoning_content") or delta.get("reasoning") or "")
    said.add_text(said.refusal, index, delta.get("refusal") or "")
    for call in delta.get("tool_calls") or ():
        body = call["function"]
        said.add_call((index, call["index"]), call.get("id") or "", body.get("name") or "", body.get("arguments") or "")
    if choice.get("finish_reason") is not None:
        said.finish.setdefault(index, []).append(choice["finish_reason"])


def events_of(written: bytes) -> list[Json]:
    """The JSON events of a stream as the gateway writes it; neither `[DONE]` nor comments."""
    blocks = [block for block in written.split(b"\n\n") if block.startswith(b"data: ")]
    return [json.loads(block[6:]) for block in blocks if block != b"data: [DONE]"]
