"""The `openai` SDK's Responses client: every helper it has, against the model server and the simulated model."""

import json

import openai
import pytest
from openai import OpenAI
from openai.types.responses import FunctionToolParam, Response
from pydantic import BaseModel

from tests.real.slots import ModelServer
from tests.real.turns import ENDLESS, MODEL

pytestmark = pytest.mark.real

QUESTION = "What is the capital of France? Answer in one sentence."
SIMULATED = "simulated"
ADD: FunctionToolParam = {
    "type": "function",
    "name": "add",
    "parameters": {"type": "object", "properties": {"a": {"type": "number"}}},
    "strict": False,
}


def test_a_whole_answer_with_its_usage(client: OpenAI) -> None:
    response = client.responses.create(model=MODEL, input=QUESTION, max_output_tokens=60, temperature=0)
    assert "Paris" in response.output_text
    assert (response.status, response.error, response.incomplete_details) == ("completed", None, None)
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens > 0


def test_a_stream_says_the_same_as_the_response_that_is_kept(client: OpenAI) -> None:
    events = list(
        client.responses.create(model=MODEL, input=QUESTION, max_output_tokens=60, temperature=0, stream=True)
    )
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == text
    kept = client.responses.retrieve(last.response.id)
    assert kept == last.response
    assert "Paris" in text


def test_the_stream_helper_builds_the_final_response(client: OpenAI) -> None:
    with client.responses.stream(model=MODEL, input=QUESTION, max_output_tokens=60, temperature=0) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert final.output_text == text != ""


def test_an_answer_cut_by_its_limit_is_incomplete(client: OpenAI) -> None:
    response = client.responses.create(model=MODEL, input=QUESTION, max_output_tokens=3, extra_body=ENDLESS)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert client.responses.retrieve(response.id).status == "incomplete"


def test_a_conversation_goes_on_from_its_last_response(client: OpenAI) -> None:
    first = client.responses.create(model=MODEL, input="My name is Ada.", max_output_tokens=20, temperature=0)
    second = client.responses.create(
        model=MODEL, input="What is my name?", max_output_tokens=30, temperature=0, previous_response_id=first.id
    )
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens
    assert second.previous_response_id == first.id
    items = client.responses.input_items.list(second.id)
    assert [item.type for item in items] == ["message"]


def test_an_answer_in_a_schema_is_parsed(client: OpenAI) -> None:
    class City(BaseModel):
        name: str

    parsed = client.responses.parse(model=MODEL, input=QUESTION, text_format=City, max_output_tokens=60, temperature=0)
    assert isinstance(parsed.output_parsed, City)


def test_leaving_a_stream_leaves_a_response_that_says_so(client: OpenAI, model_server: ModelServer) -> None:
    stream = client.responses.create(model=MODEL, input="Tell a story.", stream=True, extra_body=ENDLESS)
    first = next(iter(stream))
    assert first.type == "response.created"
    stream.close()
    model_server.until_idle(within=1.0)
    assert client.responses.retrieve(first.response.id).status == "cancelled"


def test_calls_have_their_results_in_the_next_turn(simulated: OpenAI) -> None:
    response = simulated.responses.create(model="simulated/tools=2", input="add", tools=[ADD])
    calls = [item for item in response.output if item.type == "function_call"]
    assert len({call.call_id for call in calls}) == 2
    assert all(isinstance(json.loads(call.arguments), dict) for call in calls)
    done = simulated.responses.create(
        model=SIMULATED,
        previous_response_id=response.id,
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "3"} for call in calls],
    )
    assert done.status == "completed"


def test_a_response_can_be_deleted(simulated: OpenAI) -> None:
    response = simulated.responses.create(model=SIMULATED, input="hello", metadata={"a": "1"})
    assert simulated.responses.retrieve(response.id).metadata == {"a": "1"}
    simulated.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        simulated.responses.retrieve(response.id)


def test_what_cannot_be_done_is_said_as_an_error_of_its_own(simulated: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        simulated.responses.create(model=SIMULATED, input="x", previous_response_id="resp_0")
    assert (caught.value.code, caught.value.param) == ("previous_response_not_found", "previous_response_id")
    for field, value in (("background", True), ("conversation", "conv_1"), ("metadata", {"k": "v" * 513})):
        with pytest.raises(openai.BadRequestError) as refused:
            simulated.responses.create(model=SIMULATED, input="x", extra_body={field: value})
        assert refused.value.param == field
    response: Response = simulated.responses.create(model=SIMULATED, input="x", store=False)
    with pytest.raises(openai.NotFoundError):
        simulated.responses.retrieve(response.id)


def test_a_failure_in_a_stream_raises_the_sdks_error(simulated: OpenAI) -> None:
    with pytest.raises(openai.APIError):
        list(simulated.responses.create(model="simulated/error=503@2", input="x", stream=True))
