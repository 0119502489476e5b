"""One connection to an upstream: a request out, its response in, and whether the connection can be used again."""

from __future__ import annotations

import httptools
from msgspec import Struct

from engine.wire.encoding import BadCoding, Inflater
from engine.wire.http1 import Headers, add_header
from engine.wire.transport import READ_SIZE, Transport, TransportBroken

MOST_HEAD_BYTES = 256 * 1024
"""Bytes of a response's head; a bound against a broken upstream, well above any real one."""


class BadResponse(Exception):
    """The upstream does not speak HTTP/1.1 as it should."""


class ConnectionLost(Exception):
    """The upstream ended or reset the connection before the response was complete.

    `was_untouched`: before it had sent a single byte of it, so that a connection that had been idle was just stale.
    """

    def __init__(self, *, was_untouched: bool) -> None:
        super().__init__("the connection was lost before the response was complete")
        self.was_untouched = was_untouched


class ResponseHead(Struct, frozen=True):
    """Status and header fields (lower-case names) of a final response."""

    status: int
    headers: Headers


class ClientConnection:
    """Use it for one request at a time. Cancelled anywhere, it must be closed: `is_reusable` then says so."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.served = 0
        self._reading = _ResponseReader()
        self._inflater: Inflater | None = None
        self._is_clean = True
        self._is_cut = False
        """Whether a request was not taken to its end."""

    @property
    def is_reusable(self) -> bool:
        """Whether the last response has been read to its end and both sides mean to go on."""
        return self._is_clean

    def is_stale(self) -> bool:
        """Whether an idle connection was closed, or was sent something nobody asked for."""
        return not self.transport.is_quiet()

    async def send(self, head: bytes, body: bytes) -> None:
        """Send a whole request. If the upstream stops reading it, its answer may still be there to be received."""
        self._is_clean = False
        self._reading = _ResponseReader()
        self._inflater = None
        try:
            if len(body) <= READ_SIZE:
                await self._send_all(head + body)
            else:  # a large body is not copied to save a system call
                await self._send_all(head)
                await self._send_all(body)
        except TransportBroken:
            self._is_cut = True

    async def _send_all(self, data: bytes) -> None:
        rest = memoryview(data)
        rest = rest[self.transport.try_send(rest) :]
        while rest:
            rest = rest[await self.transport.send_some(rest) :]

    async def receive_head(self) -> ResponseHead:
        """The final response's head. Raises ConnectionLost, BadResponse."""
        while (head := self._reading.head) is None:
            await self._read()
        coding = head.headers.get(b"content-encoding", b"identity")
        try:
            self._inflater = Inflater(coding) if coding.strip().lower() not in (b"", b"identity") else None
        except BadCoding as error:
            raise BadResponse(str(error)) from None
        return head

    @property
    def is_complete(self) -> bool:
        """Whether the body has been read to its end."""
        return self._reading.is_complete

    def receive_body_nowait(self) -> bytes | None:
        """What there is of the body; empty at its end; None when it must be waited for. Raises as below."""
        while True:
            if data := self._take_body():
                return data
            if self.is_complete:
                return b""
            if not self._read_nowait():
                return None

    async def receive_body(self) -> bytes:
        """More of the body, decoded; empty at its end. Raises ConnectionLost, BadResponse."""
        data = self.receive_body_nowait()
        return data if data is not None else await self.wait_for_body()

    async def wait_for_body(self) -> bytes:
        """The same, when `receive_body_nowait` had nothing."""
        while True:
            await self._read()
            if data := self._take_body():
                return data
            if self.is_complete:
                return b""

    def _take_body(self) -> bytes:
        data = self._reading.take_body()
        if self._inflater is None:
            return data
        try:
            self._inflater.feed(data)
            return self._inflater.take()
        except BadCoding as error:
            raise BadResponse(str(error)) from None

    def _read_nowait(self) -> bool:
        """Take what the socket has; False if it has nothing."""
        try:
            data = self.transport.try_receive()
        except TransportBroken:
            raise ConnectionLost(was_untouched=self._reading.is_untouched) from None
        if data is not None:
            self._fed(data)
        return data is not None

    async def _read(self) -> None:
        try:
            self._fed(await self.transport.receive())
        except TransportBroken:
            raise ConnectionLost(was_untouched=self._reading.is_untouched) from None

    def _fed(self, data: bytes) -> None:
        reading = self._reading
        if data:
            reading.feed(data)
            if reading.silent_bytes > MOST_HEAD_BYTES:
                raise BadResponse(f"its head or trailers are larger than {MOST_HEAD_BYTES} bytes")
        elif reading.ends_at_eof:
            reading.is_complete = True
        else:
            raise ConnectionLost(was_untouched=reading.is_untouched)
        if reading.is_complete:
            self.served += 1
            self._is_clean = bool(data) and reading.keeps_alive and not reading.has_extra and not self._is_cut


class _ResponseReader:
    """One response's bytes. Sans-I/O."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: Headers = {}
        self._body: list[bytes] = []
        self.head: ResponseHead | None = None
        self.silent_bytes = 0
        """Bytes of heads, chunk extensions and trailers: all that is not body."""
        self._heard_body = False
        self.is_untouched = True
        self.is_complete = False
        self.has_extra = False
        self.keeps_alive = False

    @property
    def ends_at_eof(self) -> bool:
        """Whether the body has no other end than the connection's (RFC 9112, 6.3, the last case)."""
        headers = self.head.headers if self.head is not None else None
        return headers is not None and b"content-length" not in headers and b"transfer-encoding" not in headers

    def feed(self, data: bytes) -> None:
        self.is_untouched = False
        self._heard_body = False
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self.is_complete:
                raise BadResponse(f"the response is not valid HTTP/1.1: {error}") from None
            self.has_extra = True
        if self.head is None or not (self._heard_body or self.is_complete):
            self.silent_bytes += len(data)

    def take_body(self) -> bytes:
        if not self._body:
            return b""
        data = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        return data

    # Called by the parser

    def on_message_begin(self) -> None:
        if self.is_complete:
            self.has_extra = True
        if self.head is None:
            self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head is not None:
            return  # a trailer, which says nothing of the head
        add_header(self._headers, name, value)

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200 and self.head is None:
            self.head = ResponseHead(status, self._headers)
            self.keeps_alive = self._parser.should_keep_alive()

    def on_body(self, data: bytes) -> None:
        self._heard_body = True
        if not self.has_extra:
            self._body.append(data)

    def on_message_complete(self) -> None:
        if self.head is not None:  # an interim response (1xx) is complete too, and is nothing to us
            self.is_complete = True
