"""Errors inside a stream that began with status 200: each ends the answer, and none is taken for a part of it."""

from __future__ import annotations

from typing import Any

import pytest

from engine.dialects.chat.reader import StreamReader
from engine.errors import Fault, Kind
from engine.events import Failed
from tests.pure.streams import (
    DONE,
    ENVELOPE,
    Json,
    bytes_of,
    chunk,
    event,
    events_of,
    read,
    said_to_client,
    stream,
    text,
    without_runs,
)


def fault_in(data: bytes, reader: StreamReader | None = None) -> Fault:
    end = read(data, reader).end
    assert isinstance(end, Failed)
    return end.fault


def fault_of(value: object) -> Fault:
    """The fault that this event in the middle of a stream is."""
    data = stream(text("a"), value, text("LATE"), chunk({}, "stop"))
    seen = read(data)
    assert said_to_client(seen.written()).text == {0: "a"}
    assert DONE not in seen.written()
    assert set(events_of(seen.written())[-1]) == {"error"}
    return fault_in(data)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"error": {"message": "out of memory"}}, "out of memory"),
        ({"error": "out of memory"}, "out of memory"),
        ({"error": {"message": "out of memory"}, "choices": []}, "out of memory"),
        ({**ENVELOPE, "choices": [{"index": 0, "delta": {"content": "x"}}], "error": {"message": "bad"}}, "bad"),
        ({"object": "error", "message": "out of memory"}, "out of memory"),
        ({"type": "error", "message": "out of memory"}, "out of memory"),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}, "busy"),
        ({"detail": "out of memory"}, "out of memory"),
        ({"message": "out of memory"}, "out of memory"),
        ({"error": {}}, "The upstream answered with status 502."),
        ({"object": "error"}, "The upstream answered with status 502."),
        ({"type": "error"}, "The upstream answered with status 502."),
    ],
)
def test_each_way_to_say_an_error_ends_the_answer_with_it(value: object, message: str) -> None:
    fault = fault_of(value)
    assert fault.message == message
    assert fault.kind is Kind.UPSTREAM_FAILED


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (429, Kind.UPSTREAM_RATE_LIMIT),
        (503, Kind.UPSTREAM_OVERLOADED),
        (400, Kind.UPSTREAM_REFUSED),
        (500, Kind.UPSTREAM_FAILED),
        (7, Kind.UPSTREAM_FAILED),
        ("context_length_exceeded", Kind.UPSTREAM_FAILED),
        (True, Kind.UPSTREAM_FAILED),
        (None, Kind.UPSTREAM_FAILED),
    ],
)
def test_a_numeric_code_is_taken_for_the_status_that_it_is(code: Any, kind: Kind) -> None:
    assert fault_of({"error": {"message": "no", "code": code}}).kind is kind


def test_the_words_of_the_upstream_s_error_are_kept() -> None:
    error = {"message": "no", "type": "server_error", "code": "boom", "param": "messages"}
    fault = fault_of({"error": error})
    assert (fault.message, fault.type, fault.code, fault.param) == ("no", "server_error", "boom", "messages")


def test_an_error_as_the_first_event_is_one() -> None:
    seen = read(event({"error": {"message": "no"}}))
    assert seen.frames == []
    assert seen.fault_message == "no"


@pytest.mark.parametrize("nothing", [{"error": None}, {"error": ""}, {"error": False}])
def test_an_error_field_that_says_nothing_is_none(nothing: Json) -> None:
    seen = read(stream({**text("a"), **nothing}, chunk({}, "stop")))
    assert said_to_client(seen.written()).text == {0: "a"}
    assert said_to_client(seen.written()).finish == {0: ["stop"]}


def test_an_event_named_error_is_one_whatever_it_says() -> None:
    assert fault_in(b'event: error\ndata: {"message":"no"}\n\n').message == "no"
    assert fault_in(b'event: error\ndata: {"x":1}\n\n').kind is Kind.UPSTREAM_FAILED
    assert fault_in(b"event: error\ndata: overloaded\n\n").kind is not Kind.UPSTREAM_TRUNCATED


def test_an_event_of_another_name_is_a_chunk_like_any_other() -> None:
    data = b"event: message\n" + event(text("a")) + stream(chunk({}, "stop"))
    assert said_to_client(read(data).written()).text == {0: "a"}


@pytest.mark.parametrize("junk", [b"<html>", b"{", b"null", b"[]", b'"x"', b"{'a':1}", b"\xff\xfe", b"1"])
def test_an_event_that_is_no_chunk_is_a_breach_of_the_protocol(junk: bytes) -> None:
    data = event(text("a")) + b"data: " + junk + b"\n\n" + stream(chunk({}, "stop"))
    for reader in (StreamReader(), without_runs()):
        assert fault_in(data, reader).kind is Kind.UPSTREAM_PROTOCOL
    assert said_to_client(read(data).written()).text == {0: "a"}


DEEP = 50_000


@pytest.mark.parametrize(
    "value",
    [
        b'{"choices":[{"index":0,"delta":{"content":"b"}}],"x":' + b"[" * DEEP + b"]" * DEEP + b"}",
        b'{"choices":null,"x":' + b"[" * DEEP + b"]" * DEEP + b"}",
        b'{"x":"\\ud800","choices":null,"y":' + b"[" * DEEP + b"]" * DEEP + b"}",
        b"[" * DEEP,
        b'{"error":' * DEEP,
    ],
    ids=["beside a choice", "beside no choice", "after a lone surrogate", "a list", "errors"],
)
def test_deep_nesting_is_a_breach_of_the_protocol_and_no_crash(value: bytes) -> None:
    assert fault_in(event(text("a")) + b"data: " + value + b"\n\n").kind is Kind.UPSTREAM_PROTOCOL
    assert read(event(text("a")) + b"data: " + value).end is None  # cut short: no event of its own


@pytest.mark.parametrize("size", [64, 4096])
def test_an_event_beyond_the_limit_ends_the_answer(size: int) -> None:
    data = event(text("a")) + b"data: " + b"x" * 30_000
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    seen = read(pieces, StreamReader(limit=10_000))
    assert isinstance(seen.end, Failed)
    assert seen.end.fault.kind is Kind.UPSTREAM_PROTOCOL
    assert "10000 bytes" in seen.end.fault.message
    assert said_to_client(seen.written()).text == {0: "a"}


def test_a_large_event_within_the_limit_passes() -> None:
    data = stream(text("x" * 200_000), chunk({}, "stop"))
    assert read([data[at : at + 4096] for at in range(0, len(data), 4096)]).written() == data


def test_more_choices_than_anybody_may_ask_for_end_the_answer() -> None:
    assert read(stream(*(text("a", index) for index in range(128)))).written().endswith(DONE)
    assert fault_in(stream(*(text("a", index) for index in range(129)))).kind is Kind.UPSTREAM_PROTOCOL
    many = {**ENVELOPE, "choices": [{"index": index, "delta": {"content": "a"}} for index in range(129)]}
    assert fault_in(stream(many)).kind is Kind.UPSTREAM_PROTOCOL


def test_an_error_after_the_reason_still_ends_the_answer() -> None:
    assert fault_in(stream(text("a"), chunk({}, "stop"), {"error": "no"})).message == "no"


@pytest.mark.parametrize(
    "error",
    [
        {"message": "Incorrect API key provided: sk-op*****3f.", "code": 401},
        {"message": "Incorrect API key provided: sk-op*****3f.", "type": "authentication_error"},
        {"message": "Incorrect API key provided: sk-op*****3f.", "code": "invalid_api_key"},
    ],
)
def test_what_an_upstream_says_of_the_operator_s_key_is_not_shown(error: Json) -> None:
    fault = fault_of({"error": error})
    assert "sk-op" not in fault.message
    assert fault.kind is Kind.UPSTREAM_CREDENTIALS


def test_one_byte_at_a_time_changes_nothing_of_an_error() -> None:
    data = stream(text("a"), {"error": {"message": "no", "code": 429}})
    assert read(bytes_of(data)).written() == read(data).written()
