"""Just enough HTTP/1.1 to ask and to know that an answer is whole; strict and pure.

Not the gateway's parser, so that a fault in its framing is seen here rather than shared.
"""

import json
from dataclasses import dataclass

TERMINATOR = b"0\r\n\r\n"
HEAD_END = b"\r\n\r\n"


def chat_request(model: str, *, stream: bool, text: str = "Say something.") -> bytes:
    """A small chat request, head and body."""
    messages = [{"role": "user", "content": text}]
    body = json.dumps({"model": model, "stream": stream, "messages": messages}).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Accept: */*\r\nUser-Agent: bench\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def split_request(received: bytes) -> tuple[bytes, bytes] | None:
    """Body and whatever follows it, or None while the request is not whole."""
    head_end = received.find(HEAD_END)
    if head_end < 0:
        return None
    length = header(received[:head_end], b"content-length")
    if length is None:
        raise ValueError("the upstream of the bench reads bodies by Content-Length only")
    body_start = head_end + len(HEAD_END)
    body_end = body_start + int(length)
    if len(received) < body_end:
        return None
    return received[body_start:body_end], received[body_end:]


def header(head: bytes, name: bytes) -> bytes | None:
    """The value of one header, by its lower-case name."""
    lowered = head.lower()
    at = lowered.find(b"\r\n" + name + b":")
    if at < 0:
        return None
    start = at + len(name) + 3
    end = lowered.find(b"\r\n", start)
    return head[start : end if end >= 0 else len(head)].strip()


@dataclass(frozen=True)
class Head:
    """What the head of an answer says of its end."""

    status: int
    size: int  # bytes of the head with its empty line
    length: int | None  # None: chunked
    stays_open: bool


def read_head(received: bytes) -> Head | None:
    """None while it is not whole. An answer that ends with its connection is refused: is it whole?"""
    head_end = received.find(HEAD_END)
    if head_end < 0:
        return None
    head = received[:head_end]
    length = header(head, b"content-length")
    if length is None and header(head, b"transfer-encoding") != b"chunked":
        raise ValueError(f"an answer without a length: {head[:200]!r}")
    return Head(
        status=int(head[9:12]),
        size=head_end + len(HEAD_END),
        length=None if length is None else int(length),
        stays_open=header(head, b"connection") != b"close",
    )


def read_body(received: bytes, head: Head) -> bytes | None:
    """The body without its framing, or None while it is not whole."""
    if head.length is None:
        return dechunk(received, head.size) if received.endswith(TERMINATOR) else None
    end = head.size + head.length
    if len(received) > end:
        raise ValueError("bytes after the answer")
    return received[head.size :] if len(received) == end else None


def dechunk(received: bytes, at: int) -> bytes | None:
    """The data of all chunks, or None where the terminator seen was text inside a chunk that is not whole."""
    pieces: list[bytes] = []
    while True:
        line_end = received.find(b"\r\n", at)
        if line_end < 0:
            return None
        size = int(received[at:line_end], 16)
        start, end = line_end + 2, line_end + 2 + size
        if len(received) < end + 2:
            return None
        if received[end : end + 2] != b"\r\n":
            raise ValueError(f"a chunk of {size} bytes without its end")
        if size == 0:
            return finish(pieces, received, end + 2)
        pieces.append(received[start:end])
        at = end + 2


def finish(pieces: list[bytes], received: bytes, end: int) -> bytes:
    if len(received) != end:
        raise ValueError("bytes after the terminator")
    return b"".join(pieces)
