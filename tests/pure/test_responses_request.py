"""A Responses request: what is refused, by which name; and what of it goes up to a Chat Completions upstream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.dialects import responses
from engine.errors import Kind, TurnError

Json = dict[str, Any]
FUNCTION: Json = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}


def asked(**fields: object) -> responses.Asked:
    return responses.parse(json.dumps({"model": "m", "input": "hi", **fields}).encode())


def refused(**fields: object) -> tuple[Kind, str | None]:
    with pytest.raises(TurnError) as caught:
        responses.outgoing(asked(**fields), [])
    assert caught.value.fault.message.startswith(f"`{caught.value.fault.param}`")
    return caught.value.fault.kind, caught.value.fault.param


def up(earlier: list[Json] | None = None, **fields: object) -> Json:
    body: Json = json.loads(responses.outgoing(asked(**fields), earlier or []).body)
    return body


def messages(earlier: list[Json] | None = None, **fields: object) -> list[Json]:
    said: list[Json] = up(earlier, **fields)["messages"]
    return said


def dropped(**fields: object) -> list[str]:
    return responses.outgoing(asked(**fields), []).dropped


WRONG: dict[str, tuple[Json, str]] = {
    "no model": ({"model": None}, "model"),
    "no input": ({"input": None}, "input"),
    "an empty input": ({"input": []}, "input"),
    "an input that is a number": ({"input": 3}, "input"),
    "a role": ({"input": [{"role": "boss", "content": "x"}]}, "input[0].role"),
    "a message without content": ({"input": [{"role": "user"}]}, "input[0].content"),
    "a content": ({"input": [{"role": "user", "content": 3}]}, "input[0].content"),
    "a part without a type": ({"input": [{"role": "user", "content": [{"text": "x"}]}]}, "input[0].content[0]"),
    "a part without its text": (
        {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
        "input[0].content[0].text",
    ),
    "a call without its id": (
        {"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]},
        "input[0].call_id",
    ),
    "arguments that are no text": (
        {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}]},
        "input[0].arguments",
    ),
    "an output without its call": ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
    "an output": (
        {"input": [{"type": "function_call_output", "call_id": "c", "output": 3}]},
        "input[0].output",
    ),
    "an id": ({"input": [{"role": "user", "content": "x", "id": 3}]}, "input[0].id"),
    "a type": ({"input": [{"type": 3}]}, "input[0].type"),
    "a temperature": ({"temperature": 3}, "temperature"),
    "a limit": ({"max_output_tokens": 0}, "max_output_tokens"),
    "a format": ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
    "a schema without a name": ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name"),
    "a schema without a schema": ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema"),
    "what to include": ({"include": ["everything"]}, "include[0]"),
    "a tool without a name": ({"tools": [{"type": "function"}]}, "tools[0].name"),
    "a tool without a type": ({"tools": [{"name": "f"}]}, "tools[0].type"),
    "two tools of a name": ({"tools": [FUNCTION, {**FUNCTION, "description": "e"}]}, "tools[1]"),
    "a choice": ({"tools": [FUNCTION], "tool_choice": "some"}, "tool_choice"),
    "a choice that is no tool": (
        {"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "g"}},
        "tool_choice.name",
    ),
    "allowed tools": ({"tools": [FUNCTION], "tool_choice": {"type": "allowed_tools"}}, "tool_choice.tools"),
    "metadata that is no object": ({"metadata": []}, "metadata"),
    "17 pairs": ({"metadata": {str(n): "" for n in range(17)}}, "metadata"),
    "a long key": ({"metadata": {"k" * 65: ""}}, "metadata"),
    "a long value": ({"metadata": {"k": "v" * 513}}, "metadata"),
    "a value that is no text": ({"metadata": {"k": 1}}, "metadata"),
}
UNSUPPORTED: dict[str, tuple[Json, str]] = {
    "background": ({"background": True}, "background"),
    "a conversation": ({"conversation": "conv_1"}, "conversation"),
    "a stored prompt": ({"prompt": {"id": "p"}}, "prompt"),
    "truncation": ({"truncation": "auto"}, "truncation"),
    "context management": ({"context_management": [{}]}, "context_management"),
    "a hosted tool by force": ({"tools": [FUNCTION], "tool_choice": {"type": "web_search"}}, "tool_choice"),
    "a required tool of none": ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
    "an image by its file": (
        {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
        "input[0].content[0]",
    ),
    "a file by its address": (
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "u"}]}]},
        "input[0].content[0]",
    ),
    "a part of a new kind": (
        {"input": [{"role": "user", "content": [{"type": "hologram"}]}]},
        "input[0].content[0].type",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_by_its_name(name: str) -> None:
    fields, param = WRONG[name]
    assert refused(**fields) == (Kind.BAD_REQUEST, param)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_cannot_be_honoured_is_refused_by_its_name(name: str) -> None:
    fields, param = UNSUPPORTED[name]
    assert refused(**fields) == (Kind.UNSUPPORTED_FIELD, param)


def test_what_is_no_json_is_refused() -> None:
    for body in (b"", b"{", b"[]", b"\xff", b"[" * 10_000):
        with pytest.raises(TurnError):
            responses.parse(body)


def test_null_is_the_same_as_absence() -> None:
    nothing = dict.fromkeys(("tools", "metadata", "text", "store", "stream", "previous_response_id", "temperature"))
    assert responses.outgoing(asked(**nothing), []).body == responses.outgoing(asked(), []).body
    assert asked(metadata={}).metadata == asked(metadata=None).metadata == {}


def test_metadata_may_be_as_large_as_the_limits() -> None:
    pairs = {f"{number:064}": "v" * 512 for number in range(16)}
    assert asked(metadata=pairs).metadata == pairs
    assert "metadata" not in up(metadata=pairs)


def test_each_field_has_its_place_upstream() -> None:
    body = up(
        tools=[FUNCTION],
        instructions="be brief",
        max_output_tokens=9,
        temperature=0.5,
        top_p=0.9,
        parallel_tool_calls=False,
        frequency_penalty=1,
        presence_penalty=-1,
        prompt_cache_key="k",
        safety_identifier="s",
        service_tier="flex",
        user="u",
        top_logprobs=2,
        include=["message.output_text.logprobs"],
        reasoning={"effort": "low", "summary": "auto"},
        text={"verbosity": "low", "format": {"type": "json_schema", "name": "n", "schema": {"a": 1}, "strict": True}},
        tool_choice={"type": "function", "name": "f"},
    )
    function = {key: value for key, value in FUNCTION.items() if key != "type"}
    assert body == {
        "model": "m",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": False,
        "max_completion_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "frequency_penalty": 1,
        "presence_penalty": -1,
        "prompt_cache_key": "k",
        "safety_identifier": "s",
        "service_tier": "flex",
        "user": "u",
        "logprobs": True,
        "top_logprobs": 2,
        "reasoning_effort": "low",
        "verbosity": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"a": 1}, "strict": True}},
    }


def test_what_nobody_asked_for_does_not_go_up() -> None:
    assert up().keys() == {"model", "messages", "stream", "stream_options"}


def test_what_has_no_place_is_left_out_and_named() -> None:
    tools = [{"type": "web_search"}, FUNCTION, {"type": "image_generation"}]
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    out = responses.outgoing(asked(tools=tools, input=[reasoning, {"role": "user", "content": "x"}], odd=1), [])
    assert out.dropped == ["odd", "tools[0] (web_search)", "tools[2] (image_generation)", "input[0] (reasoning)"]
    body = json.loads(out.body)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["f"]
    assert [message["role"] for message in body["messages"]] == ["user"]
    assert dropped(tools=[FUNCTION]) == []


def test_tools_of_a_namespace_and_custom_ones_are_functions_upstream() -> None:
    tools = [
        {
            "type": "namespace",
            "name": "ns",
            "tools": [{"type": "function", "name": "g"}, {"type": "custom", "name": "h"}],
        },
        {"type": "custom", "name": "patch", "description": "d", "format": {"type": "grammar", "syntax": "lark"}},
    ]
    out = responses.outgoing(asked(tools=tools), [])
    functions = [tool["function"] for tool in json.loads(out.body)["tools"]]
    assert [function["name"] for function in functions] == ["ns__g", "ns__h", "patch"]
    assert functions[2]["parameters"]["required"] == ["input"]
    assert (out.tools["ns__g"].name, out.tools["ns__g"].namespace, out.tools["ns__h"].is_custom) == ("g", "ns", True)
    assert out.dropped == ["tools[1].format"]


def test_allowed_tools_are_the_only_ones_that_go_up() -> None:
    other = {**FUNCTION, "name": "g"}
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "g"}]}
    body = up(tools=[FUNCTION, other], tool_choice=choice)
    assert ([tool["function"]["name"] for tool in body["tools"]], body["tool_choice"]) == (["g"], "required")


# A conversation

USER: Json = {"role": "user", "content": "hi"}


def call(id_: str, **more: object) -> Json:
    return {"type": "function_call", "call_id": id_, "name": "f", "arguments": "{}", **more}


def output(id_: str, said: object = "done") -> Json:
    return {"type": "function_call_output", "call_id": id_, "output": said}


def says(text: str) -> Json:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def shape(said: list[Json]) -> list[str]:
    """A message a word: its role, its text, and the calls that it makes or answers."""
    return [
        " ".join(
            [message["role"], *([message["content"]] if message.get("content") else [])]
            + [each["id"] for each in message.get("tool_calls", ())]
            + ([message["tool_call_id"]] if "tool_call_id" in message else [])
        )
        for message in said
    ]


def test_parallel_calls_are_one_turn_with_the_text_before_them() -> None:
    items = [USER, says("let me"), call("a"), call("b"), output("a"), output("b")]
    assert shape(messages(input=items)) == ["user hi", "assistant let me a b", "tool done a", "tool done b"]


def test_text_behind_a_call_keeps_its_place_and_outputs_stand_behind_their_call() -> None:
    items = [USER, call("a"), says("so"), call("b"), output("b"), output("a")]
    assert shape(messages(input=items)) == [
        *("user hi", "assistant a", "tool done a", "assistant so b", "tool done b"),
    ]


def test_outputs_stand_behind_their_calls_in_the_calls_order_whatever_came_between() -> None:
    items = [USER, call("a"), call("b"), says("so"), output("b"), output("a")]
    assert shape(messages(input=items)) == [
        *("user hi", "assistant a b", "tool done a", "tool done b", "assistant so"),
    ]


def test_calls_of_different_turns_are_not_joined() -> None:
    items = [USER, call("a"), output("a"), call("b"), output("b")]
    assert shape(messages(input=items)) == ["user hi", "assistant a", "tool done a", "assistant b", "tool done b"]


def test_a_call_that_is_sent_again_is_there_once() -> None:
    earlier = [{**USER, "type": "message"}, call("a")]
    assert shape(messages(earlier, input=[call("a"), output("a")])) == ["user hi", "assistant a", "tool done a"]


def test_an_output_without_its_call_is_not_lost() -> None:
    assert shape(messages(input=[output("z")])) == ["tool done z"]


def test_instructions_are_this_turn_s_and_earlier_items_keep_their_order() -> None:
    earlier = [{**USER, "type": "message"}, says("hello")]
    said = messages(earlier, instructions="I", input=[{"role": "user", "content": "more"}])
    assert shape(said) == ["system I", "user hi", "assistant hello", "user more"]


def test_custom_calls_and_names_of_a_namespace_are_the_upstream_s_own_again() -> None:
    tools = [
        {"type": "custom", "name": "patch"},
        {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "g"}]},
    ]
    items = [
        {"type": "custom_tool_call", "call_id": "a", "name": "patch", "input": 'x"y'},
        call("b", name="g", namespace="ns"),
        {"type": "custom_tool_call_output", "call_id": "a", "output": "ok"},
    ]
    first, second = messages(input=items, tools=tools)[0]["tool_calls"]
    assert (first["function"]["name"], json.loads(first["function"]["arguments"])) == ("patch", {"input": 'x"y'})
    assert second["function"]["name"] == "ns__g"


def test_parts_have_their_place() -> None:
    content = [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "https://x/y.png", "detail": "low"},
        {"type": "input_file", "file_data": "data:x", "filename": "a.pdf"},
        {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
    ]
    (message,) = messages(input=[{"role": "user", "content": content}])
    assert message["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
        {"type": "file", "file": {"file_data": "data:x", "filename": "a.pdf"}},
        {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
    ]
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    assert messages(input=[refusal])[0]["content"] == [{"type": "refusal", "refusal": "no"}]
    assert messages(input=[output("a", [{"type": "input_text", "text": "x"}])])[0]["content"] == "x"


def test_items_get_ids_of_their_own_and_keep_those_that_they_have() -> None:
    first, second = asked(input=[USER, {**USER, "id": "mine"}]).items
    assert (first["id"][:4], len(first["id"]), first["type"], second["id"]) == ("msg_", 36, "message", "mine")


def test_a_reference_to_an_item_is_refused_by_its_name() -> None:
    with pytest.raises(TurnError) as caught:
        messages(input=[{"type": "item_reference", "id": "msg_1"}])
    assert caught.value.fault.param == "input[0].id"
