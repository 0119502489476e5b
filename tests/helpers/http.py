"""A client on any trio stream. It reads HTTP/1.1 to the letter, keeps what came behind, and mends nothing."""

from __future__ import annotations

from typing import NamedTuple

import trio

END_OF_HEAD = b"\r\n\r\n"


class Closed(Exception):
    """The other side ended the stream where more was due."""


class Head(NamedTuple):
    """A status and its fields, with lower-case names; a field that came twice is a mistake here."""

    status: int
    headers: dict[str, str]


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def request(line: str = "GET / HTTP/1.1", *fields: str, body: bytes = b"") -> bytes:
    """A whole request; Host and the body's length are added where they are not given."""
    names = [field.partition(":")[0].lower() for field in fields]
    lines = [line, *fields]
    if "host" not in names:
        lines.append("Host: test")
    if body and not {"content-length", "transfer-encoding"} & set(names):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + END_OF_HEAD + body


class HttpClient:
    """One connection, seen from the client."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._data = bytearray()
        self._is_chunked = False

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def ask(self, line: str = "GET / HTTP/1.1", *fields: str, body: bytes = b"") -> Answer:
        await self.send(request(line, *fields, body=body))
        return await self.answer(has_body=not line.startswith("HEAD"))

    async def answer(self, *, has_body: bool = True) -> Answer:
        """The next answer, whole."""
        head = await self.head()
        return Answer(*head, await self._body(head) if has_body else b"")

    async def head(self) -> Head:
        while (end := self._data.find(END_OF_HEAD)) < 0:
            await self._more()
        first, *lines = self._take(end + len(END_OF_HEAD)).decode("latin-1").split("\r\n")[:-2]
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(": ")
            assert name.lower() not in headers, f"{name} came twice"
            headers[name.lower()] = value
        self._is_chunked = headers.get("transfer-encoding") == "chunked"
        assert not (self._is_chunked and "content-length" in headers)
        return Head(int(first.split(" ")[1]), headers)

    async def chunk(self) -> bytes:
        """The data of the next chunk; empty at the body's end."""
        while (end := self._data.find(b"\r\n")) < 0:
            await self._more()
        size = int(self._take(end + 2), 16)
        data = await self._exactly(size + 2)
        assert data.endswith(b"\r\n")
        return data[:-2]

    async def rest(self) -> bytes:
        """All that comes until the other side ends the stream."""
        while data := await self.stream.receive_some():
            self._data += data
        return self._take(len(self._data))

    async def _body(self, head: Head) -> bytes:
        if self._is_chunked:
            pieces = []
            while piece := await self.chunk():
                pieces.append(piece)
            return b"".join(pieces)
        length = head.headers.get("content-length")
        return await self._exactly(int(length)) if length is not None else await self.rest()

    async def _exactly(self, size: int) -> bytes:
        while len(self._data) < size:
            await self._more()
        return self._take(size)

    def _take(self, size: int) -> bytes:
        taken = bytes(self._data[:size])
        del self._data[:size]
        return taken

    async def _more(self) -> None:
        data = await self.stream.receive_some()
        if not data:
            raise Closed(bytes(self._data))
        self._data += data
