"""A turn's bursts as a Chat Completions client wants them: a stream of events, or one JSON document."""

from __future__ import annotations

from typing import assert_never

from engine.dialects.chat import faults
from engine.dialects.chat.whole import Assembler
from engine.events import Burst, Completed, Failed, Frame, UsageReported
from engine.framing import sse
from engine.prompt import Prompt

DONE = b"data: [DONE]\n\n"


class StreamWriter:
    """Bursts to server-sent events. The last burst ends with `[DONE]`, or with an error event and without it.

    An error is the last thing said: `[DONE]` after it would let a client that does not look at the events take the
    answer for whole.
    """

    content_type = b"text/event-stream; charset=utf-8"
    keep_alive = sse.comment(b"keep-alive")

    def __init__(self, prompt: Prompt) -> None:
        self._wants_usage = prompt.wants_usage

    def encode(self, burst: Burst) -> bytes:
        """All of a burst, for one write."""
        pieces = [frame.wire or sse.encode(frame.data, frame.name) for frame in burst.frames if self._wants(frame)]
        match burst.end:
            case None:
                pass
            case Completed():
                pieces.append(DONE)
            case Failed(fault):
                pieces.append(sse.encode(faults.error_body(fault)))
            case _ as never:
                assert_never(never)
        return b"".join(pieces)

    def _wants(self, frame: Frame) -> bool:
        """Usage has a frame of its own, which only a client that asked for it gets."""
        return self._wants_usage or not (frame.events and type(frame.events[0]) is UsageReported)


class WholeWriter:
    """Bursts to one chat completion."""

    content_type = b"application/json"

    def __init__(self, prompt: Prompt) -> None:  # noqa: ARG002 — the same signature as StreamWriter
        self._assembler = Assembler()

    def add(self, burst: Burst) -> None:
        self._assembler.add(burst)

    def result(self) -> bytes:
        return self._assembler.result()
