"""A client's Responses request: every documented field by type; what cannot be honoured over a chat upstream is refused
by its name, and what is left out is listed.

Source: CreateResponse of OpenAI's API description and of the Open Responses specification, 2026-11. `null` means the
same as absence.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from engine.dialects.chat.request import refusal_of
from engine.dialects.responses.items import Json, input_item
from engine.errors import Kind, TurnError, bad_field, client_error

MOST_PAIRS, LONGEST_KEY, LONGEST_VALUE = 16, 64, 512
"""Of metadata: pairs, and characters of a key and of a value."""


class ReasoningOptions(Struct):
    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class Format(Struct):
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema: Json | None = None
    strict: bool | None = None
    description: str | None = None


class TextOptions(Struct):
    format: Format | None = None
    verbosity: str | None = None


class StreamOptions(Struct):
    include_obfuscation: bool | None = None


class ResponsesRequest(Struct):
    """All documented top-level fields."""

    model: Annotated[str, Meta(min_length=1)]
    input: str | list[Json] | None = None
    background: bool | None = None
    context_management: list[Json] | None = None
    conversation: str | Json | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    include: list[str] | None = None
    instructions: str | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_tool_calls: Annotated[int, Meta(ge=0)] | None = None
    metadata: Any = None
    parallel_tool_calls: bool | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    previous_response_id: str | None = None
    prompt: Json | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    reasoning: ReasoningOptions | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    text: TextOptions | None = None
    tool_choice: str | Json | None = None
    tools: list[Json] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: str | None = None


KNOWN = frozenset(ResponsesRequest.__struct_fields__)
INCLUDES = frozenset(
    (
        "reasoning.encrypted_content",
        "message.output_text.logprobs",
        "message.input_image.image_url",
        "file_search_call.results",
        "web_search_call.results",
        "web_search_call.action.sources",
        "computer_call_output.output.image_url",
        "code_interpreter_call.outputs",
    )
)
_decoder = msgspec.json.Decoder(ResponsesRequest)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Asked(Struct, frozen=True):
    """A request that has been checked. `items` are this turn's own, each with an id; `unknown` are the names of fields
    that no description has, which are left out."""

    request: ResponsesRequest
    items: list[Json]
    metadata: dict[str, str]
    unknown: list[str]

    @property
    def is_stored(self) -> bool:
        return self.request.store is not False

    @property
    def wants_logprobs(self) -> bool:
        return "message.output_text.logprobs" in (self.request.include or ()) or bool(self.request.top_logprobs)


def parse(body: bytes) -> Asked:
    """Raises TurnError (bad_request, unsupported_field) naming the field."""
    try:
        request = _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise refusal_of(str(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise client_error(Kind.BAD_REQUEST, f"The request body is not valid JSON: {error}.") from None
    _refuse_what_is_not_there(request)
    for at, name in enumerate(request.include or ()):
        if name not in INCLUDES:
            raise bad_field(f"include[{at}]", f"is not one of {', '.join(sorted(INCLUDES))}")
    if request.text is not None and request.text.format is not None:
        _check_format(request.text.format)
    items = _items(request.input)
    if not items and request.previous_response_id is None:
        raise bad_field("input", "is required: a string or an array of items")
    unknown = [name for name in _fields.decode(body) if name not in KNOWN]
    return Asked(request, items, metadata_of(request.metadata), unknown)


def _refuse_what_is_not_there(request: ResponsesRequest) -> None:
    if request.background:
        raise unsupported("background", "`true` is not supported: ask for a stream, or wait for the answer")
    if request.conversation is not None:
        raise unsupported("conversation", "is not supported: continue a turn with `previous_response_id`")
    if request.prompt is not None:
        raise unsupported(
            "prompt", "is not supported: there are no stored prompts here; send `instructions` and `input`"
        )
    if request.truncation == "auto":
        raise unsupported("truncation", "`auto` is not supported: send `disabled`, or nothing")
    if request.context_management:
        raise unsupported("context_management", "is not supported: leave it out")


def metadata_of(said: Any) -> dict[str, str]:
    """At most 16 pairs of short texts; `null` and `{}` mean none. Raises TurnError with the param `metadata`."""
    if said is None:
        return {}
    if not isinstance(said, dict):
        raise bad_field("metadata", "is not an object of texts")
    if len(said) > MOST_PAIRS:
        raise bad_field("metadata", f"has {len(said)} pairs; {MOST_PAIRS} are allowed")
    for key, value in said.items():
        if len(key) > LONGEST_KEY:
            raise bad_field("metadata", f"has a key of {len(key)} characters; {LONGEST_KEY} are allowed")
        if not isinstance(value, str):
            raise bad_field("metadata", "has a value that is not a text")
        if len(value) > LONGEST_VALUE:
            raise bad_field("metadata", f"has a value of {len(value)} characters; {LONGEST_VALUE} are allowed")
    return said


def _check_format(wanted: Format) -> None:
    if wanted.type == "json_schema":
        for field in ("name", "schema"):
            if getattr(wanted, field) is None:
                raise bad_field(f"text.format.{field}", "is required with type `json_schema`")


def _items(said: str | list[Json] | None) -> list[Json]:
    if said is None:
        return []
    if isinstance(said, str):
        return [input_item({"role": "user", "content": said}, "input")]
    return [input_item(item, f"input[{at}]") for at, item in enumerate(said)]


def unsupported(param: str, what: str) -> TurnError:
    return bad_field(param, what, Kind.UNSUPPORTED_FIELD)
