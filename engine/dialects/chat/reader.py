"""An upstream's Chat Completions stream, as bursts: read, observed, mended where needed, and ended exactly once.

A chunk in good form passes as the bytes it came in. Three things are held back until the end is certain, because
servers send them too early, twice or not at all: each choice's finish reason, the usage, and the end mark.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

import msgspec

from engine.dialects.chat import faults
from engine.dialects.chat.calls import MOST_CALLS
from engine.dialects.chat.chunks import Choice, Chunk, Delta, decode_chunk, decode_object, encode, report, report_any
from engine.dialects.chat.repair import BROKEN_OFF, ChoiceState, finish_reason, mend_delta, say_call
from engine.dialects.chat.run import RunLearner
from engine.errors import Fault, Kind
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
)
from engine.framing.sse import DEFAULT_LIMIT, EventTooLarge, ServerSentEvent, SseParser

DONE = b"[DONE]"
KNOWN_REASONS = frozenset(map(str, FinishReason))
NOT_A_CHUNK = Fault(Kind.UPSTREAM_PROTOCOL, "The upstream sent an event that is not a chat completion chunk.")
_TRIES = 3
"""Events of a read that are parsed one by one to find a form: the role's, the first text's, and one to spare."""
_WORTH_LEARNING = 1024
"""Bytes behind a stream's first text in the same read, for which its form is worth learning at once: a short answer
that comes whole has no use for it."""
_LONGEST_REASON = 64
"""Characters of a server's own word for the end that are remembered."""
_MOST_CHOICES = 128
"""OpenAI's limit of `n`; a bound on what a stream can make the gateway remember."""


class StreamReader:
    """Feed it the body as it comes. After a burst with an end it says nothing more."""

    def __init__(
        self, *, think_tags: bool = False, keep_running_usage: bool = False, limit: int = DEFAULT_LIMIT
    ) -> None:
        self._sse = SseParser(limit)
        self._think_tags = think_tags
        self._keep_running_usage = keep_running_usage
        self._choices: dict[int, ChoiceState] = {}
        self._usage: Frame | None = None
        self._last_seen: bytes | None = None
        self._runs = RunLearner()
        self._has_text = False
        self._unread = 0
        self._frames: list[Frame] = []
        self._end: End | None = None

    def feed(self, data: bytes) -> Burst:
        """All that one read brought."""
        try:
            self._read(data)
        except EventTooLarge as error:
            self._fail(Fault(Kind.UPSTREAM_PROTOCOL, f"The upstream's stream broke a limit: {error}."))
        return self._burst()

    def _read(self, data: bytes) -> None:
        """Runs are taken whole; what is not one is parsed, at first event by event, so that a form learned from the
        start of a read serves the rest of it."""
        tries = _TRIES
        while data and self._end is None:
            taken = self._runs.take(data) if self._sse.is_between_events else None
            if taken is not None:
                self._frames.append(taken[0])
                data = data[taken[1] :]
                continue
            cut = data.find(b"\n\n") + 2 if tries and self._runs.is_learning else 0
            piece, data = (data[:cut], data[cut:]) if cut > 1 else (data, b"")
            tries -= 1
            self._unread = len(data)
            for event in self._sse.feed(piece):
                if self._end is None:
                    self._take(event)

    def close(self) -> Burst:
        """The body ended, properly or not. Without an end in the burst, the answer is truncated.

        A finish reason is an end mark too: what is lost after it is at most the usage.
        """
        for event in self._sse.close():
            if self._end is None and (event.data.strip() == DONE or _is_json(event.data)):
                self._take(event)
        if self._end is None and self._choices and all(state.last_chunk for state in self._choices.values()):
            self._complete()
        if self._end is None:
            self._let_go_of_text()
        return self._burst()

    def _fail(self, fault: Fault) -> None:
        self._let_go_of_text()
        self._end = Failed(fault)

    def _let_go_of_text(self) -> None:
        """What was held back as a possible tag is text after all, also of an answer that is not whole."""
        for state in self._choices.values():
            self._flush_tags(state)

    def _burst(self) -> Burst:
        frames, self._frames = tuple(self._frames), []
        return Burst(frames, self._end)

    def _take(self, event: ServerSentEvent) -> None:
        data = event.data
        if data == DONE:
            self._complete()
            return
        try:
            chunk = decode_chunk(data)
        except (msgspec.DecodeError, RecursionError):
            self._take_irregular(event)
            return
        if len(chunk.choices) != 1 or chunk.usage is not None or chunk.error is not None or event.name is not None:
            self._take_mixed(event, chunk)
            return
        choice = chunk.choices[0]
        state = self._choices.get(choice.index) or self._new_choice(choice.index)
        if choice.finish_reason is not None:
            if not self._hold_regular(data, choice, state):
                self._take_irregular(event)
            return
        events = None
        if (state.tags is None or state.tags.done) and len(state.calls) < MOST_CALLS:
            events = _regular_events(choice.delta, state)
        if events is None:
            self._take_irregular(event)
            return
        self._last_seen = data
        self._frames.append(Frame(_one_line(data), events))
        if len(events) == 1 and isinstance(events[0], TextDelta | ReasoningDelta):
            if self._has_text or self._unread > _WORTH_LEARNING:
                self._runs.learn(data, events[0])
            self._has_text = True

    def _hold_regular(self, data: bytes, choice: Choice, state: ChoiceState) -> bool:
        """Hold a chunk that says nothing but why its choice ended, in the protocol's own word; False if it is not."""
        is_plain = state.tags is None or state.tags.done
        if not is_plain or not choice.delta.is_empty() or choice.finish_reason not in KNOWN_REASONS:
            return False
        self._last_seen = data
        state.reason = state.said_reason = FinishReason(choice.finish_reason)
        state.last_chunk = _one_line(data)
        return True

    def _take_mixed(self, event: ServerSentEvent, chunk: Chunk) -> None:
        """A usage chunk in good form is held as it is; anything else is looked at as a dict."""
        alone = not chunk.choices and chunk.usage is not None and chunk.error is None and event.name is None
        if alone:
            assert chunk.usage is not None
            self._usage = Frame(_one_line(event.data), (report(chunk.usage),))
        else:
            self._take_irregular(event)

    def _take_irregular(self, event: ServerSentEvent) -> None:
        said = event.data.strip()
        if said == DONE:
            self._complete()
            return
        if not said and event.name is None:
            return  # an event without data: some servers keep a stream alive by it
        try:
            self._take_object(event.name, decode_object(event.data))
        except ValueError:  # not a JSON object, or one that says more than can be kept track of
            self._fail(NOT_A_CHUNK)

    def _take_object(self, name: bytes | None, chunk: dict[str, Any]) -> None:
        fault = faults.read_error_event(chunk)
        if fault is None and name == b"error":
            fault = Fault(Kind.UPSTREAM_FAILED, "The upstream reported an error without saying which.")
        if fault is not None:
            self._fail(fault)
            return
        self._take_chunk(chunk)

    def _take_chunk(self, chunk: dict[str, Any]) -> None:
        choices = chunk.get("choices")
        self._hold_usage(chunk, bool(choices))
        if not isinstance(choices, list) or not choices:
            if choices == [] and chunk.keys() - _ENVELOPE:
                self._frames.append(Frame(encode(chunk)))  # says something of its own (Azure's prompt filter)
            return
        self._last_seen = encode({**chunk, "choices": []}) if self._last_seen is None else self._last_seen
        for choice in choices:
            if isinstance(choice, dict) and self._end is None:
                self._take_choice(chunk, choice)

    def _hold_usage(self, chunk: dict[str, Any], has_choices: bool) -> None:
        """The last usage wins; it gets a chunk of its own at the end, as the protocol has it."""
        usage = chunk.get("usage")
        if usage:
            held = {**chunk, "choices": []} if not has_choices else {**_envelope(chunk), "choices": [], "usage": usage}
            self._usage = Frame(encode(held), (report_any(usage),))
        if usage and (not has_choices or not self._keep_running_usage):
            del chunk["usage"]

    def _take_choice(self, chunk: dict[str, Any], choice: dict[str, Any]) -> None:
        index = choice.get("index")
        number = index if isinstance(index, int) else 0
        state = self._choices.get(number) or self._new_choice(number)
        if self._end is not None:
            return
        said = choice.get("delta") if choice.get("delta") is not None else choice.get("message")
        delta, events = mend_delta(said, state)
        mended = {**choice, "index": number, "delta": delta}
        mended.pop("message", None)
        reason = choice.get("finish_reason")
        if not isinstance(reason, str) or not reason:
            mended["finish_reason"] = reason = None
        if reason is not None:
            self._hold_finish(chunk, mended, events, state, reason)
        elif events or not _is_empty(mended):
            self._frames.append(Frame(encode({**chunk, "choices": [mended]}), tuple(events)))

    def _hold_finish(
        self,
        chunk: dict[str, Any],
        choice: dict[str, Any],
        events: list[Event],
        state: ChoiceState,
        said: str,
    ) -> None:
        if said.lower() in BROKEN_OFF:
            self._fail(Fault(Kind.UPSTREAM_TRUNCATED, f"The upstream broke off the answer ({said})."))
            return
        state.reason, state.said_reason = finish_reason(said), said[:_LONGEST_REASON]
        if events:
            unfinished = {**choice, "finish_reason": None}
            self._frames.append(Frame(encode({**chunk, "choices": [unfinished]}), tuple(events)))
            choice = {"index": state.index, "delta": {}, "finish_reason": said}
        state.last_chunk = {**chunk, "choices": [choice]}

    def _complete(self) -> None:
        """Let go of what was held: each choice's finish, then the usage."""
        if not self._choices:
            self._new_choice(0)
        for state in self._choices.values():
            self._flush_tags(state)
            reason = state.final_reason()
            said = state.said_reason if state.said_reason != reason else None
            self._frames.append(Frame(self._last_chunk(state, reason), (Finished(state.index, reason, said),)))
        if self._usage is not None:
            self._frames.append(self._usage)
        self._end = Completed()

    def _last_chunk(self, state: ChoiceState, reason: FinishReason) -> bytes:
        held = state.last_chunk
        if isinstance(held, bytes):
            if state.said_reason == reason:
                return held
            held = decode_object(held)
        chunk = held or self._blank(state.index)
        chunk["choices"][0]["finish_reason"] = str(reason)
        return encode(chunk)

    def _flush_tags(self, state: ChoiceState) -> None:
        reasoning, text = state.tags.flush() if state.tags is not None else ("", "")
        if reasoning or text:
            delta, events = mend_delta({"reasoning_content": reasoning} if reasoning else {}, state)
            if text:
                delta["content"] = text
                events.append(TextDelta(state.index, text))
            chunk = self._blank(state.index)
            chunk["choices"][0]["delta"] = delta
            self._frames.append(Frame(encode(chunk), tuple(events)))

    def _blank(self, index: int) -> dict[str, Any]:
        """A chunk of our own in the stream's envelope."""
        seen = _envelope(decode_object(self._last_seen)) if self._last_seen is not None else {}
        own = {
            "id": f"chatcmpl-{uuid.uuid4().hex[:24]}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": "",
        }
        return {**own, **seen, "choices": [{"index": index, "delta": {}, "finish_reason": None}]}

    def _new_choice(self, index: int) -> ChoiceState:
        if len(self._choices) >= _MOST_CHOICES:
            self._fail(NOT_A_CHUNK)
        state = ChoiceState(index, think_tags=self._think_tags)
        if self._end is None:
            self._choices[index] = state
        return state


_ENVELOPE = {"id", "object", "created", "model", "system_fingerprint", "service_tier", "choices", "usage"}


def _envelope(chunk: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in chunk.items() if key in _ENVELOPE and key not in ("choices", "usage")}


def _is_empty(choice: dict[str, Any]) -> bool:
    """Whether a mended choice has nothing left to say."""
    return not choice["delta"] and not (choice.keys() - {"index", "delta", "finish_reason", "logprobs"})


def _regular_events(delta: Delta, state: ChoiceState) -> tuple[Event, ...] | None:
    """What a delta in good form says; None if something in it must be mended."""
    if delta.tool_calls is not None:
        return _regular_calls(delta, state)
    text, reasoning = delta.content, delta.reasoning_content or delta.reasoning
    if text:
        event: Event = TextDelta(state.index, text)
        if reasoning or delta.refusal:
            return None
        return (event,)
    if delta.refusal:
        return None if reasoning else (RefusalDelta(state.index, delta.refusal),)
    if reasoning:
        return (ReasoningDelta(state.index, reasoning),)
    if delta.function_call is not msgspec.UNSET or delta.audio is not msgspec.UNSET:
        return None
    return ()


def _regular_calls(delta: Delta, state: ChoiceState) -> tuple[Event, ...] | None:
    """One call's delta as the protocol has it, or None. Nothing is placed unless it is certain that it fits."""
    calls = delta.tool_calls
    if calls is None or len(calls) != 1 or delta.content or delta.refusal:
        return None
    if delta.reasoning_content or delta.reasoning or delta.function_call is not msgspec.UNSET:
        return None
    piece = calls[0]
    function = piece.function
    if function is None or function.arguments is None or not state.calls.fits(piece.index, piece.id, function.name):
        return None
    if piece.id is not None and piece.type != "function":
        return None
    placed = state.calls.place(piece.index, piece.id, function.name, function.arguments)
    return tuple(say_call(state.index, placed))


def _one_line(data: bytes) -> bytes:
    """JSON that came on several `data` lines: a line feed between its tokens is as good as a blank."""
    return data.replace(b"\n", b" ") if b"\n" in data else data


def _is_json(data: bytes) -> bool:
    try:
        decode_object(data)
    except ValueError:
        return False
    return True
