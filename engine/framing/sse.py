"""Server-sent events: bytes in, events out (WHATWG HTML, 9.2). Knows nothing of what the data means.

Differs from the standard in one point, as the field's servers need it: a last event without its blank line counts.
"""

from __future__ import annotations

from msgspec import Struct

_BOM = b"\xef\xbb\xbf"
DEFAULT_LIMIT = 4 * 1024 * 1024
"""Bytes of one event: twice the largest seen from real servers (a 1.5 MB base64 image in one chunk)."""


class EventTooLarge(Exception):
    """One event is larger than the parser may hold."""


class ServerSentEvent(Struct, frozen=True, gc=False):
    """One event. `data` has its lines joined by a line feed; `name` is None where no `event` field was sent."""

    data: bytes
    name: bytes | None = None


class SseParser:
    """Feed it reads of any size; it holds at most `limit` bytes of one unfinished event.

    Cost is linear in the bytes fed, also for a long line that comes one byte at a time: a partial line is kept as
    the pieces it came in and joined once.
    """

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._partial_line: list[bytes] = []
        self._held = 0
        self._data: list[bytes] = []
        self._name: bytes | None = None
        self._after_cr = False
        self._before_first_byte = True

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """The events that are complete now. Raises EventTooLarge."""
        if self._before_first_byte:
            data = self._without_bom(data)
        if b"\r" in data or self._after_cr:
            data = self._with_line_feeds(data)
        lines = data.split(b"\n")
        rest = lines.pop()
        events: list[ServerSentEvent] = []
        if lines:
            if self._partial_line:
                lines[0] = b"".join((*self._partial_line, lines[0]))
                self._partial_line.clear()
            self._take(lines, events)
        if rest:
            self._partial_line.append(rest)
        self._count_held(len(data), events, len(rest), bool(lines))
        return events

    @property
    def is_between_events(self) -> bool:
        """Whether the next byte begins a new event."""
        return not (self._partial_line or self._data or self._name or self._after_cr or self._before_first_byte)

    def close(self) -> list[ServerSentEvent]:
        """The event that the end of the stream cut short, if it has data."""
        events: list[ServerSentEvent] = []
        if self._partial_line:
            last = b"".join(self._partial_line)
            self._partial_line.clear()
            self._take([last], events)
        self._take([b""], events)
        return events

    def _take(self, lines: list[bytes], events: list[ServerSentEvent]) -> None:
        for line in lines:
            if line[:6] == b"data: ":
                self._data.append(line[6:])
            elif not line:
                if self._data:
                    data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                    events.append(ServerSentEvent(data, self._name))
                    self._data = []
                self._name = None
            else:
                self._take_other_field(line)

    def _take_other_field(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value or None
        # Comments (an empty field name), `id` and `retry` say nothing that a turn needs.

    def _without_bom(self, data: bytes) -> bytes:
        """A byte order mark may itself be cut by reads, so up to two bytes wait for the third."""
        head = b"".join(self._partial_line) + data
        self._partial_line.clear()
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._partial_line = [head] if head else []
            return b""
        self._before_first_byte = False
        return head.removeprefix(_BOM)

    def _with_line_feeds(self, data: bytes) -> bytes:
        """CRLF and CR become LF; a CR at the end of one read swallows an LF at the start of the next."""
        if self._after_cr and data[:1] == b"\n":
            data = data[1:]
            self._after_cr = False
        if data:
            self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _count_held(self, fed: int, events: list[ServerSentEvent], rest: int, line_ended: bool) -> None:
        """Sum up only what this read brought, so that many small reads stay linear."""
        if not events and (self._data or not line_ended):
            self._held += fed
        elif self._data:
            self._held = sum(map(len, self._data)) + rest
        else:
            self._held = rest
        if self._held > self._limit:
            raise EventTooLarge(f"an event is larger than {self._limit} bytes")


def encode(data: bytes, name: bytes | None = None) -> bytes:
    """One event in canonical form: LF line ends, `data: ` with its space, and one line. `data` is JSON without a CR.

    A line feed between JSON tokens is white space and cannot stand inside a JSON string, so a blank serves as well;
    clients whose parser keeps only the last data line are thereby served too.
    """
    if b"\n" in data:
        data = data.replace(b"\n", b" ")
    if name is None:
        return b"data: " + data + b"\n\n"
    return b"event: " + name + b"\ndata: " + data + b"\n\n"


def comment(text: bytes) -> bytes:
    """A comment line: keeps intermediaries from closing an idle stream, and is skipped by every client."""
    return b": " + text + b"\n\n"
