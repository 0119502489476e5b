"""A client's bytes to requests: the same whatever reads they come in, and refused where two readers could differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import NamedTuple

import pytest
import trio

from engine.errors import Kind, TurnError
from engine.wire.requests import Limits, RequestReader
from tests.pure.streams import bytes_of, every_cut

HOST = b"Host: a\r\n"
SMALL = Limits(head_bytes=500, body_bytes=100, pipelined_bytes=300)


def on_a_clock(test: Callable[..., None]) -> Callable[..., None]:
    """The reader notes on trio's clock when a head begins; otherwise it needs no loop."""

    @wraps(test)
    def run(**arguments: object) -> None:
        async def within() -> None:
            await trio.lowlevel.checkpoint()
            test(**arguments)

        trio.run(within)

    return run


class Seen(NamedTuple):
    """What was made of some bytes: method, path and body of each request, and what ended it."""

    requests: list[tuple[bytes, str, bytes]]
    fault: Kind | None = None


def seen(pieces: Iterable[bytes], limits: Limits | None = None) -> Seen:
    """Read and answer each request as soon as it is whole."""
    reader = RequestReader(limits or Limits())
    requests: list[tuple[bytes, str, bytes]] = []
    for piece in pieces:
        if not reader.take(piece):
            return Seen(requests, Kind.CLIENT_OVERRAN)
        try:
            while (request := reader.next_request()) is not None and request.is_complete:
                if request.is_too_large:
                    return Seen(requests, Kind.BODY_TOO_LARGE)
                requests.append((request.method, request.path, bytes(request.body)))
                reader.done_with(request)
            reader.raise_if_broken()
        except TurnError as error:
            return Seen(requests, error.fault.kind)
    return Seen(requests)


def post(*fields: bytes, body: bytes = b"") -> bytes:
    lines = (b"POST /x HTTP/1.1", b"Host: a", *fields)
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


CHUNKED = b"Transfer-Encoding: chunked"
NEXT = b"GET /next HTTP/1.1\r\n" + HOST + b"\r\n"
THE_NEXT = (b"GET", "/next", b"")

GOOD: dict[str, tuple[bytes, list[tuple[bytes, str, bytes]]]] = {
    "no body": (NEXT, [THE_NEXT]),
    "a body with a length": (post(b"Content-Length: 5", body=b"hello"), [(b"POST", "/x", b"hello")]),
    "a length of nothing": (post(b"Content-Length: 0"), [(b"POST", "/x", b"")]),
    "a body in chunks": (post(CHUNKED, body=b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"), [(b"POST", "/x", b"hello")]),
    "chunk extensions": (post(CHUNKED, body=b"2;a=b\r\nhe\r\n0;c\r\n\r\n"), [(b"POST", "/x", b"he")]),
    "trailers": (post(CHUNKED, body=b"2\r\nhe\r\n0\r\nHost: evil\r\nX: y\r\n\r\n"), [(b"POST", "/x", b"he")]),
    "several, one behind the other": (
        post(b"Content-Length: 1", body=b"a") + NEXT * 2,
        [(b"POST", "/x", b"a"), *[THE_NEXT] * 2],
    ),
    "a body that looks like a request": (post(b"Content-Length: %d" % len(NEXT), body=NEXT), [(b"POST", "/x", NEXT)]),
    "a query": (b"GET /x?y=/z HTTP/1.1\r\n" + HOST + b"\r\n", [(b"GET", "/x", b"")]),
    "an absolute target": (b"GET HTTP://b/x/y?z HTTP/1.1\r\n" + HOST + b"\r\n", [(b"GET", "/x/y", b"")]),
    "an absolute target without a path": (b"GET http://b HTTP/1.1\r\n" + HOST + b"\r\n", [(b"GET", "/", b"")]),
    "HTTP/1.0 without a host": (b"GET /x HTTP/1.0\r\n\r\n", [(b"GET", "/x", b"")]),
    "a blank line before it": (b"\r\n" + NEXT, [THE_NEXT]),
    "an offer to upgrade": (
        b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n" + NEXT,
        [(b"GET", "/x", b""), THE_NEXT],
    ),
    "an offer to upgrade with a body": (
        post(b"Connection: upgrade", b"Upgrade: h2c", b"Content-Length: %d" % len(NEXT), body=NEXT) + NEXT,
        [(b"POST", "/x", NEXT), THE_NEXT],
    ),
    "an offer to upgrade with a body in chunks": (
        post(b"Connection: upgrade", b"Upgrade: h2c", CHUNKED, body=b"2\r\nhe\r\n0\r\n\r\n") + NEXT,
        [(b"POST", "/x", b"he"), THE_NEXT],
    ),
}


@pytest.mark.parametrize(("data", "requests"), GOOD.values(), ids=GOOD)
@on_a_clock
def test_requests_are_the_same_whole_and_byte_by_byte_and_cut_anywhere(
    data: bytes, requests: list[tuple[bytes, str, bytes]]
) -> None:
    for pieces in every_cut(data):
        assert seen(pieces) == Seen(requests), pieces


BAD: dict[str, bytes] = {
    "a length and chunks": post(b"Content-Length: 5", CHUNKED, body=b"0\r\n\r\n"),
    "chunks and a length": post(CHUNKED, b"Content-Length: 5", body=b"0\r\n\r\n"),
    "two lengths": post(b"Content-Length: 5", b"Content-Length: 6", body=b"hello!"),
    "a list of lengths": post(b"Content-Length: 5, 6", body=b"hello!"),
    "a length with a sign": post(b"Content-Length: +5", body=b"hello"),
    "a negative length": post(b"Content-Length: -5", body=b"hello"),
    "a length in hexadecimal": post(b"Content-Length: 0x5", body=b"hello"),
    "a length beyond all bounds": post(b"Content-Length: 99999999999999999999", body=b"hello"),
    "a chunk's size in no number": post(CHUNKED, body=b"x\r\nhello"),
    "a chunk's size beyond all bounds": post(CHUNKED, body=b"fffffffffffffffff\r\nhello"),
    "a chunk longer than its size": post(CHUNKED, body=b"2\r\nhello\r\n0\r\n\r\n"),
    "chunks that are not the last coding": post(b"Transfer-Encoding: chunked, gzip", body=b"0\r\n\r\n"),
    "a coding that is not chunks": post(b"Transfer-Encoding: gzip", body=b"hello"),
    "two codings": post(b"Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"),
    "chunks in HTTP/1.0": b"POST /x HTTP/1.0\r\n" + CHUNKED + b"\r\n\r\n0\r\n\r\n",
    "an offer to upgrade in a coding that is not chunks": post(
        b"Connection: upgrade", b"Upgrade: x", b"Transfer-Encoding: gzip", body=b"hello"
    ),
    "a blank before the colon": post(b"Content-Length : 5", body=b"hello"),
    "a name with a blank": post(b"X Y: z"),
    "a folded line": post(b"X: y\r\n z"),
    "a NUL": post(b"X: y\0z"),
    "a bare carriage return": post(b"X: y\rZ: w"),
    "no host": b"GET /x HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "CONNECT": b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
    "an offer to upgrade without a host": b"GET /x HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    "an offer to upgrade with two lengths": post(
        b"Connection: upgrade", b"Upgrade: x", b"Content-Length: 1", b"Content-Length: 2", body=b"ab"
    ),
    "HTTP/2 with prior knowledge": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a version of the future": b"GET /x HTTP/3.0\r\nHost: a\r\n\r\n",
    "no version": b"GET /x\r\nHost: a\r\n\r\n",
    "a method of no kind": b"G@T /x HTTP/1.1\r\nHost: a\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
@on_a_clock
def test_what_could_be_read_in_two_ways_is_refused_however_it_is_cut(data: bytes) -> None:
    for pieces in every_cut(data):
        assert seen(pieces) == Seen([], Kind.BAD_REQUEST), pieces


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
@on_a_clock
def test_a_good_request_is_answered_before_a_bad_one_behind_it(data: bytes) -> None:
    for pieces in ([NEXT + data], [NEXT, data], bytes_of(NEXT + data)):
        assert seen(pieces) == Seen([THE_NEXT], Kind.BAD_REQUEST)


@on_a_clock
def test_nothing_is_read_behind_a_bad_request() -> None:
    for bad in BAD.values():
        assert seen([bad + NEXT, NEXT]).requests == []


LARGE: dict[str, tuple[bytes, Kind]] = {
    "a target": (b"GET /" + b"x" * 2000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", Kind.HEAD_TOO_LARGE),
    "a value": (post(b"X: " + b"y" * 2000), Kind.HEAD_TOO_LARGE),
    "a name": (post(b"x" * 2000 + b": y"), Kind.HEAD_TOO_LARGE),
    "many fields": (post(*(b"X%d: y" % number for number in range(300))), Kind.HEAD_TOO_LARGE),
    "a field many times": (post(*[b"X: y"] * 300), Kind.HEAD_TOO_LARGE),
    "trailers": (post(CHUNKED, body=b"0\r\n" + b"X: y\r\n" * 300), Kind.HEAD_TOO_LARGE),
    "a chunk extension": (post(CHUNKED, body=b"2;" + b"x" * 2000), Kind.HEAD_TOO_LARGE),
    "a body": (post(b"Content-Length: 200", body=b"x" * 200), Kind.BODY_TOO_LARGE),
    "a body in chunks": (
        post(CHUNKED, body=b"32\r\n" + b"x" * 50 + b"\r\n" + b"64\r\n" + b"x" * 100 + b"\r\n0\r\n\r\n"),
        Kind.BODY_TOO_LARGE,
    ),
}


@pytest.mark.parametrize("size", [1, 7, 100, 1000])
@pytest.mark.parametrize(("data", "kind"), LARGE.values(), ids=LARGE)
@on_a_clock
def test_what_is_larger_than_its_limit_is_refused_whatever_the_reads(data: bytes, kind: Kind, size: int) -> None:
    assert seen((data[at : at + size] for at in range(0, len(data), size)), SMALL) == Seen([], kind)


@pytest.mark.parametrize("size", [1, 100, 1000])
@on_a_clock
def test_a_head_that_never_ends_is_refused_before_it_has_ended(size: int) -> None:
    reads = (b"GET / HTTP/1.1\r\nX: " + b"y" * size, *[b"y" * size] * (3000 // size))
    assert seen(reads, SMALL) == Seen([], Kind.HEAD_TOO_LARGE)


@pytest.mark.parametrize(("length", "is_taken"), [(485, True), (486, False)])
@on_a_clock
def test_a_head_may_be_as_large_as_the_limit_and_not_larger(length: int, is_taken: bool) -> None:
    """Counted are the target, and each field with its four bytes of framing."""
    head = b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"y" * length + b"\r\n\r\n"
    made = seen([head], Limits(head_bytes=len(b"/") + len(b"Host: a\r\n") + len(b"X: \r\n") + 485))
    assert (len(made.requests), made.fault) == ((1, None) if is_taken else (0, Kind.HEAD_TOO_LARGE))


@on_a_clock
def test_of_a_body_that_is_too_large_nothing_is_kept() -> None:
    reader = RequestReader(SMALL)
    reader.take(post(b"Content-Length: 6000"))
    for _ in range(100):
        reader.take(b"x" * 60)
    request = reader.next_request()
    assert request is not None
    assert (request.is_complete, request.is_too_large, len(request.body)) == (True, True, 0)


@on_a_clock
def test_what_comes_ahead_of_an_answer_is_bounded() -> None:
    reader = RequestReader(SMALL)
    assert reader.take(NEXT)
    assert all(reader.take(b"x" * 100) for _ in range(3))
    assert not reader.take(b"x")


@on_a_clock
def test_the_next_request_waits_until_the_one_before_it_is_done() -> None:
    reader = RequestReader(SMALL)
    reader.take(post(b"Content-Length: 1", body=b"a") + NEXT)
    first = reader.next_request()
    assert first is not None
    assert reader.next_request() is first
    reader.done_with(first)
    second = reader.next_request()
    assert second is not None
    assert second.path == "/next"


@pytest.mark.parametrize(
    ("data", "keeps"),
    [
        (NEXT, True),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", True),
    ],
)
@on_a_clock
def test_a_client_says_whether_it_means_to_go_on(data: bytes, keeps: bool) -> None:
    reader = RequestReader(SMALL)
    reader.take(data)
    request = reader.next_request()
    assert request is not None
    assert request.keep_alive is keeps


@on_a_clock
def test_a_request_is_there_with_its_head_before_its_body() -> None:
    reader = RequestReader(SMALL)
    head = post(b"Content-Length: 5", b"Expect: 100-Continue")
    reader.take(head[:-1])
    assert reader.next_request() is None
    assert reader.has_begun
    reader.take(head[-1:])
    request = reader.next_request()
    assert request is not None
    assert (request.is_complete, request.expects_continue, request.content_length) == (False, True, 5)
    assert reader.is_owed_bytes
    reader.take(b"hello")
    assert request.is_complete
    assert not reader.is_owed_bytes


@on_a_clock
def test_a_path_that_is_not_ascii_is_shown_as_what_it_is_not() -> None:
    assert seen([b"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n"]).requests in ([], [(b"GET", "/\ufffd\ufffd", b"")])
