"""What `serve` gives when told nothing: the `openai` SDK against the simulated upstream inside the gateway."""

import json

import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionChunk, ChatCompletionUserMessageParam

from tests.real.turns import finishes, said

pytestmark = pytest.mark.real

HELLO: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "Hello"}]


def test_the_simulated_model_streams_its_eight_chunks(simulated: OpenAI) -> None:
    chunks = list(simulated.chat.completions.create(model="simulated", messages=HELLO, stream=True))
    assert len([c for chunk in chunks for c in chunk.choices if c.delta.content]) == 8
    assert finishes(chunks) == ["stop"]


def test_the_simulated_model_says_the_same_whole(simulated: OpenAI) -> None:
    stream = simulated.chat.completions.create(model="simulated", messages=HELLO, stream=True)
    whole = simulated.chat.completions.create(model="simulated", messages=HELLO)
    assert whole.choices[0].message.content == said(stream)
    assert whole.usage is not None
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens


def test_the_sdks_stream_helper_builds_the_whole_answer(simulated: OpenAI) -> None:
    with simulated.chat.completions.stream(model="simulated", messages=HELLO) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        (choice,) = stream.get_final_completion().choices
    assert choice.message.content == text != ""


def test_two_tool_calls_accumulate_in_the_sdks_stream_helper(simulated: OpenAI) -> None:
    with simulated.chat.completions.stream(model="simulated/tools=2", messages=HELLO) as stream:
        (choice,) = stream.get_final_completion().choices
    calls = choice.message.tool_calls or []
    assert choice.finish_reason == "tool_calls"
    assert len({call.id for call in calls}) == 2
    assert all(isinstance(json.loads(call.function.arguments), dict) for call in calls)


def test_two_tool_calls_come_whole(simulated: OpenAI) -> None:
    whole = simulated.chat.completions.create(model="simulated/tools=2", messages=HELLO)
    calls = [call for call in whole.choices[0].message.tool_calls or [] if call.type == "function"]
    assert len({call.id for call in calls}) == 2
    assert all(isinstance(json.loads(call.function.arguments), dict) for call in calls)


STREAM = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


@STREAM
@pytest.mark.parametrize(
    ("status", "error"),
    [(429, openai.RateLimitError), (503, openai.InternalServerError), (400, openai.BadRequestError)],
)
def test_an_upstreams_refusal_is_the_sdks_typed_error(
    simulated: OpenAI, status: int, error: type[openai.APIStatusError], stream: bool
) -> None:
    with pytest.raises(error) as refusal:
        simulated.chat.completions.create(model=f"simulated/error={status}", messages=HELLO, stream=stream)
    assert refusal.value.status_code == status
    assert refusal.value.request_id, "x-request-id names the turn in the journal"


FAILURES = pytest.mark.parametrize("failure", ["error=503@3", "cut@3", "reset@3", "nodone,nofinish"])


@FAILURES
def test_a_stream_that_breaks_off_raises_and_is_never_taken_for_whole(simulated: OpenAI, failure: str) -> None:
    stream = simulated.chat.completions.create(model=f"simulated/{failure}", messages=HELLO, stream=True)
    chunks: list[ChatCompletionChunk] = []
    with pytest.raises(openai.APIError) as broken:
        chunks.extend(stream)  # keeps what came before the error
    assert broken.type is openai.APIError, "an error event, not a lost connection"
    assert said(chunks), "what had come was passed on"
    assert finishes(chunks) == []


@FAILURES
def test_a_whole_turn_whose_upstream_breaks_off_is_a_gateway_error(simulated: OpenAI, failure: str) -> None:
    with pytest.raises(openai.InternalServerError):
        simulated.chat.completions.create(model=f"simulated/{failure}", messages=HELLO)


def test_a_model_that_nobody_serves_is_not_found(simulated: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refusal:
        simulated.chat.completions.create(model="no-such-model", messages=HELLO)
    assert refusal.value.code == "model_not_found"


def test_the_simulated_model_is_listed(simulated: OpenAI) -> None:
    assert "simulated" in [model.id for model in simulated.models.list()]
