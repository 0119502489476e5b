"""Answers in one piece: taken apart and put together again they are the same, and so are streamed ones put together."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.dialects.chat.whole import take_apart
from engine.events import Completed, Failed
from tests.pure.streams import (
    DONE,
    Json,
    called,
    chunk,
    events_of,
    read,
    recording,
    said_by_events,
    said_to_client,
    stream,
    text,
)

ENVELOPE: Json = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}


def message(**fields: object) -> Json:
    return {"role": "assistant", "content": None, "refusal": None, **fields}


def answer(*messages: Json, finish: str = "stop", **more: object) -> Json:
    """A chat completion as OpenAI sends it, with every field that it always has."""
    choices = [
        {"index": index, "message": each, "logprobs": None, "finish_reason": finish}
        for index, each in enumerate(messages)
    ]
    return {**ENVELOPE, "choices": choices, **more}


def call(number: int, **function: object) -> Json:
    return {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": f"f{number}", "arguments": "{}", **function},
    }


def round_trip(value: object) -> Json:
    """A whole answer of an upstream, as a client gets it that wants it whole."""
    return read(take_apart(json.dumps(value).encode())).whole()


USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "prompt_tokens_details": {"cached_tokens": 1}}
LOGPROBS = {"content": [{"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": []}], "refusal": None}
ANSWERS: dict[str, Json] = {
    "text": answer(message(content="hi"), usage=USAGE),
    "no text": answer(message()),
    "empty text": answer(message(content="")),
    "one call": answer(message(tool_calls=[call(0)]), finish="tool_calls"),
    "two calls": answer(message(content="so", tool_calls=[call(0), call(1)]), finish="tool_calls", usage=USAGE),
    "a cut call": answer(message(tool_calls=[call(0, arguments='{"a')]), finish="length"),
    "the same call twice": answer(message(tool_calls=[call(0), {**call(0), "id": "call_9"}]), finish="tool_calls"),
    "a refusal": answer(message(refusal="no")),
    "reasoning": answer(message(content="a", reasoning_content="hm")),
    "two choices": answer(message(content="a"), message(content="b"), finish="length"),
    "two choices with calls": answer(message(tool_calls=[call(0)]), message(tool_calls=[call(1)]), finish="tool_calls"),
    "content filter": answer(message(content="a"), finish="content_filter"),
    "a legacy function call": answer(message(function_call={"name": "f", "arguments": "{}"}), finish="function_call"),
    "annotations": answer(message(content="a", annotations=[{"type": "url_citation", "url_citation": {"url": "u"}}])),
    "audio": answer(message(audio={"id": "a", "data": "AAAA", "expires_at": 5, "transcript": "hi"})),
    "unknown fields": answer(message(content="a", x_message={"y": [1]}), x_top=[1, 2], service_tier="flex"),
    "a custom call": answer(
        message(tool_calls=[{"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}]), finish="tool_calls"
    ),
    "a large number": answer(message(content="a"), x=2**80),
}


@pytest.mark.parametrize("value", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_taken_apart_and_put_together_is_the_same(value: Json) -> None:
    assert round_trip(value) == value


def test_logprobs_and_unknown_fields_of_a_choice_survive() -> None:
    value = answer(message(content="a"))
    value["choices"][0] |= {"logprobs": LOGPROBS, "x_choice": {"y": 1}}
    assert round_trip(value) == value


@pytest.mark.parametrize("name", ["llama-cpp-python-text-nonstream.json", "llamacpp-smollm2-text-nonstream.json"])
def test_a_real_answer_keeps_all_that_it_says(name: str) -> None:
    value = json.loads(recording(name))
    value["choices"][0] = {"logprobs": None, **value["choices"][0]}
    value["choices"][0]["message"] = {"refusal": None, **value["choices"][0]["message"]}
    assert round_trip(value) == value


def test_a_whole_answer_of_the_upstream_streams_to_a_client_that_wants_a_stream() -> None:
    value = answer(message(content="hi", tool_calls=[call(0)]), finish="tool_calls", usage=USAGE)
    seen = read(take_apart(json.dumps(value).encode()))
    said = said_to_client(seen.written())
    assert (said.text, said.calls) == ({0: "hi"}, {(0, 0): ["call_0", "f0", "{}"]})
    assert (said.finish, said.usage) == ({0: ["tool_calls"]}, [2])
    assert said_by_events(seen.events) == said
    assert {each["object"] for each in events_of(seen.written())} == {"chat.completion.chunk"}
    assert isinstance(seen.end, Completed)


@pytest.mark.parametrize(
    "value",
    [
        answer(message(content="a"), finish="eos"),
        answer(message(tool_calls=[{"function": {"name": "f", "arguments": {"x": 1}}}])),
        {"choices": [{"message": {"content": "a"}}]},
        {"choices": [{"message": {"content": "a"}, "index": None, "finish_reason": None}]},
        {"choices": [{"index": 0, "message": None, "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "finish_reason": "stop"}]},
        {"choices": [None]},
        {"choices": []},
        {"choices": [{"index": 0, "message": {"content": "a", "tool_calls": None}, "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "message": {"content": "a", "tool_calls": None}}]},
        {"choices": [{"index": 0, "message": {"content": "a", "tool_calls": None, "function_call": None}}]},
    ],
)
def test_a_disorderly_answer_is_mended_like_a_stream(value: Json) -> None:
    whole = round_trip(value)
    assert whole["object"] == "chat.completion"
    for choice in whole["choices"]:
        assert choice["finish_reason"] in ("stop", "tool_calls")
        for made in choice["message"].get("tool_calls", ()):
            assert made["id"].startswith("call_")
            assert isinstance(made["function"]["arguments"], str)


def test_calls_that_nothing_tells_apart_but_their_place_are_as_many_as_they_were() -> None:
    unfinished = {"type": "function", "function": {"name": "f", "arguments": '{"x'}}
    whole = round_trip(answer(message(tool_calls=[unfinished, unfinished]), finish="length"))
    made = whole["choices"][0]["message"]["tool_calls"]
    assert [call["function"] for call in made] == [unfinished["function"]] * 2


def test_choices_without_numbers_are_numbered_in_their_order() -> None:
    value = {"choices": [{"message": {"content": words}, "finish_reason": "stop"} for words in "ab"]}
    assert [choice["message"]["content"] for choice in round_trip(value)["choices"]] == ["a", "b"]


@pytest.mark.parametrize("value", [{"error": {"message": "no"}}, {"object": "error", "message": "no"}, {"error": "no"}])
def test_an_error_in_place_of_an_answer_is_one(value: Json) -> None:
    seen = read(take_apart(json.dumps(value).encode()))
    assert isinstance(seen.end, Failed)
    assert seen.end.fault.message == "no"


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"choices":{}}', b'{"choices":null}', b"null", b"{"])
def test_what_is_no_answer_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        take_apart(body)


def test_deep_nesting_is_refused_and_no_crash() -> None:
    for body in (b'{"choices":' + b"[" * 50_000, b'{"x":"\\ud800","choices":' + b"[" * 50_000):
        with pytest.raises(ValueError):
            take_apart(body)


def test_the_pieces_of_a_stream_are_put_together() -> None:
    first = chunk({"role": "assistant", "content": ""})
    begin = called(index=0, id="a", type="function", function={"name": "f", "arguments": ""})
    more = [called(index=0, function={"arguments": piece}) for piece in ('{"x"', ":1}")]
    usage = {**chunk({}), "choices": [], "usage": USAGE}
    whole = read(stream(first, text("so "), text("what"), begin, *more, chunk({}, "tool_calls"), usage)).whole()
    made = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
    assert whole == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": message(content="so what", tool_calls=[made]),
                "logprobs": None,
                "finish_reason": "tool_calls",
            }
        ],
        "usage": USAGE,
    }


def test_logprobs_of_each_chunk_are_put_together() -> None:
    def with_logprob(words: str) -> Json:
        value = text(words)
        value["choices"][0]["logprobs"] = {"content": [{"token": words}], "refusal": None}
        return value

    whole = read(stream(with_logprob("a"), with_logprob("b"), chunk({}, "stop"))).whole()
    assert whole["choices"][0]["logprobs"] == {"content": [{"token": "a"}, {"token": "b"}], "refusal": None}


@pytest.mark.parametrize("name", ["llamacpp-smollm2-logprobs.sse", "llama-cpp-python-logprobs.sse"])
def test_a_real_stream_has_a_logprob_for_each_piece_of_its_text(name: str) -> None:
    choice = read(recording(name)).whole()["choices"][0]
    tokens = choice["logprobs"]["content"]
    assert "".join(token["token"] for token in tokens) == choice["message"]["content"]
    assert len(tokens) > 3


def test_real_choices_are_put_together_each_by_itself() -> None:
    whole = read(recording("llamacpp-smollm2-n2.sse")).whole()
    assert [choice["index"] for choice in whole["choices"]] == [0, 1]
    assert [choice["message"]["content"] for choice in whole["choices"]] == ["The capital of France is Paris."] * 2


@pytest.mark.parametrize("nothing", [{"tool_calls": None}, {"function_call": None}, {"audio": None}, {"role": None}])
def test_null_fields_in_every_chunk_add_nothing(nothing: Json) -> None:
    chunks = [chunk({"content": words, **nothing}) for words in "abc"]
    whole = read(stream(*chunks, chunk({}, "stop"))).whole()
    assert whole["choices"][0]["message"] == message(content="abc")


def test_what_was_said_last_stands_where_nothing_can_be_added() -> None:
    seen = read(stream({**text("a"), "system_fingerprint": "x"}, {**text("b"), "system_fingerprint": "y"}))
    assert seen.whole()["system_fingerprint"] == "y"


def test_a_body_that_was_taken_apart_ends_with_done() -> None:
    assert take_apart(json.dumps(ANSWERS["text"]).encode()).endswith(DONE)


VALUES: st.SearchStrategy[Any] = (
    st.integers() | st.booleans() | st.text(max_size=5) | st.lists(st.integers(), max_size=3)
)
FIELDS = st.dictionaries(st.sampled_from(["x", "y", "reasoning_content", "refusal"]), st.text(max_size=5), max_size=3)


@given(
    st.lists(st.tuples(st.none() | st.text(max_size=9), FIELDS, st.integers(0, 3)), min_size=1, max_size=3),
    st.dictionaries(st.sampled_from(["z", "service_tier"]), VALUES, max_size=2),
)
def test_any_answer_taken_apart_and_put_together_is_the_same(
    parts: list[tuple[str | None, Json, int]], more: Json
) -> None:
    messages = [
        message(
            content=content, **fields, **({"tool_calls": [call(number) for number in range(calls)]} if calls else {})
        )
        for content, fields, calls in parts
    ]
    value = answer(*messages, **more)
    for choice in value["choices"]:
        choice["finish_reason"] = "tool_calls" if choice["message"].get("tool_calls") else "stop"
    assert round_trip(value) == value
