"""A client that leaves: the model server's own word (GET /slots) that it stopped computing, within a second.

llama.cpp looks for its client only between two events of a stream. Asked for a whole answer directly, it computes
for nobody to the end (measured: 9 s for 700 tokens); so these tests hold the gateway to streaming upstream always.
While it reads a prompt it does not look at all, whoever asks; so they leave when the first tokens have come.
"""

from collections.abc import Callable

import pytest
import trio
from openai import AsyncOpenAI, OpenAI

from tests.real.slots import ModelServer
from tests.real.turns import ENDLESS, LONG, MODEL, STORY

pytestmark = pytest.mark.real

Measured = Callable[[str, object], None]  # pytest's record_property

AT_ONCE = 1.0  # second
FIRST_TOKENS = 20.0  # seconds until a slot works and has written something, on a busy machine
CHUNKS = 10


@pytest.fixture(autouse=True)
def _idle_before(model_server: ModelServer) -> None:
    model_server.until_idle(within=FIRST_TOKENS)


def test_closing_a_stream_idles_the_slot_within_a_second(
    client: OpenAI, model_server: ModelServer, record_property: Measured
) -> None:
    stream = client.chat.completions.create(
        model=MODEL, messages=STORY, max_tokens=LONG, stream=True, extra_body=ENDLESS
    )
    for _, _ in zip(range(CHUNKS), stream, strict=False):
        pass
    assert model_server.busy_slots() == 1
    stream.close()
    idle_after = model_server.until_idle(within=AT_ONCE)
    record_property("stream closed after 10 chunks, slot idle after", f"{idle_after:.3f} s")


async def test_cancelling_a_stream_idles_the_slot_within_a_second(
    trio_client: AsyncOpenAI, model_server: ModelServer, record_property: Measured
) -> None:
    seen = 0
    with trio.CancelScope() as scope:
        stream = await trio_client.chat.completions.create(
            model=MODEL, messages=STORY, max_tokens=LONG, stream=True, extra_body=ENDLESS
        )
        async for _ in stream:
            seen += 1
            if seen == CHUNKS:
                scope.cancel()
    assert scope.cancelled_caught
    idle_after = await trio.to_thread.run_sync(model_server.until_idle, AT_ONCE)
    record_property("stream cancelled after 10 chunks, slot idle after", f"{idle_after:.3f} s")


async def test_cancelling_a_whole_turn_idles_the_slot_within_a_second(
    trio_client: AsyncOpenAI, model_server: ModelServer, record_property: Measured
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask_for_a_whole_story, trio_client)
        await trio.to_thread.run_sync(model_server.until_writing, FIRST_TOKENS)
        nursery.cancel_scope.cancel()
    idle_after = await trio.to_thread.run_sync(model_server.until_idle, AT_ONCE)
    record_property("whole turn cancelled, slot idle after", f"{idle_after:.3f} s")


async def test_one_of_two_clients_leaving_idles_its_slot_alone(
    trio_client: AsyncOpenAI, model_server: ModelServer
) -> None:
    async with trio.open_nursery() as staying:
        staying.start_soon(ask_for_a_whole_story, trio_client)
        async with trio.open_nursery() as leaving:
            leaving.start_soon(ask_for_a_whole_story, trio_client)
            await trio.to_thread.run_sync(model_server.until_writing, FIRST_TOKENS, 2)
            leaving.cancel_scope.cancel()
        await trio.to_thread.run_sync(model_server.until_idle, AT_ONCE, 1)
        assert model_server.busy_slots() == 1
        staying.cancel_scope.cancel()


async def ask_for_a_whole_story(client: AsyncOpenAI) -> None:
    await client.chat.completions.create(model=MODEL, messages=STORY, max_tokens=LONG, extra_body=ENDLESS)
    raise AssertionError("the story was meant to outlast the client")
