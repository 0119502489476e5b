"""The body that goes up: the client's own bytes, but for the few fields that the gateway must set."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.dialects.chat.outgoing import upstream_body
from engine.dialects.chat.request import parse

MESSAGES = b'"messages":[{"role":"user","content":"hi"}]'
STREAMED = b'{"model":"m",' + MESSAGES + b',"stream":true,"stream_options":{"include_usage":true}}'
WHOLE = b'{"model":"m",' + MESSAGES + b"}"

SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
NAMES = st.text(max_size=8).map(lambda name: "x" + name)


def sent(body: bytes, model: str | None = None, *, ask_usage: bool = True) -> bytes:
    prompt = parse(body)
    return upstream_body(prompt, model or prompt.model, ask_usage=ask_usage)


def raw(body: bytes) -> dict[str, bytes]:
    """The top-level fields as the bytes of their values."""
    return {name: bytes(value) for name, value in msgspec.json.decode(body, type=dict[str, msgspec.Raw]).items()}


@pytest.mark.parametrize(
    "body",
    [
        STREAMED,
        b" \n" + STREAMED.replace(b",", b" ,\t") + b"\r\n",
        STREAMED[:-1] + b',"temperature":1.0,"seed":12345678901234567890,"x":1e400,"y":-0.0}',
        STREAMED[:-1] + b',"x":"\\u00e9\\/\\ud83d\\ude00","y":"\xc3\xa9"}',
        STREAMED[:-1] + b',"x":1,"x":2}',
    ],
)
def test_a_body_that_says_it_all_goes_up_byte_for_byte(body: bytes) -> None:
    assert sent(body) == body


def test_without_a_wish_for_usage_on_either_side_nothing_is_added() -> None:
    body = b'{ "model" : "m" , ' + MESSAGES + b', "stream" : true }'
    assert sent(body, ask_usage=False) == body


def test_a_client_that_wants_it_whole_has_it_streamed_with_usage() -> None:
    for body in (WHOLE, WHOLE[:-1] + b',"stream":false}', WHOLE[:-1] + b',"stream":null}'):
        for ask_usage in (True, False):
            fields = raw(sent(body, ask_usage=ask_usage))
            assert (fields["stream"], fields["stream_options"]) == (b"true", b'{"include_usage":true}')


@pytest.mark.parametrize("stream", [b"true", b"false"])
def test_stream_options_that_are_null_are_as_good_as_none(stream: bytes) -> None:
    fields = raw(sent(WHOLE[:-1] + b',"stream":' + stream + b',"stream_options":null}'))
    assert fields["stream_options"] == b'{"include_usage":true}'


def test_usage_is_asked_for_where_the_operator_counts_it() -> None:
    body = WHOLE[:-1] + b',"stream":true}'
    assert "stream_options" in raw(sent(body, ask_usage=True))
    assert "stream_options" not in raw(sent(body, ask_usage=False))


def test_stream_options_are_merged_and_not_replaced() -> None:
    options = b'{"include_obfuscation":false,"include_usage":false,"x":1.50}'
    fields = raw(sent(WHOLE[:-1] + b',"stream":true,"stream_options":' + options + b"}"))
    assert fields["stream_options"] == b'{"include_obfuscation":false,"include_usage":true,"x":1.50}'


def test_an_alias_changes_the_model_and_nothing_else() -> None:
    assert sent(STREAMED, "gpt-up") == STREAMED.replace(b'"model":"m"', b'"model":"gpt-up"')


def test_an_alias_is_written_as_json() -> None:
    assert json.loads(sent(STREAMED, 'a"b\\c é'))["model"] == 'a"b\\c é'


@pytest.mark.parametrize(
    "value",
    [
        *(b"1.0", b"1e2", b"-0.0", b"0.10000000000000000555", b"12345678901234567890123", b"1E400"),
        *(b'"\\u00e9"', b'"\\/"', b'"\\ud83d\\ude00"', b'"\\b"', b'{"b":1,"a":2}', b"[ 1 , 2 ]", b'{"a":1,"a":2}'),
    ],
)
def test_a_value_goes_up_as_it_was_written(value: bytes) -> None:
    for body in (WHOLE, STREAMED):
        assert raw(sent(body[:-1] + b',"x":' + value + b"}", "alias"))["x"] == value


@given(st.dictionaries(NAMES, VALUES, max_size=5), st.booleans())
def test_every_other_field_keeps_its_bytes_and_its_place(others: dict[str, Any], escaped: bool) -> None:
    body = json.dumps({**others, **json.loads(WHOLE)}, ensure_ascii=escaped).encode("utf-8", "replace")
    before, after = raw(body), raw(sent(body, "alias"))
    assert [name for name in after if name in before] == list(before)
    assert {**after, "model": before["model"], "stream": b"", "stream_options": b""} == {
        **before,
        "stream": b"",
        "stream_options": b"",
    }


def test_a_field_that_is_there_twice_goes_up_with_the_value_that_was_checked() -> None:
    body = b'{"model":"a","model":"m",' + MESSAGES + b',"x":1,"x":2}'
    assert parse(body).model == "m"
    fields = json.loads(sent(body), object_pairs_hook=list)
    assert [value for name, value in fields if name == "model"] == ["m"]
    assert [value for name, value in fields if name == "x"][-1] == 2


def test_a_model_that_is_there_twice_is_the_same_one_for_the_upstream() -> None:
    """Parsers differ on which of two counts; the one that was allowed must be the one that answers."""
    for first in (b'"model":"secret"', b'"mod\\u0065l":"secret"'):
        doubled = STREAMED.replace(b'"model":"m"', first + b',"model":"m"')
        fields = json.loads(sent(doubled), object_pairs_hook=list)
        assert {value for name, value in fields if name == "model"} == {"m"}
