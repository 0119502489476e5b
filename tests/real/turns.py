"""Reading an SDK's stream of chunks, and the prompts that more than one test sends."""

from collections.abc import Iterable

from openai.types.chat import ChatCompletionChunk, ChatCompletionUserMessageParam

MODEL = "smollm2-135m"

CAPITAL: list[ChatCompletionUserMessageParam] = [
    {"role": "user", "content": "What is the capital of France? Answer in one sentence."}
]
STORY: list[ChatCompletionUserMessageParam] = [
    {"role": "user", "content": "Write a very long story about a cat and a dog, in many chapters."}
]

# A story that outlasts every client that leaves it. `ignore_eos` is llama.cpp's own field: unknown to OpenAI's schema,
# it has to survive the gateway, or the model may end by itself and the tests of leaving prove nothing.
ENDLESS: dict[str, object] = {"ignore_eos": True}
LONG = 1_500  # tokens, some 20 s of computing


def said(chunks: Iterable[ChatCompletionChunk], choice: int = 0) -> str:
    return "".join(c.delta.content or "" for chunk in chunks for c in chunk.choices if c.index == choice)


def finishes(chunks: Iterable[ChatCompletionChunk], choice: int = 0) -> list[str]:
    """Every finish reason of one choice: a good stream has exactly one."""
    every = (c for chunk in chunks for c in chunk.choices if c.index == choice)
    return [c.finish_reason for c in every if c.finish_reason]
