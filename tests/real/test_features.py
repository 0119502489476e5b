"""What the model server does beyond text, asked for and answered through the gateway."""

import json
from collections.abc import Sequence

import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionTokenLogprob
from openai.types.shared_params import ResponseFormatJSONSchema

from tests.real.turns import CAPITAL, MODEL, finishes, said

pytestmark = pytest.mark.real

PERSON: ResponseFormatJSONSchema = {
    "type": "json_schema",
    "json_schema": {
        "name": "person",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"name": {"type": "string", "maxLength": 10}, "age": {"type": "integer"}},
            "required": ["name", "age"],
            "additionalProperties": False,
        },
    },
}


def test_a_json_schema_reaches_the_servers_grammar(client: OpenAI) -> None:
    """Asked for no person and no JSON: only the grammar can bring this answer about."""
    stream = client.chat.completions.create(
        model=MODEL, messages=CAPITAL, temperature=0, max_tokens=80, response_format=PERSON, stream=True
    )
    assert set(json.loads(said(stream))) == {"name", "age"}


def test_a_json_schema_holds_for_a_whole_turn(client: OpenAI) -> None:
    whole = client.chat.completions.create(
        model=MODEL, messages=CAPITAL, temperature=0, max_tokens=80, response_format=PERSON
    )
    assert set(json.loads(whole.choices[0].message.content or "")) == {"name", "age"}


def test_a_stop_sequence_ends_the_answer_before_it(client: OpenAI) -> None:
    stream = client.chat.completions.create(model=MODEL, messages=CAPITAL, temperature=0, stop=["France"], stream=True)
    chunks = list(stream)
    assert said(chunks).strip() == "The capital of"
    assert finishes(chunks) == ["stop"]


def test_two_choices_are_streamed_side_by_side(client: OpenAI) -> None:
    stream = client.chat.completions.create(model=MODEL, messages=CAPITAL, temperature=0, n=2, stream=True)
    chunks = list(stream)
    assert [said(chunks, choice) for choice in (0, 1)] == ["The capital of France is Paris."] * 2
    assert [finishes(chunks, choice) for choice in (0, 1)] == [["stop"]] * 2


def test_two_choices_of_a_whole_turn_are_both_there(client: OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=CAPITAL, temperature=0, n=2)
    assert sorted(choice.index for choice in whole.choices) == [0, 1]
    assert {choice.message.content for choice in whole.choices} == {"The capital of France is Paris."}


def test_log_probabilities_survive_a_stream(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL, messages=CAPITAL, temperature=0, logprobs=True, top_logprobs=2, stream=True
    )
    chunks = list(stream)
    tokens = [
        token
        for chunk in chunks
        for choice in chunk.choices
        if choice.logprobs
        for token in choice.logprobs.content or []
    ]
    assert_are_of(tokens, said(chunks))


def test_log_probabilities_survive_a_whole_turn(client: OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=CAPITAL, temperature=0, logprobs=True, top_logprobs=2)
    (choice,) = whole.choices
    assert choice.logprobs is not None
    assert_are_of(choice.logprobs.content or [], choice.message.content or "")


def assert_are_of(tokens: Sequence[ChatCompletionTokenLogprob], text: str) -> None:
    """One entry for each token of the text, in order, each with the two likeliest and the chosen one first."""
    assert "".join(token.token for token in tokens) == text
    assert all(len(token.top_logprobs) == 2 for token in tokens)
    assert all(token.logprob == token.top_logprobs[0].logprob <= 0 for token in tokens), "temperature is 0"
