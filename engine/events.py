"""What an answer is made of, in neutral words: events, the frames that say them, and bursts.

Knows no dialect and no transport. A frame's bytes are opaque here; only the dialect that made them reads them.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from engine.errors import Fault


class FinishReason(StrEnum):
    """Why a choice ended, in Chat Completions' words, which all dialects can be mapped to."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"
    FUNCTION_CALL = "function_call"


class TextDelta(Struct, frozen=True, gc=False):
    """A piece of the visible answer of one choice."""

    choice: int
    text: str


class ReasoningDelta(Struct, frozen=True, gc=False):
    """A piece of what the model thought before it answered."""

    choice: int
    text: str


class RefusalDelta(Struct, frozen=True, gc=False):
    """A piece of a refusal, where the dialect tells it apart from text."""

    choice: int
    text: str


class ToolCallStarted(Struct, frozen=True, gc=False):
    """A tool call's id and name. `call` counts a choice's calls from 0, in the order they began."""

    choice: int
    call: int
    id: str
    name: str


class ToolNameDelta(Struct, frozen=True, gc=False):
    """More of a tool call's name, from a server that sends it in pieces."""

    choice: int
    call: int
    text: str


class ToolArgumentsDelta(Struct, frozen=True, gc=False):
    """A piece of a tool call's arguments (JSON text, cut anywhere)."""

    choice: int
    call: int
    text: str


class OtherContent(Struct, frozen=True, gc=False):
    """Content of a kind that has no neutral word yet (audio, a legacy function call): it passes as it is."""

    choice: int


class Finished(Struct, frozen=True, gc=False):
    """One choice ended. `said` is the upstream's own word where it is not `reason`'s."""

    choice: int
    reason: FinishReason
    said: str | None = None


class UsageReported(Struct, frozen=True, gc=False):
    """Token counts as the upstream gave them; a count that it did not give is None, never 0."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


Event = (
    TextDelta
    | ReasoningDelta
    | RefusalDelta
    | ToolCallStarted
    | ToolNameDelta
    | ToolArgumentsDelta
    | OtherContent
    | Finished
    | UsageReported
)


class Frame(Struct, frozen=True, gc=False):
    """One piece of a stream in the upstream's dialect.

    `data` is what the dialect put in the frame (for the SSE dialects the JSON text of the `data` field, without line
    ends), untouched wherever nothing needed repair, so that fields nobody here knows survive.
    """

    data: bytes
    events: tuple[Event, ...] = ()
    name: bytes | None = None
    wire: bytes | None = None
    """The bytes as they came, where they can go out as they are. They may be several pieces that `data` says as one."""


class Completed(Struct, frozen=True, gc=False):
    """The answer is whole: the upstream said so."""


class Failed(Struct, frozen=True, gc=False):
    """The answer ends here and is not whole."""

    fault: Fault


End = Completed | Failed


class Burst(Struct, frozen=True, gc=False):
    """All the frames that one read brought. A burst with an `end` is the last of its turn."""

    frames: tuple[Frame, ...] = ()
    end: End | None = None

    def says_something(self) -> bool:
        """Whether any event or the end is in it; a role announcement alone says nothing."""
        return self.end is not None or self.has_events()

    def has_events(self) -> bool:
        """Whether anything of an answer is in it."""
        return any(frame.events for frame in self.frames)
