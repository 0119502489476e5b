"""What both ends of HTTP/1.1 share: headers as they are kept, passed on and written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.wire.http1 import (
    END_OF_HEAD,
    HOP_BY_HOP,
    Headers,
    add_header,
    clean_value,
    has_token,
    passed_on,
    render_head,
)


def kept(*fields: tuple[bytes, bytes]) -> Headers:
    headers: Headers = {}
    for name, value in fields:
        add_header(headers, name, value)
    return headers


def test_names_are_lower_case_and_values_untouched() -> None:
    assert kept((b"X-Request-ID", b"Ab C")) == {b"x-request-id": b"Ab C"}


def test_a_field_that_comes_twice_is_a_list() -> None:
    assert kept((b"Accept", b"a"), (b"accept", b"b"), (b"ACCEPT", b"c")) == {b"accept": b"a, b, c"}


def test_only_fields_that_were_named_and_are_there_are_passed_on() -> None:
    headers = kept((b"User-Agent", b"x"), (b"Cookie", b"y"))
    assert passed_on(headers, [b"user-agent", b"traceparent"]) == [(b"user-agent", b"x")]


# RFC 9110, 7.6.1, and those that real clients still send.
@pytest.mark.parametrize("name", [b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"])
def test_the_fields_of_the_hop_are_known(name: bytes) -> None:
    assert name in HOP_BY_HOP


@pytest.mark.parametrize("connection", [b"keep-alive", b"Keep-Alive", b"close", b"", b"upgrade, HTTP2-Settings"])
def test_a_connection_field_that_names_nothing_of_it_takes_nothing_away(connection: bytes) -> None:
    headers = kept((b"Connection", connection), (b"User-Agent", b"x"))
    assert passed_on(headers, [b"user-agent"]) == [(b"user-agent", b"x")]


@pytest.mark.parametrize("connection", [b"x-secret", b"close, X-Secret", b"X-SECRET ,keep-alive"])
def test_a_field_that_connection_names_is_of_the_hop_too(connection: bytes) -> None:
    headers = kept((b"Connection", connection), (b"X-Secret", b"s"), (b"User-Agent", b"x"))
    assert passed_on(headers, [b"x-secret", b"user-agent"]) == [(b"user-agent", b"x")]


@pytest.mark.parametrize(
    ("value", "has"),
    [
        (b"close", True),
        (b"Close", True),
        (b"keep-alive, CLOSE", True),
        (b" close ,x", True),
        (b"closed", False),
        (b"not close", False),
        (b"", False),
    ],
)
def test_a_token_is_found_as_a_whole_and_in_any_case(value: bytes, has: bool) -> None:
    assert has_token({b"connection": value}, b"connection", b"close") is has


def test_no_field_has_no_token() -> None:
    assert not has_token({}, b"connection", b"close")


def test_a_head_is_its_first_line_and_its_fields_and_a_blank_line() -> None:
    head = render_head(b"HTTP/1.1 200 OK", [(b"a", b"1"), (b"b", b"2")])
    assert head == b"HTTP/1.1 200 OK\r\na: 1\r\nb: 2\r\n\r\n"
    assert render_head(b"HTTP/1.1 200 OK", []) == b"HTTP/1.1 200 OK\r\n\r\n"
    assert head.endswith(END_OF_HEAD)


@given(st.binary(max_size=30))
def test_a_cleaned_value_can_begin_no_line_of_its_own(value: bytes) -> None:
    head = render_head(b"GET / HTTP/1.1", [(b"a", clean_value(value)), (b"b", b"x")])
    assert head.count(b"\r") == head.count(b"\n") == 4
    assert b"\0" not in head
    assert clean_value(clean_value(value)) == clean_value(value)


def test_cleaning_keeps_what_may_stay() -> None:
    assert clean_value(b" a\tb, c ") == b"a\tb, c"
    assert clean_value(b"a\r\nset-cookie: x\0") == b"aset-cookie: x"
