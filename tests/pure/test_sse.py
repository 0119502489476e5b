"""Server-sent events: what the parser makes of bytes, whatever reads they come in."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.framing.sse import EventTooLarge, ServerSentEvent, SseParser, comment, encode
from tests.pure.streams import bytes_of, cut, cuttings, every_cut

BOM = b"\xef\xbb\xbf"

EXAMPLES: dict[str, tuple[bytes, list[tuple[bytes, bytes | None]]]] = {
    "line feeds": (b"data: a\n\ndata: b\n\n", [(b"a", None), (b"b", None)]),
    "carriage returns and line feeds": (b"data: a\r\n\r\ndata: b\r\n\r\n", [(b"a", None), (b"b", None)]),
    "carriage returns": (b"data: a\r\rdata: b\r\r", [(b"a", None), (b"b", None)]),
    "all three ends of a line": (b"data: a\r\ndata: b\rdata: c\n\ndata: d\r\n\n", [(b"a\nb\nc", None), (b"d", None)]),
    "a byte order mark": (BOM + b"data: a\n\n", [(b"a", None)]),
    "a byte order mark and nothing else": (BOM, []),
    "a second byte order mark is data": (BOM + b"data: " + BOM + b"\n\n", [(BOM, None)]),
    "comments between and within events": (b": hi\n\n:\ndata: a\n: mid\ndata: b\n\n", [(b"a\nb", None)]),
    "data on several lines": (b'data: {"a":\ndata: 1}\n\n', [(b'{"a":\n1}', None)]),
    "no blank after the colon": (b"data:a\n\ndata:  b\n\n", [(b"a", None), (b" b", None)]),
    "a field without a colon": (b"data\n\ndata: a\n\n", [(b"", None), (b"a", None)]),
    "empty data": (b"data:\n\ndata: \n\n", [(b"", None), (b"", None)]),
    "a name": (b"event: error\ndata: a\n\ndata: b\n\n", [(b"a", b"error"), (b"b", None)]),
    "a name after the data": (b"data: a\nevent:ping\n\n", [(b"a", b"ping")]),
    "a name without data is forgotten": (b"event: ping\n\ndata: a\n\n", [(b"a", None)]),
    "a name with two blanks keeps one": (b"event:  ping\ndata: a\n\n", [(b"a", b" ping")]),
    "an empty name is none": (b"event: x\nevent:\ndata: a\n\n", [(b"a", None)]),
    "ids, retry times and unknown fields": (b"id: 1\nretry: 5\nfoo: bar\ndata: a\n\n", [(b"a", None)]),
    "a field whose name only begins with data": (b"database: x\ndata: a\n\n", [(b"a", None)]),
    "many blank lines": (b"\n\n\r\n\rdata: a\n\n\n\n", [(b"a", None)]),
    "a last event without its blank line": (b"data: a\n\ndata: b\n", [(b"a", None), (b"b", None)]),
    "a last event without any line end": (b"data: a\n\ndata: b", [(b"a", None), (b"b", None)]),
    "a last name without data": (b"data: a\n\nevent: end\n", [(b"a", None)]),
    "characters of two to four bytes": ("data: é\u2028😀\n\n".encode(), [("é\u2028😀".encode(), None)]),
    "a colon in the data": (b"data: a: b\n\n", [(b"a: b", None)]),
    "nothing": (b"", []),
}


def parsed(pieces: Iterable[bytes], limit: int = 10_000) -> list[tuple[bytes, bytes | None]]:
    parser = SseParser(limit)
    events: list[ServerSentEvent] = []
    for piece in pieces:
        events += parser.feed(piece)
    events += parser.close()
    return [(event.data, event.name) for event in events]


@pytest.mark.parametrize(("data", "events"), EXAMPLES.values(), ids=EXAMPLES)
def test_an_example_says_the_same_whole_and_byte_by_byte_and_cut_anywhere(
    data: bytes, events: list[tuple[bytes, bytes | None]]
) -> None:
    for pieces in every_cut(data):
        assert parsed(pieces) == events, pieces


FRAGMENTS = [
    *(b"data: ", b"data:", b"data", b"event: x", b"event:", b": c", b"id: 7", b"x", b" ", b"\n", b"\r", b"\r\n"),
    *(b"\n\n", b"\r\n\r\n", BOM, b"\xef", b"\xf0\x9f\x98\x80", b"{}", b":"),
]


@given(st.data(), st.booleans(), st.lists(st.sampled_from(FRAGMENTS), max_size=30).map(b"".join))
def test_no_cutting_changes_the_events(draws: st.DataObject, has_mark: bool, tail: bytes) -> None:
    data = (BOM if has_mark else b"") + tail
    places = draws.draw(cuttings(len(data)))
    assert parsed(cut(data, places)) == parsed([data])


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=30).map(b"".join))
def test_the_kind_of_line_end_changes_nothing(data: bytes) -> None:
    plain = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    assert parsed([plain]) == parsed([data])
    assert parsed([plain.replace(b"\n", b"\r\n")]) == parsed([plain])
    assert parsed([plain.replace(b"\n", b"\r")]) == parsed([plain])


def test_an_event_comes_with_the_read_that_ends_it_and_not_later() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\n") == []
    assert parser.feed(b"\n") == [ServerSentEvent(b"a")]
    assert parser.feed(b"data: b\r\n\r") == [ServerSentEvent(b"b")]
    assert parser.feed(b"\n") == []


def test_between_events_is_only_where_nothing_is_held() -> None:
    held = [b"d", b"data: b", b"data: b\n", b"event: x\n", b": ", b"data: c\r\n\r"]  # a line feed may belong to it
    for rest, is_between in [(b"", True), (b"data: b\n\n", True), *((each, False) for each in held)]:
        parser = SseParser()
        parser.feed(b"data: a\n\n" + rest)
        assert parser.is_between_events is is_between, rest


def test_a_line_of_two_mebibytes_passes_in_small_reads() -> None:
    line = b"x" * (2 * 1024 * 1024)
    data = b"data: " + line + b"\n\ndata: after\n\n"
    reads = [data[at : at + 4096] for at in range(0, len(data), 4096)]
    assert parsed(reads, limit=4 * 1024 * 1024) == [(line, None), (b"after", None)]


def test_a_partial_line_is_kept_as_it_came_and_never_joined_early() -> None:
    parser = SseParser()
    parser.feed(b"data: ")
    pieces = [bytes([65 + number % 26]) * 100 for number in range(500)]
    for piece in pieces:
        parser.feed(piece)
    assert parser._partial_line[1:] == pieces
    assert parser.feed(b"\n\n") == [ServerSentEvent(b"".join(pieces))]


def steps_of(work: Callable[[], object]) -> int:
    """Python lines that ran."""
    count = 0

    def count_line(frame: FrameType, kind: str, argument: Any) -> Any:
        nonlocal count
        count += kind == "line"
        return count_line

    before = sys.gettrace()
    sys.settrace(count_line)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("line", [b"x" * 40, b"x" * 39 + b"\n", b"data: y\n"])
def test_twice_the_bytes_are_twice_the_steps_also_one_byte_at_a_time(line: bytes) -> None:
    def steps(lines: int) -> int:
        return steps_of(lambda: parsed(bytes_of(b"data: " + line * lines), limit=100_000))

    assert steps(40) < 2.1 * steps(20)


@pytest.mark.parametrize("size", [1, 7, 64])
def test_an_unfinished_event_beyond_the_limit_is_an_error(size: int) -> None:
    for data in (b"data: " + b"x" * 2000, b"data: x\n" * 300, b"event: " + b"x" * 2000, b": " + b"x" * 2000):
        with pytest.raises(EventTooLarge, match="1000 bytes"):
            parsed((data[at : at + size] for at in range(0, len(data), size)), limit=1000)


@given(st.data())
def test_an_event_within_the_limit_is_never_an_error(draws: st.DataObject) -> None:
    one = b"event: x\ndata: " + b"y" * 40 + b"\ndata: " + b"z" * 30 + b"\n\n"
    data = one * 20
    assert len(parsed(cut(data, draws.draw(cuttings(len(data)))), limit=len(one))) == 20


def test_the_limit_itself_is_not_beyond_it() -> None:
    parser = SseParser(limit=100)
    assert parser.feed(b"data: " + b"x" * 94) == []
    with pytest.raises(EventTooLarge):
        parser.feed(b"x")


def test_comments_alone_never_reach_the_limit() -> None:
    assert parsed([b": keep-alive\n\n"] * 500, limit=100) == []
    assert parsed(bytes_of(b": keep-alive\n" * 500), limit=100) == []


def test_the_limit_counts_each_event_anew() -> None:
    assert len(parsed([b"data: " + b"x" * 80 + b"\n\n"] * 50, limit=100)) == 50


@given(st.binary(max_size=60).filter(lambda data: b"\r" not in data), st.none() | st.sampled_from([b"error", b"ping"]))
def test_what_is_encoded_is_parsed_to_the_same(data: bytes, name: bytes | None) -> None:
    assert parsed([encode(data, name)]) == [(data.replace(b"\n", b" "), name)]


def test_an_encoded_event_is_one_data_line_whatever_is_in_it() -> None:
    assert encode(b'{"a":\n1}') == b'data: {"a": 1}\n\n'
    assert encode(b"{}", b"ping") == b"event: ping\ndata: {}\n\n"


def test_a_comment_says_nothing_and_ends_nothing() -> None:
    assert comment(b"keep-alive") == b": keep-alive\n\n"
    for pieces in every_cut(encode(b"a") + comment(b"keep-alive") + encode(b"b")):
        assert parsed(pieces) == [(b"a", None), (b"b", None)]
