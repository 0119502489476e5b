"""A request, parsed far enough to be checked and routed, with the client's own bytes kept as they came."""

from __future__ import annotations

from msgspec import Struct


class Prompt(Struct, frozen=True):
    """What a client asked for.

    `body` stays what a Chat Completions client sent: the upstream's dialect changes single top-level fields in it and
    leaves every other field's bytes (number precision, escapes, fields nobody here knows). For a client of another
    dialect it is what its own dialect made of the request, in Chat Completions' words.
    """

    dialect: str
    model: str
    body: bytes
    wants_stream: bool = False
    wants_usage: bool = False
    """A usage chunk at the end of the stream."""
    wants_running_usage: bool = False
    """Usage in every chunk (vLLM's `continuous_usage_stats`)."""
    choices: int = 1
    token_limit: int | None = None
    last_words: str | None = None
    """The client's last message, where it is plain text: what a simulated upstream may be scripted by."""
