"""An upstream's bytes to a response: the same whatever reads they come in, and when its connection can serve again."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from typing import NamedTuple

import pytest

from engine.wire.http1_client import MOST_HEAD_BYTES, BadResponse, ClientConnection, ConnectionLost
from engine.wire.transport import TransportBroken
from tests.pure.streams import bytes_of, every_cut


class Pieces:
    """A transport whose peer has said all it will say, in these reads, and then closes."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece]
        self.sent = b""

    def try_send(self, data: memoryview) -> int:
        self.sent += data
        return len(data)

    async def send_some(self, data: memoryview) -> int:
        return self.try_send(data)

    def try_receive(self) -> bytes | None:
        return self._pieces.pop(0) if self._pieces else b""

    async def receive(self) -> bytes:
        return self.try_receive() or b""

    def is_quiet(self) -> bool:
        return not self._pieces

    def finish_sending(self) -> None: ...

    def close(self) -> None: ...

    def reset(self) -> None: ...


class Seen(NamedTuple):
    """What was made of some bytes, and whether the connection can be used again."""

    status: int | None
    body: bytes
    end: str
    is_reusable: bool = False


async def seen(pieces: Iterable[bytes]) -> Seen:
    connection = ClientConnection(Pieces(pieces))
    await connection.send(b"GET / HTTP/1.1\r\n\r\n", b"")
    assert not connection.is_reusable
    status, body = None, b""
    try:
        status = (await connection.receive_head()).status
        while data := await connection.receive_body():
            body += data
    except ConnectionLost as lost:
        return Seen(status, body, "untouched" if lost.was_untouched else "lost", connection.is_reusable)
    except BadResponse:
        return Seen(status, body, "bad", connection.is_reusable)
    return Seen(status, body, "whole", connection.is_reusable)


def ok(*fields: bytes, body: bytes = b"", status: bytes = b"200 OK") -> bytes:
    return b"\r\n".join((b"HTTP/1.1 " + status, *fields)) + b"\r\n\r\n" + body


CHUNKED = b"Transfer-Encoding: chunked"
CHUNKS = b"2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n"
PACKED = gzip.compress(b"hello", mtime=0)

WHOLE: dict[str, tuple[bytes, Seen]] = {
    "a length": (ok(b"Content-Length: 5", body=b"hello"), Seen(200, b"hello", "whole", True)),
    "a length of nothing": (ok(b"Content-Length: 0"), Seen(200, b"", "whole", True)),
    "chunks": (ok(CHUNKED, body=CHUNKS), Seen(200, b"hello", "whole", True)),
    "trailers": (ok(CHUNKED, body=CHUNKS[:-2] + b"X: y\r\n\r\n"), Seen(200, b"hello", "whole", True)),
    "the connection's end": (ok(body=b"hello"), Seen(200, b"hello", "whole", False)),
    "a wish to close": (
        ok(b"Connection: close", b"Content-Length: 5", body=b"hello"),
        Seen(200, b"hello", "whole", False),
    ),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", Seen(200, b"hello", "whole", False)),
    "an interim response before it": (
        ok(status=b"100 Continue") + ok(b"Link: x", status=b"103 Early Hints") + ok(b"Content-Length: 2", body=b"hi"),
        Seen(200, b"hi", "whole", True),
    ),
    "an error": (ok(b"Content-Length: 2", body=b"no", status=b"503 Busy"), Seen(503, b"no", "whole", True)),
    "gzip": (
        ok(b"Content-Encoding: gzip", b"Content-Length: %d" % len(PACKED), body=PACKED),
        Seen(200, b"hello", "whole", True),
    ),
    "identity": (ok(b"Content-Encoding: identity", b"Content-Length: 2", body=b"hi"), Seen(200, b"hi", "whole", True)),
}


@pytest.mark.parametrize(("data", "expected"), WHOLE.values(), ids=WHOLE)
async def test_a_response_is_the_same_whole_and_byte_by_byte_and_cut_anywhere(data: bytes, expected: Seen) -> None:
    for pieces in every_cut(data):
        assert await seen(pieces) == expected, pieces


@pytest.mark.parametrize("name", ["a length", "chunks", "gzip", "an interim response before it"])
async def test_a_response_that_is_cut_anywhere_is_never_taken_for_whole(name: str) -> None:
    data, _ = WHOLE[name]
    for place in range(len(data)):
        for pieces in ([data[:place]], bytes_of(data[:place])):
            result = await seen(pieces)
            assert result.end == ("lost" if place else "untouched")
            assert not result.is_reusable


@pytest.mark.parametrize("name", ["a length", "a length of nothing", "chunks"])
@pytest.mark.parametrize("more", [b"x", ok(b"Content-Length: 0"), b"HTTP/1.1 200 OK\r\n"])
async def test_a_connection_that_says_more_than_it_was_asked_for_is_not_used_again(name: str, more: bytes) -> None:
    data, expected = WHOLE[name]
    assert await seen([data + more]) == expected._replace(is_reusable=False)
    connection = ClientConnection(Pieces([data, more]))
    await connection.send(b"", b"")
    await connection.receive_head()
    while await connection.receive_body():
        pass
    assert connection.is_stale()


BAD: dict[str, bytes] = {
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "HTML": b"<html></html>",
    "TLS": b"\x15\x03\x01\x00\x02\x02\x46",
    "another protocol": ok(b"Connection: upgrade", b"Upgrade: websocket", status=b"101 Switching Protocols"),
    "a length and chunks": ok(b"Content-Length: 5", CHUNKED, body=CHUNKS),
    "two lengths": ok(b"Content-Length: 5", b"Content-Length: 6", body=b"hello!"),
    "a chunk's size in no number": ok(CHUNKED, body=b"x\r\nhello"),
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
async def test_a_broken_response_is_told_and_its_connection_is_not_used_again(data: bytes) -> None:
    for pieces in every_cut(data):
        result = await seen(pieces)
        assert (result.end, result.body, result.is_reusable) == ("bad", b"", False), pieces


@pytest.mark.parametrize("coding", [b"br", b"gzip", b"gzip, br"])
async def test_a_body_that_cannot_be_decoded_is_told(coding: bytes) -> None:
    for pieces in every_cut(ok(b"Content-Encoding: " + coding, b"Content-Length: 11", body=b"hello world")):
        result = await seen(pieces)
        assert (result.end, result.body) == ("bad", b""), pieces


@pytest.mark.parametrize("size", [100, 60_000])
async def test_a_head_without_bound_is_given_up(size: int) -> None:
    for data in (ok(b"X: " + b"y" * 2 * MOST_HEAD_BYTES), ok(status=b"100 Continue") * 20_000):
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        assert (await seen(pieces)).end == "bad"


async def test_trailers_say_nothing_of_the_head() -> None:
    data = ok(CHUNKED, b"Retry-After: 5", body=b"0\r\nRetry-After: 9\r\nContent-Type: text/html\r\n\r\n")
    connection = ClientConnection(Pieces([data]))
    await connection.send(b"", b"")
    head = await connection.receive_head()
    assert await connection.receive_body() == b""
    assert head.headers == {b"transfer-encoding": b"chunked", b"retry-after": b"5"}


async def test_trailers_without_bound_are_given_up() -> None:
    more = b"".join(b"X%d: y\r\n" % number for number in range(MOST_HEAD_BYTES // 4))
    data = ok(CHUNKED, body=b"2\r\nhe\r\n0\r\n" + more)
    result = await seen(data[at : at + 60_000] for at in range(0, len(data), 60_000))
    assert result.end == "bad"


async def test_a_large_body_is_sent_whole() -> None:
    transport = Pieces([])
    await ClientConnection(transport).send(b"head", b"x" * 200_000)
    assert transport.sent == b"head" + b"x" * 200_000


class Deaf(Pieces):
    """A peer that stops reading in the middle of a request, and has said why."""

    def try_send(self, data: memoryview) -> int:
        if self.sent:
            raise TransportBroken("reset")
        self.sent += data[:10]
        return 10


async def test_an_answer_to_a_request_that_was_not_taken_to_its_end_is_heard() -> None:
    connection = ClientConnection(Deaf([b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno"]))
    await connection.send(b"POST / HTTP/1.1\r\n\r\n", b"x" * 1_000_000)
    assert (await connection.receive_head()).status == 413
    assert await connection.receive_body() == b"no"
    assert not connection.is_reusable, "the other side still waits for the rest of the request"


async def test_a_request_that_was_not_taken_and_not_answered_is_lost() -> None:
    connection = ClientConnection(Deaf([]))
    await connection.send(b"POST / HTTP/1.1\r\n\r\n", b"")
    with pytest.raises(ConnectionLost) as lost:
        await connection.receive_head()
    assert lost.value.was_untouched
