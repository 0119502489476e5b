"""Reasoning in `<think>` tags at the start of the text, told apart while it streams and however it is cut.

Only for upstreams that are configured so (`reasoning = "think_tags"`): a model may well write about the tag.
"""

from __future__ import annotations

from enum import Enum, auto

OPEN, CLOSE = "<think>", "</think>"
LONGEST_LEAD = 256
"""Characters of white space that may stand before the first tag; a bound, since they are held back."""


class _At(Enum):
    START = auto()
    THINKING = auto()
    AFTER = auto()
    TEXT = auto()


class ThinkTags:
    """Feed it text; it holds back at most one partial tag, so its cost is linear."""

    def __init__(self) -> None:
        self._at = _At.START
        self._held = ""

    @property
    def done(self) -> bool:
        """Whether all that comes is plain text, so that nobody needs to ask any more."""
        return self._at is _At.TEXT and not self._held

    def split(self, text: str) -> tuple[str, str]:
        """The reasoning and the visible text in this piece, in this order."""
        text, self._held = self._held + text, ""
        if self._at is _At.START:
            text = self._begin(text)
        reasoning = ""
        if self._at is _At.THINKING:
            reasoning, text = self._until_close(text)
        if self._at is _At.AFTER:
            text = text.lstrip("\n")
            if text:
                self._at = _At.TEXT
        return reasoning, text

    def flush(self) -> tuple[str, str]:
        """What was held back as a possible tag and was none."""
        held, self._held = self._held, ""
        return (held, "") if self._at is _At.THINKING else ("", held)

    def _begin(self, text: str) -> str:
        seen = text.lstrip()
        if seen.startswith(OPEN):
            self._at = _At.THINKING
            return seen[len(OPEN) :]
        if seen.startswith(CLOSE):  # the reasoning came in its own field, or in the prompt
            self._at = _At.AFTER
            return seen[len(CLOSE) :]
        if len(text) < LONGEST_LEAD and (OPEN.startswith(seen) or CLOSE.startswith(seen)):
            self._held = text
            return ""
        self._at = _At.TEXT
        return text

    def _until_close(self, text: str) -> tuple[str, str]:
        before, tag, after = text.partition(CLOSE)
        if tag:
            self._at = _At.AFTER
            return before, after
        cut = _partial_tag(text)
        self._held = text[cut:]
        return text[:cut], ""


def _partial_tag(text: str) -> int:
    """Where a beginning of the closing tag stands at the end of the text; its length if there is none."""
    at = text.rfind("<", -len(CLOSE))
    return at if at >= 0 and CLOSE.startswith(text[at:]) else len(text)
