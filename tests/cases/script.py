"""What the fake upstream sends: exact bytes, one network write each, and how the connection ends.

Pure: it says what to write and after how long; `upstream.py` writes it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any, Literal

Json = dict[str, Any]
End = Literal["clean", "fin_without_terminator", "rst", "hold"]

_PHRASES = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 429: "Too Many Requests", 503: "Unavailable"}
_HEAD = {"status", "headers", "headers_after_ms"}
_BODY = {"chunks_b64", "delays_ms", "generator", "compare_with_count", "body_b64"}
_END = {"end", "hold_ms"}


class UnknownField(ValueError):
    """A case says something that this runner does not know how to do."""


@dataclass(frozen=True)
class Generator:
    """Bytes too many to write down: prefix, then `repeat` `count` times (None: for ever), then suffix."""

    prefix: bytes
    repeated: bytes
    count: int | None
    suffix: bytes
    write_size: int

    @classmethod
    def of(cls, spec: Json) -> Generator:
        prefix, repeated, suffix = (base64.b64decode(spec[f"{k}_b64"]) for k in ("prefix", "repeat", "suffix"))
        return cls(prefix, repeated, spec["count"], suffix, spec.get("write_size", 65536))

    def writes(self) -> Iterator[bytes]:
        """Pieces of exactly `write_size` bytes; the last may be shorter."""
        middle = repeat(self.repeated) if self.count is None else repeat(self.repeated, self.count)
        buffer = bytearray()
        for piece in chain([self.prefix], middle, [self.suffix]):
            buffer += piece
            while len(buffer) >= self.write_size:
                yield bytes(buffer[: self.write_size])
                del buffer[: self.write_size]
        if buffer:
            yield bytes(buffer)


@dataclass(frozen=True)
class Script:
    """One answer. `body` is what the writes carry; with `is_whole` it is sent in one piece with its length."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    pieces: tuple[tuple[float, bytes], ...] = ()
    generator: Generator | None = None
    is_whole: bool = False
    withheld_s: float = 0.0
    end: End = "clean"
    hold_s: float = 0.0
    compare_with_count: int | None = None

    @classmethod
    def of(cls, spec: Json) -> Script:
        """Read `upstream_stream` or `upstream_response`. Raises UnknownField."""
        unknown = sorted(set(spec) - _HEAD - _BODY - _END)
        if unknown:
            raise UnknownField(f"upstream field {unknown[0]}")
        return cls(
            status=spec.get("status", 200),
            headers=spec.get("headers") or {},
            pieces=_pieces(spec),
            generator=Generator.of(spec["generator"]) if "generator" in spec else None,
            is_whole="body_b64" in spec,
            withheld_s=spec.get("headers_after_ms", 0) / 1000,
            end=spec.get("end", "clean"),
            hold_s=spec.get("hold_ms", 0) / 1000,
            compare_with_count=spec.get("compare_with_count"),
        )

    def head(self) -> bytes:
        """Status line and fields; our own framing field unless the case brings one."""
        fields = dict(self.headers)
        if not {name.lower() for name in fields} & {"content-length", "transfer-encoding"}:
            length = sum(len(piece) for _, piece in self.pieces)
            fields |= {"content-length": str(length)} if self.is_whole else {"transfer-encoding": "chunked"}
        lines = [f"HTTP/1.1 {self.status} {_PHRASES.get(self.status, 'Status')}"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    @property
    def is_chunked(self) -> bool:
        return b"transfer-encoding: chunked" in self.head().lower()

    def writes(self) -> Iterator[tuple[float, bytes]]:
        """Seconds to wait, then the body bytes of one write (not yet framed)."""
        yield from self.pieces
        if self.generator:
            for piece in self.generator.writes():
                yield 0.0, piece


def framed(piece: bytes) -> bytes:
    """One HTTP chunk; an empty piece would be the terminator, so it is sent as nothing."""
    return b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b""


def _pieces(spec: Json) -> tuple[tuple[float, bytes], ...]:
    if "body_b64" in spec:
        return ((0.0, base64.b64decode(spec["body_b64"])),)
    chunks = [base64.b64decode(chunk) for chunk in spec.get("chunks_b64") or []]
    delays = spec.get("delays_ms") or [0] * len(chunks)
    return tuple((delay / 1000, chunk) for delay, chunk in zip(delays, chunks, strict=True))


def healthy() -> Script:
    """What a probe gets: a short, flawless stream."""
    chunk = {"id": "chatcmpl-probe", "object": "chat.completion.chunk", "created": 1, "model": "m-up"}
    choices: list[Json] = [
        {"index": 0, "delta": {"role": "assistant", "content": "ok"}, "finish_reason": None},
        {"index": 0, "delta": {}, "finish_reason": "stop"},
    ]
    events = [json.dumps({**chunk, "choices": [choice]}) for choice in choices] + ["[DONE]"]
    body = "".join(f"data: {event}\n\n" for event in events).encode()
    return Script(headers={"content-type": "text/event-stream"}, pieces=((0.0, body),))
