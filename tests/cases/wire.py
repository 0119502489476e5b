"""HTTP/1.1 messages out of bytes, for both fakes. Pure, and apart from `engine.wire`, which it judges.

It never refuses: what is unlawful about a message is kept as a fact (`is_lawful`), because that is what the
cases ask about.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

_BLANK_LINE = re.compile(rb"\r?\n\r?\n")
_FRAMING = ("content-length", "transfer-encoding")


class State(Enum):
    HEAD = auto()
    LENGTH = auto()
    UNTIL_CLOSE = auto()
    CHUNK_SIZE = auto()
    CHUNK = auto()
    CHUNK_END = auto()
    TRAILERS = auto()
    COMPLETE = auto()
    BROKEN = auto()


@dataclass(frozen=True)
class Head:
    """A start line and its fields, also as the very text that came."""

    text: str
    start: tuple[str, str, str]
    fields: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, raw: bytes) -> Head:
        text = raw.decode("latin-1")
        first, *lines = text.splitlines()
        pairs = (line.partition(":") for line in lines)
        method, _, rest = first.partition(" ")
        target, _, version = rest.partition(" ")
        fields = tuple((name.strip().lower(), value.strip()) for name, _, value in pairs)
        return cls(text, (method, target, version), fields)

    @property
    def status(self) -> int:
        """Of a response; 0 where no number stands."""
        return int(self.start[1]) if self.start[1].isdigit() else 0

    @property
    def headers(self) -> dict[str, str]:
        """Lower-case names; repeated ones joined with a comma."""
        joined: dict[str, str] = {}
        for name, value in self.fields:
            joined[name] = f"{joined[name]}, {value}" if name in joined else value
        return joined

    def get(self, name: str) -> str:
        return self.headers.get(name, "").lower()

    @property
    def framings(self) -> int:
        return sum(name in _FRAMING for name, _ in self.fields)


class MessageReader:
    """One message at a time: `feed` bytes in, body bytes out; `next_message` keeps what came behind it."""

    def __init__(self, *, is_response: bool) -> None:
        self._is_response = is_response
        self._rest = bytearray()
        self.next_message()

    def next_message(self, *, has_no_body: bool = False) -> None:
        """`has_no_body`: the response to HEAD, whose fields describe a body that does not come."""
        self._has_no_body = has_no_body
        self.head: Head | None = None
        self.state = State.HEAD
        self.body_bytes = 0
        self._left = 0

    @property
    def is_complete(self) -> bool:
        return self.state is State.COMPLETE

    @property
    def is_followed_by_garbage(self) -> bool:
        """Bytes behind a response that do not begin another one: its length was wrong."""
        return self._is_response and not b"HTTP/1.".startswith(self._rest[:7])

    @property
    def is_lawful(self) -> bool:
        """Complete, and framed by exactly one field (a response also by the end of a closing connection)."""
        if self.head is None or not self.is_complete or self.is_followed_by_garbage:
            return False
        if self._has_no_body or self.head.framings == 1:
            return True
        if self._is_response:
            return self.head.framings == 0 and "close" in self.head.get("connection")
        return self.head.framings == 0 and self.body_bytes == 0

    def feed(self, data: bytes) -> bytes:
        """Take bytes as they came; returns the body's bytes among them, without framing."""
        self._rest += data
        body = bytearray()
        while self._advance(body):
            pass
        self.body_bytes += len(body)
        return bytes(body)

    def end(self) -> None:
        """The connection ended: lawful only where nothing else frames the body."""
        if self.state is State.UNTIL_CLOSE:
            self.state = State.COMPLETE

    def _advance(self, body: bytearray) -> bool:
        """One step; false when more bytes are needed or none are wanted."""
        match self.state:
            case State.HEAD:
                return self._read_head()
            case State.LENGTH | State.CHUNK:
                return self._read_counted(body)
            case State.UNTIL_CLOSE:
                return self._take(len(self._rest), body)
            case State.CHUNK_SIZE | State.CHUNK_END | State.TRAILERS:
                return self._read_chunk_line()
        return False

    def _take(self, count: int, into: bytearray) -> bool:
        into += self._rest[:count]
        del self._rest[:count]
        return count > 0

    def _read_head(self) -> bool:
        end = _BLANK_LINE.search(self._rest)
        if end is None:
            return False
        self.head = Head.parse(bytes(self._rest[: end.start()]))
        del self._rest[: end.end()]
        self.state = self._state_after(self.head)
        return True

    def _state_after(self, head: Head) -> State:
        has_no_body = self._has_no_body or (self._is_response and (head.status < 200 or head.status in (204, 304)))
        length = head.get("content-length")
        if has_no_body:
            return State.COMPLETE
        if "chunked" in head.get("transfer-encoding"):
            return State.CHUNK_SIZE
        if length.isdigit():
            self._left = int(length)
            return State.LENGTH if self._left else State.COMPLETE
        if length:
            return State.BROKEN
        return State.UNTIL_CLOSE if self._is_response else State.COMPLETE

    def _read_counted(self, body: bytearray) -> bool:
        count = min(self._left, len(self._rest))
        self._take(count, body)
        self._left -= count
        if self._left == 0:
            self.state = State.COMPLETE if self.state is State.LENGTH else State.CHUNK_END
            return True
        return False

    def _read_chunk_line(self) -> bool:
        end = self._rest.find(b"\n")
        if end < 0:
            return False
        line = bytes(self._rest[:end]).strip()
        del self._rest[: end + 1]
        self.state = self._state_after_line(line)
        return True

    def _state_after_line(self, line: bytes) -> State:
        if self.state is State.TRAILERS:
            return State.TRAILERS if line else State.COMPLETE
        if self.state is State.CHUNK_END:
            return State.BROKEN if line else State.CHUNK_SIZE
        size = line.partition(b";")[0]
        if not re.fullmatch(rb"[0-9a-fA-F]+", size):
            return State.BROKEN
        self._left = int(size, 16)
        return State.CHUNK if self._left else State.TRAILERS
