"""A real tool call: three examples bring a model that was never trained on tools to make one."""

import json

import pytest
from openai import OpenAI
from openai.types.chat import (
    ChatCompletionAssistantMessageParam,
    ChatCompletionFunctionToolParam,
    ChatCompletionMessageParam,
    ChatCompletionUserMessageParam,
)
from openai.types.chat.chat_completion_message_function_tool_call_param import Function

from tests.real.turns import MODEL

pytestmark = pytest.mark.real

WEATHER: ChatCompletionFunctionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


def asked(city: str) -> ChatCompletionUserMessageParam:
    return {"role": "user", "content": f"What is the weather in {city}?"}


def called(city: str) -> ChatCompletionAssistantMessageParam:
    function: Function = {"name": "get_weather", "arguments": json.dumps({"city": city})}
    return {"role": "assistant", "tool_calls": [{"id": city, "type": "function", "function": function}]}


FEW_SHOT: list[ChatCompletionMessageParam] = [
    *(turn for city in ("Rome", "Berlin", "Oslo") for turn in (asked(city), called(city))),
    asked("Paris"),
]


def test_a_streamed_tool_call_accumulates_in_the_sdk(client: OpenAI) -> None:
    with client.chat.completions.stream(
        model=MODEL, messages=FEW_SHOT, tools=[WEATHER], parallel_tool_calls=False, temperature=0, max_tokens=60
    ) as stream:
        pieces = [e for e in stream if e.type == "tool_calls.function.arguments.delta"]
        (choice,) = stream.get_final_completion().choices
    assert len(pieces) > 2, "the arguments came in pieces"
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls or []
    assert call.id
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Paris"})


def test_a_whole_turn_has_the_same_tool_call(client: OpenAI) -> None:
    whole = client.chat.completions.create(
        model=MODEL, messages=FEW_SHOT, tools=[WEATHER], parallel_tool_calls=False, temperature=0, max_tokens=60
    )
    (choice,) = whole.choices
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Paris"})
