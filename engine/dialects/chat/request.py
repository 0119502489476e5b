"""A client's Chat Completions request: every documented field by type, every other field left alone.

Types are checked, vendors' ranges mostly are not: an upstream may allow more than OpenAI does, and says so itself if
it does not. What no upstream can mean anything by (no messages, a message without a role) is refused here.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from engine.errors import Kind, TurnError, bad_field, client_error
from engine.prompt import Prompt

Object = dict[str, Raw]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Share = Annotated[float, Meta(ge=0, le=1)]
Positive = Annotated[int, Meta(ge=1)]


class ImageUrl(Struct):
    url: str
    detail: str | None = None


class Part(Struct):
    """One part of a message's content. Types that OpenAI does not know (`video_url`, …) pass."""

    type: str
    text: str | UnsetType = UNSET
    refusal: str | UnsetType = UNSET
    image_url: ImageUrl | str | UnsetType = UNSET
    input_audio: Object | UnsetType = UNSET
    file: Object | UnsetType = UNSET


class FunctionCall(Struct):
    name: str
    arguments: str


class CustomCall(Struct):
    name: str
    input: str


class ToolCall(Struct):
    id: str
    type: str = "function"
    function: FunctionCall | None = None
    custom: CustomCall | None = None


class Message(Struct):
    role: Literal["developer", "system", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None
    name: str | None = None
    refusal: str | None = None
    audio: Object | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    function_call: FunctionCall | None = None


class Function(Struct):
    name: str
    description: str | None = None
    parameters: Object | None = None
    strict: bool | None = None


class CustomTool(Struct):
    name: str
    description: str | None = None
    format: Object | None = None


class Tool(Struct):
    type: str
    function: Function | None = None
    custom: CustomTool | None = None


class ResponseFormat(Struct):
    type: str
    json_schema: Object | None = None


class StreamOptions(Struct):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: bool | None = None


class ChatRequest(Struct):
    """All documented top-level fields (CreateChatCompletionRequest); `null` means the same as absence."""

    model: Annotated[str, Meta(min_length=1)]
    messages: Annotated[list[Message], Meta(min_length=1)]
    audio: Object | None = None
    frequency_penalty: Penalty | None = None
    function_call: str | Object | None = None
    functions: list[Function] | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    metadata: dict[str, Any] | None = None
    modalities: list[str] | None = None
    moderation: Object | None = None
    n: Positive | None = None
    parallel_tool_calls: bool | None = None
    prediction: Object | None = None
    presence_penalty: Penalty | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: Object | None = None
    prompt_cache_retention: str | None = None
    reasoning_effort: str | None = None
    response_format: ResponseFormat | None = None
    safety_identifier: str | None = None
    seed: int | None = None
    service_tier: str | None = None
    stop: str | list[str] | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Meta(ge=0)] | None = None
    tool_choice: str | Object | None = None
    tools: list[Tool] | None = None
    top_logprobs: int | None = None
    top_p: Share | None = None
    user: str | None = None
    verbosity: str | None = None
    web_search_options: Object | None = None


_decoder = msgspec.json.Decoder(ChatRequest)


def parse(body: bytes) -> Prompt:
    """Check a request body and take out what routing needs. Raises TurnError (bad_request) naming the field."""
    try:
        request = _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise refusal_of(str(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise client_error(Kind.BAD_REQUEST, f"The request body is not valid JSON: {error}.") from None
    for at, message in enumerate(request.messages):
        _check_message(message, f"messages[{at}]")
    for at, tool in enumerate(request.tools or ()):
        if tool.type == "function" and tool.function is None:
            raise bad_field(f"tools[{at}].function", "is required for a tool of type `function`")
    _check_format(request.response_format)
    options = request.stream_options or StreamOptions()
    last = request.messages[-1].content
    return Prompt(
        dialect="chat",
        model=request.model,
        body=body,
        wants_stream=bool(request.stream),
        wants_usage=bool(options.include_usage),
        wants_running_usage=bool(options.continuous_usage_stats),
        choices=request.n or 1,
        token_limit=request.max_completion_tokens or request.max_tokens,
        last_words=last if isinstance(last, str) else None,
    )


def _check_message(message: Message, at: str) -> None:
    if message.role in ("user", "system", "developer", "tool") and message.content is None:
        raise bad_field(f"{at}.content", f"is required in a {message.role} message: a string or an array of parts")
    if message.role == "tool" and message.tool_call_id is None:
        raise bad_field(f"{at}.tool_call_id", "is required in a tool message: the id of the call that it answers")
    for place, call in enumerate(message.tool_calls or ()):
        if call.type == "function" and call.function is None:
            raise bad_field(f"{at}.tool_calls[{place}].function", "is required for a call of type `function`")
    if isinstance(message.content, list):
        for place, part in enumerate(message.content):
            _check_part(part, f"{at}.content[{place}]")


_PAYLOADS = ("text", "image_url", "input_audio", "file", "refusal")


def _check_part(part: Part, at: str) -> None:
    if part.type in _PAYLOADS and getattr(part, part.type) is UNSET:
        raise bad_field(f"{at}.{part.type}", f"is required in a part of type `{part.type}`")


def _check_format(wanted: ResponseFormat | None) -> None:
    if wanted is not None and wanted.type == "json_schema" and wanted.json_schema is None:
        raise bad_field("response_format.json_schema", "is required with type `json_schema`: an object with `schema`")


_PLACE = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]+)`")
_WORDS = {"str": "a string", "int": "an integer", "float": "a number", "bool": "true or false", "array": "an array",
          "object": "an object", "null": "null"}  # fmt: skip


def refusal_of(said: str) -> TurnError:
    """msgspec's sentence, with the field in the client's notation first and JSON's names for the types."""
    match = _PLACE.match(said)
    assert match is not None
    what, path = match["what"], (match["path"] or "").lstrip(".").replace("[...]", "")
    if missing := _MISSING.search(what):
        param = f"{path}.{missing['field']}" if path else missing["field"]
        return bad_field(param, "is required")
    words = re.sub(r"`([^`]+)`", lambda found: _in_words(found[1]), what)
    if not path:
        return client_error(Kind.BAD_REQUEST, f"The request body is not right: {words[:1].lower()}{words[1:]}.")
    return bad_field(path, f"is not right: {words[:1].lower()}{words[1:]}")


def _in_words(types: str) -> str:
    return " or ".join(_WORDS.get(name, f"`{name}`") for name in types.split(" | "))
