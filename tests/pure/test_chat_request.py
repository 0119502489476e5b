"""A client's chat request: what passes, what is refused, and that the refusal names the field."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.dialects.chat.request import ChatRequest, parse
from engine.errors import Kind, TurnError
from engine.prompt import Prompt

# The top-level fields of CreateChatCompletionRequest in OpenAI's API description, version 2.3.0, as of 2026-11,
# each with a value that is right and one of a wrong type.
FIELDS: dict[str, tuple[Any, Any]] = {
    "audio": ({"voice": "alloy", "format": "wav"}, "alloy"),
    "frequency_penalty": (0.5, "0.5"),
    "function_call": ("auto", 1),
    "functions": ([{"name": "f", "parameters": {}}], {"name": "f"}),
    "logit_bias": ({"50256": -100}, [1]),
    "logprobs": (True, "true"),
    "max_completion_tokens": (10, "10"),
    "max_tokens": (10, 1.5),
    "messages": ([{"role": "user", "content": "hi"}], "hi"),
    "metadata": ({"a": "b"}, "a=b"),
    "modalities": (["text", "audio"], "text"),
    "model": ("gpt-x", 4),
    "moderation": ({"model": "omni"}, True),
    "n": (2, "2"),
    "parallel_tool_calls": (False, 0),
    "prediction": ({"type": "content", "content": "x"}, "x"),
    "presence_penalty": (-1, [1]),
    "prompt_cache_key": ("k", 1),
    "prompt_cache_options": ({"mode": "explicit"}, "explicit"),
    "prompt_cache_retention": ("24h", 24),
    "reasoning_effort": ("high", 3),
    "response_format": ({"type": "json_object"}, "json_object"),
    "safety_identifier": ("u", 1),
    "seed": (7, "7"),
    "service_tier": ("auto", 1),
    "stop": (["a", "b"], 5),
    "store": (False, "no"),
    "stream": (True, "yes"),
    "stream_options": ({"include_usage": True}, True),
    "temperature": (0.7, "hot"),
    "tool_choice": ({"type": "function", "function": {"name": "f"}}, 1),
    "tools": ([{"type": "function", "function": {"name": "f"}}], {"type": "function"}),
    "top_logprobs": (3, "3"),
    "top_p": (0.9, "0.9"),
    "user": ("u", 1),
    "verbosity": ("low", 1),
    "web_search_options": ({"search_context_size": "low"}, True),
}
REQUIRED = ("model", "messages")
OPTIONAL = sorted(FIELDS.keys() - set(REQUIRED))
LEAST: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def parsed(**fields: Any) -> Prompt:
    return parse(json.dumps({**LEAST, **fields}).encode())


def refusal(body: bytes | dict[str, Any]) -> tuple[str | None, str]:
    """The field and the sentence of a refusal."""
    with pytest.raises(TurnError) as caught:
        parse(body if isinstance(body, bytes) else json.dumps(body).encode())
    fault = caught.value.fault
    assert fault.kind is Kind.BAD_REQUEST
    return fault.param, fault.message


def param_of(**fields: Any) -> str | None:
    return refusal({**LEAST, **fields})[0]


def in_message(**fields: Any) -> str | None:
    """The field that is named for the second message."""
    return param_of(messages=[{"role": "user", "content": "hi"}, fields])


def test_every_documented_field_is_known_and_no_other() -> None:
    assert {field.name for field in msgspec.structs.fields(ChatRequest)} == FIELDS.keys()


@pytest.mark.parametrize("name", FIELDS)
def test_a_right_value_passes(name: str) -> None:
    assert parsed(**{name: FIELDS[name][0]}).dialect == "chat"


@pytest.mark.parametrize("name", FIELDS)
def test_a_wrong_type_is_refused_by_name(name: str) -> None:
    param, message = refusal({**LEAST, name: FIELDS[name][1]})
    assert param == name
    assert message.startswith(f"`{name}` is not right: ")
    assert "`" not in message.removeprefix(f"`{name}`"), "types are said in JSON's words, not in ours"


@pytest.mark.parametrize("name", OPTIONAL)
def test_null_is_as_good_as_absence(name: str) -> None:
    assert parsed(**{name: None}).model == "m"


@pytest.mark.parametrize("name", REQUIRED)
def test_a_required_field_that_is_missing_is_named(name: str) -> None:
    body = {key: value for key, value in LEAST.items() if key != name}
    assert refusal(body) == (name, f"`{name}` is required.")
    assert refusal({**LEAST, name: None})[0] == name
    assert refusal({**LEAST, name: type(LEAST[name])()})[0] == name


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"top_p": 1.1}, "top_p"),
        ({"frequency_penalty": 3}, "frequency_penalty"),
        ({"n": 0}, "n"),
        ({"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
        ({"stop": ["a", 1]}, "stop[1]"),
        ({"logit_bias": {"1": "x"}}, "logit_bias"),
        ({"modalities": ["text", 1]}, "modalities[1]"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tools": [{"function": {"name": "f"}}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
            "tools[0].function.parameters",
        ),
        ({"tools": [{"type": "function", "function": {"name": "f", "strict": 1}}]}, "tools[0].function.strict"),
        ({"functions": [{"name": "f"}, {"name": 2}]}, "functions[1].name"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {}}, "response_format.type"),
    ],
)
def test_a_wrong_nested_field_is_named_with_its_place(fields: dict[str, Any], param: str) -> None:
    assert param_of(**fields) == param


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"content": "x"}, "role"),
        ({"role": "wizard", "content": "x"}, "role"),
        ({"role": "user"}, "content"),
        ({"role": "system", "content": None}, "content"),
        ({"role": "user", "content": 5}, "content"),
        ({"role": "user", "content": [{"text": "x"}]}, "content[0].type"),
        ({"role": "user", "content": [{"type": "text"}]}, "content[0].text"),
        ({"role": "user", "content": [{"type": "text", "text": 1}]}, "content[0].text"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "content[0].image_url"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": 1}}]}, "content[0].image_url.url"),
        ({"role": "user", "content": [{"type": "input_audio"}]}, "content[0].input_audio"),
        ({"role": "user", "content": [{"type": "file"}]}, "content[0].file"),
        ({"role": "tool", "content": "x"}, "tool_call_id"),
        ({"role": "assistant", "tool_calls": [{"type": "function"}]}, "tool_calls[0].id"),
        ({"role": "assistant", "tool_calls": [{"id": "a"}]}, "tool_calls[0].function"),
        (
            {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {}}}]},
            "tool_calls[0].function.arguments",
        ),
        ({"role": "assistant", "function_call": {"name": "f"}}, "function_call.arguments"),
    ],
)
def test_a_wrong_message_is_named_with_its_place(message: dict[str, Any], param: str) -> None:
    assert in_message(**message) == f"messages[1].{param}"


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": ""}}]},
        {"role": "assistant"},
        {"role": "assistant", "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "f", "input": "x"}}]},
        {"role": "developer", "content": [{"type": "text", "text": "x"}]},
        {"role": "user", "content": [{"type": "video_url", "video_url": {"url": "x"}}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": "data:x"}]},
        {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": "x", "reasoning_content": {"any": 1}},
        {"role": "tool", "content": [{"type": "text", "text": "x"}], "tool_call_id": "a"},
    ],
)
def test_messages_of_other_servers_and_clients_pass(message: dict[str, Any]) -> None:
    assert parsed(messages=[message]).model == "m"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'"x"', b'{"model":"m",}', b"{'model':'m'}", b"\xef\xbb\xbf{}"]
)
def test_what_is_not_a_json_object_is_refused_without_naming_a_field(body: bytes) -> None:
    param, message = refusal(body)
    assert param is None
    assert message.startswith("The request body is not ")


def test_text_that_is_not_utf8_is_refused() -> None:
    for part in (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98"):
        body = b'{"model":"m","messages":[{"role":"user","content":"a' + part + b'"}]}'
        assert "not valid JSON" in refusal(body)[1]


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_deep_nesting_is_refused_and_no_crash(opening: str) -> None:
    deep = opening * 200_000
    for body in ('{"metadata":' + deep, '{"unknown":' + deep, '{"tools":[{"function":{"parameters":' + deep):
        assert refusal(body.encode())[1]


@given(
    st.dictionaries(st.text(max_size=8).filter(lambda name: name not in FIELDS), st.integers() | st.text(), max_size=4)
)
def test_unknown_fields_pass_and_stay_in_the_body(unknown: dict[str, Any]) -> None:
    body = json.dumps({**LEAST, **unknown}).encode()
    assert parse(body).body == body


@given(st.binary(max_size=40), st.integers(0, 60))
def test_no_bytes_make_it_fail_in_any_other_way(noise: bytes, place: int) -> None:
    body = json.dumps({**LEAST, "tools": FIELDS["tools"][0]}).encode()
    with suppress(TurnError):
        parse(body[:place] + noise + body[place:])


def test_the_prompt_has_what_routing_needs() -> None:
    prompt = parsed(stream=True, stream_options={"include_usage": True}, n=3, max_completion_tokens=7, max_tokens=9)
    assert (prompt.model, prompt.wants_stream, prompt.wants_usage, prompt.choices) == ("m", True, True, 3)
    assert (prompt.token_limit, prompt.last_words, prompt.wants_running_usage) == (7, "hi", False)


def test_what_is_not_said_is_not_wanted() -> None:
    prompt = parsed(max_tokens=9, messages=[{"role": "user", "content": [{"type": "text", "text": "hi"}]}])
    assert (prompt.wants_stream, prompt.wants_usage, prompt.choices) == (False, False, 1)
    assert (prompt.token_limit, prompt.last_words) == (9, None)
    assert parsed(stream_options={"continuous_usage_stats": True}).wants_running_usage


def test_a_refusal_says_what_would_be_right() -> None:
    assert (
        refusal({**LEAST, "temperature": "hot"})[1]
        == "`temperature` is not right: expected a number or null, got a string."
    )
    assert "a string or an array of parts" in refusal({"model": "m", "messages": [{"role": "user"}]})[1]
