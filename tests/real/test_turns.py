"""A turn through the gateway, streamed and whole, as the `openai` SDK sees it from a real model."""

import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types import CompletionUsage

from tests.real.turns import CAPITAL, MODEL, STORY, finishes, said

pytestmark = pytest.mark.real


def test_a_streamed_turn_says_paris_and_ends_once(client: OpenAI) -> None:
    stream = client.chat.completions.create(model=MODEL, messages=CAPITAL, temperature=0, stream=True)
    chunks = list(stream)
    assert "Paris" in said(chunks)
    assert finishes(chunks) == ["stop"]


def test_a_streamed_turn_comes_in_pieces(client: OpenAI) -> None:
    stream = client.chat.completions.create(model=MODEL, messages=CAPITAL, temperature=0, stream=True)
    pieces = [c.delta.content for chunk in stream for c in chunk.choices if c.delta.content]
    assert len(pieces) > 4, f"the model makes about one piece a word: {pieces}"


# The SDK leaves its generators half read at `[DONE]`; on Trio the garbage collector says so.
@pytest.mark.filterwarnings("ignore:Async generator '(openai|httpx2|httpcore2):ResourceWarning")
async def test_the_sdk_on_trio_reads_the_same_answer(trio_client: AsyncOpenAI, client: OpenAI) -> None:
    stream = await trio_client.chat.completions.create(model=MODEL, messages=CAPITAL, temperature=0, stream=True)
    on_trio = said([chunk async for chunk in stream])
    whole = client.chat.completions.create(model=MODEL, messages=CAPITAL, temperature=0)
    assert on_trio == whole.choices[0].message.content


def test_a_whole_turn_says_what_the_streamed_one_says(client: OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=CAPITAL, temperature=0)
    stream = client.chat.completions.create(model=MODEL, messages=CAPITAL, temperature=0, stream=True)
    (choice,) = whole.choices
    assert choice.message.content == said(stream)
    assert (choice.message.role, choice.finish_reason) == ("assistant", "stop")


def test_a_streamed_turn_has_no_usage_unless_it_was_asked_for(client: OpenAI) -> None:
    stream = client.chat.completions.create(model=MODEL, messages=CAPITAL, temperature=0, stream=True)
    chunks = list(stream)
    assert [chunk.usage for chunk in chunks if chunk.usage] == []
    assert all(chunk.choices for chunk in chunks), "a chunk without choices is the usage chunk"


def test_the_usage_of_a_streamed_turn_is_the_servers(client: OpenAI, server_client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL, messages=CAPITAL, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    *rest, last = list(stream)
    assert all(chunk.usage is None for chunk in rest)
    assert last.choices == []
    assert numbers(last.usage) == numbers(asked_directly(server_client))


def test_the_usage_of_a_whole_turn_is_the_servers(client: OpenAI, server_client: OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=CAPITAL, temperature=0)
    assert numbers(whole.usage) == numbers(asked_directly(server_client))


def test_a_streamed_turn_cut_by_its_token_limit_says_length(client: OpenAI) -> None:
    stream = client.chat.completions.create(model=MODEL, messages=STORY, max_tokens=12, stream=True)
    assert finishes(list(stream)) == ["length"]


def test_a_whole_turn_cut_by_its_token_limit_says_length(client: OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=STORY, max_tokens=12)
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 12


def test_the_model_list_is_the_servers(client: OpenAI, server_client: OpenAI) -> None:
    assert [m.id for m in client.models.list()] == [m.id for m in server_client.models.list()] == [MODEL]


COUNTED = ("prompt_tokens", "completion_tokens", "total_tokens")


def numbers(usage: CompletionUsage | None) -> dict[str, int]:
    """Without the details: how much of a prompt the server had cached differs from one call to the next."""
    assert usage is not None
    return {name: getattr(usage, name) for name in COUNTED}


def asked_directly(server_client: OpenAI) -> CompletionUsage | None:
    return server_client.chat.completions.create(model=MODEL, messages=CAPITAL, temperature=0).usage
