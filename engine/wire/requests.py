"""A client's bytes to requests. No I/O (a clock, for the deadline of heads), and strict: what is read in two ways
somewhere is refused here."""

from __future__ import annotations

from collections import deque

import httptools
import trio
from msgspec import Struct

from engine.errors import Fault, Kind, TurnError
from engine.wire.http1 import Headers, add_header, has_token, render_head

_FRAMING = (b"content-length", b"transfer-encoding")


class Limits(Struct, frozen=True):
    """What one connection may make the gateway hold, in bytes, requests and seconds."""

    head_bytes: int = 64 * 1024
    body_bytes: int = 32 * 1024 * 1024
    pipelined_bytes: int = 64 * 1024
    requests_per_connection: int = 1000


class Request:
    """A request as far as it has been read: the head is whole, the body when `is_complete`."""

    __slots__ = (
        "body",
        "discard",
        "headers",
        "is_complete",
        "is_too_large",
        "keep_alive",
        "method",
        "path",
        "target",
        "version",
    )

    def __init__(self, method: bytes, target: bytes, version: str, headers: Headers, *, keep_alive: bool) -> None:
        self.method = method
        self.target = target
        self.path = _path_of(target)
        """Without authority and query, as sent; bytes that are not ASCII appear as U+FFFD."""
        self.version = version
        self.headers = headers
        self.keep_alive = keep_alive
        self.body = bytearray()
        self.discard = False
        self.is_complete = False
        self.is_too_large = False

    @property
    def expects_continue(self) -> bool:
        return self.version != "1.0" and has_token(self.headers, b"expect", b"100-continue")

    @property
    def content_length(self) -> int | None:
        value = self.headers.get(b"content-length")
        return int(value) if value is not None else None


def _path_of(target: bytes) -> str:
    """The path in a target in origin form or in absolute form (RFC 9112, 3.2)."""
    path = target.partition(b"?")[0]
    if path.lower().startswith((b"http://", b"https://")):
        path = b"/" + path.partition(b"://")[2].partition(b"/")[2]
    return path.decode("ascii", "replace")


class RequestReader:
    """Bytes to requests. Sans-I/O; holds at most one read's requests and `pipelined_bytes` behind them."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._parser = httptools.HttpRequestParser(self)
        self._requests: deque[Request] = deque()
        self._newest: Request | None = None
        self._behind = bytearray()
        self._fault: Fault | None = None
        self._uncounted = 0
        """Bytes since something of a head or a body was whole: what the parser may be holding."""
        self._head_at_most = 0
        """Bytes of all the reads that the head may stand in: below the limit, nothing has to be counted."""
        self._is_in_head = False
        self._heard_head = False
        self._heard_body = False
        self._is_declining = False
        self._is_replaying = False
        self._target = b""
        self._headers: Headers = {}
        self.began_at: float | None = None
        """When the head that is being read began."""

    @property
    def has_begun(self) -> bool:
        """Whether there is anything of a request that has not been answered."""
        return self.began_at is not None or bool(self._requests) or bool(self._behind)

    @property
    def is_owed_bytes(self) -> bool:
        """Whether the client may still be sending: closing now could destroy what it has yet to read."""
        body_missing = self._newest is not None and not self._newest.is_complete
        return body_missing or bool(self._behind) or self._fault is not None or self.began_at is not None

    def take(self, data: bytes) -> bool:
        """Parse, or keep behind a request that is still to be answered; False if that is too much."""
        if self._requests and self._requests[-1].is_complete:
            self._behind += data
            return len(self._behind) <= self._limits.pipelined_bytes
        self._feed(data)
        return True

    def next_request(self) -> Request | None:
        """The oldest request whose head is whole. Raises TurnError for a broken or oversized head."""
        if not self._requests and self._behind:
            behind, self._behind = bytes(self._behind), bytearray()
            self._feed(behind)
        if self._requests:
            return self._requests[0]
        self.raise_if_broken()
        return None

    def done_with(self, request: Request) -> None:
        if self._requests and self._requests[0] is request:
            self._requests.popleft()

    def raise_if_broken(self) -> None:
        if self._fault is not None:
            raise TurnError(self._fault)

    def _feed(self, data: bytes) -> None:
        if self._fault is not None:
            return
        was_in_head, self._heard_head, self._heard_body = self._is_in_head, False, False
        self._head_at_most = len(data) + (self._head_at_most if was_in_head else 0)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._fault is None:
                self._decline_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError as error:
            self._refuse(Kind.BAD_REQUEST, f"The request is not valid HTTP/1.1: {error}.")
        if not self._heard_head and (self._is_in_trailers() or (was_in_head and self._is_in_head)):
            self._uncounted += len(data)
            self._check_head(self._uncounted)
        else:
            self._uncounted = 0

    def _is_in_trailers(self) -> bool:
        """Whether a body goes on without bringing anything: chunk extensions and trailers are bounded like a head."""
        request = self._newest
        return request is not None and not request.is_complete and not self._is_in_head and not self._heard_body

    def _decline_upgrade(self, rest: bytes) -> None:
        """An upgrade is an offer; we answer as if it had not been made (RFC 9110, 7.8).

        The parser stops at the offer and takes what follows for another protocol. It is the request's body: a new
        parser is told its length, lest it be read as a request of its own.
        """
        request, self._is_declining = self._newest, False
        assert request is not None
        fields = [(name, request.headers[name]) for name in _FRAMING if name in request.headers]
        self._parser = httptools.HttpRequestParser(self)
        self._is_replaying = True
        self._parser.feed_data(render_head(request.method + b" / HTTP/1.1", [(b"host", b"-"), *fields]))
        self._is_replaying = False
        if request.is_complete:
            self._behind += rest
        elif rest:
            self._feed(rest)

    def _refuse(self, kind: Kind, message: str) -> None:
        self._fault = self._fault or Fault(kind, message)

    def _check_head(self, size: int) -> None:
        limit = self._limits.head_bytes
        if size > limit:
            self._refuse(Kind.HEAD_TOO_LARGE, f"The request's head is larger than {limit} bytes.")

    # Called by the parser

    def on_message_begin(self) -> None:
        if not self._is_replaying:
            self.began_at = trio.current_time()
            self._is_in_head = True
            self._target = b""
            self._headers = {}

    def on_url(self, url: bytes) -> None:
        if not self._is_replaying:
            self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_in_head:
            return  # a trailer, which says nothing to us, or the replay of a head
        if len(name) == len(b"host") and name.lower() == b"host" and b"host" in self._headers:
            self._refuse(Kind.BAD_REQUEST, "The request has two Host header fields.")
        add_header(self._headers, name, value)

    def on_headers_complete(self) -> None:
        if self._is_replaying:
            return
        parser = self._parser
        version, method = parser.get_http_version(), parser.get_method()
        request = Request(method, self._target, version, self._headers, keep_alive=parser.should_keep_alive())
        self._check_request(request)
        self._is_declining = parser.should_upgrade()
        self._is_in_head = False
        self._heard_head = True
        self.began_at = None
        if self._fault is None:
            self._newest = request
            self._requests.append(request)

    def _check_request(self, request: Request) -> None:
        if self._head_at_most > self._limits.head_bytes:
            fields = sum(len(name) + len(value) + 4 for name, value in request.headers.items())
            self._check_head(len(request.target) + fields)
        if request.version not in ("1.0", "1.1"):
            self._refuse(Kind.BAD_REQUEST, "The request is not HTTP/1.1 or HTTP/1.0.")
        if request.version == "1.1" and b"host" not in request.headers:
            self._refuse(Kind.BAD_REQUEST, "The request has no Host header field.")
        coding = request.headers.get(b"transfer-encoding")
        if coding is not None and (request.version == "1.0" or coding.strip().lower() != b"chunked"):
            # HTTP/1.0 knows none, and whoever knows another reads another end of the body (RFC 9112, 6.1).
            self._refuse(Kind.BAD_REQUEST, "The only transfer coding is `chunked`, and HTTP/1.0 has none.")
        if request.method == b"CONNECT":
            self._refuse(Kind.BAD_REQUEST, "This is not a proxy: CONNECT has no meaning here.")

    def on_body(self, data: bytes) -> None:
        self._heard_body = True
        request = self._newest
        if request is None or request.discard or request.is_too_large:
            return
        if len(request.body) + len(data) > self._limits.body_bytes:
            request.is_too_large = True
            request.body.clear()
        else:
            request.body += data

    def on_message_complete(self) -> None:
        if self._newest is not None and not self._is_declining:
            self._newest.is_complete = True
