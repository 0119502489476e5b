"""Requests that cannot be answered: who refuses them, and that the SDK gets its typed error and the reason."""

import openai
import pytest
from openai import OpenAI

from tests.real.turns import CAPITAL, MODEL

pytestmark = pytest.mark.real


@pytest.mark.parametrize("stream", [True, False])
def test_malformed_messages_are_refused_by_the_name_of_the_field(client: OpenAI, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        client.chat.completions.create(model=MODEL, messages="nope", stream=stream)  # type: ignore[arg-type]
    assert refusal.value.param == "messages"
    assert refusal.value.type == "invalid_request_error"


def test_a_message_without_a_role_is_refused_by_its_place(client: OpenAI) -> None:
    messages = [*CAPITAL, {"content": "who says this?"}]
    with pytest.raises(openai.BadRequestError) as refusal:
        client.chat.completions.create(model=MODEL, messages=messages)  # type: ignore[arg-type]
    assert refusal.value.param is not None
    assert refusal.value.param.startswith("messages[1]")


@pytest.mark.parametrize("stream", [True, False])
def test_a_prompt_beyond_the_context_is_refused_in_the_servers_words(client: OpenAI, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError, match=r"request \(\d+ tokens\) exceeds the available context size"):
        client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "word " * 3_000}], stream=stream
        )


def test_a_schema_that_the_server_cannot_compile_is_refused_in_its_words(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="JSON schema"):
        client.chat.completions.create(
            model=MODEL,
            messages=CAPITAL,
            max_tokens=8,
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "p", "schema": {"type": "nonsense"}},
            },
        )
