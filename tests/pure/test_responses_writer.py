"""Bursts as a Responses client gets them: lawful events, one id and index an item, a final object that agrees."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.dialects import responses
from engine.errors import Fault, Kind
from engine.events import (
    Burst,
    Completed,
    End,
    Event,
    Failed,
    Finished,
    FinishReason,
    Frame,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
    ToolNameDelta,
    UsageReported,
)
from tests.cases.observation.responses import derive_responses
from tests.cases.observation.sse import parse_sse

Json = dict[str, Any]
FUNCTION: Json = {"type": "function", "name": "f", "parameters": {"type": "object"}}
TOOLS: list[Json] = [
    FUNCTION,
    {"type": "custom", "name": "patch"},
    {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "g"}]},
]


def asked(**fields: object) -> responses.Asked:
    return responses.parse(json.dumps({"model": "m", "input": "hi", "tools": TOOLS, **fields}).encode())


def written(
    *events: Event, end: End | None = None, at_once: bool = False, request: responses.Asked | None = None
) -> tuple[list[Json], Json]:
    """The events of a stream as a client reads them, and what a strict client makes of it."""
    request = request or asked()
    writer = responses.Writer(request, responses.outgoing(request, []).tools)
    end = end or Completed()
    frames = [Frame(b"{}", (event,)) for event in events]
    bursts = [Burst(tuple(frames), end)] if at_once else [*(Burst((frame,)) for frame in frames), Burst((), end)]
    stream = b"".join(map(writer.encode, bursts)) + writer.terminal()
    seen = derive_responses(parse_sse(stream), None)
    return [json.loads(line[6:]) for line in stream.decode().splitlines() if line.startswith("data: ")], seen


def types(events: Iterable[Json]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


TEXT: list[Event] = [TextDelta(0, "he"), TextDelta(0, "llo")]
CALL: list[Event] = [
    ToolCallStarted(0, 0, "call_a", "f"),
    ToolArgumentsDelta(0, 0, '{"a"'),
    ToolArgumentsDelta(0, 0, ":1}"),
]
STOP = Finished(0, FinishReason.STOP)


def test_a_text_is_an_item_with_a_part_and_every_event_of_both() -> None:
    events, seen = written(*TEXT, STOP)
    assert types(events) == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *("output_text.delta", "output_text.delta", "output_text.done", "content_part.done", "output_item.done"),
        "completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(10))
    assert (seen["lifecycle"], seen["status"], seen["text"]) == ([], "completed", "hello")
    assert events[0]["response"]["output"] == []


def test_a_call_is_announced_with_its_name_and_ends_with_all_its_arguments() -> None:
    events, seen = written(*CALL, Finished(0, FinishReason.TOOL_CALLS))
    added = next(event for event in events if event["type"] == "response.output_item.added")
    assert (added["item"]["name"], added["item"]["arguments"], added["item"]["status"]) == ("f", "", "in_progress")
    assert seen["lifecycle"] == []
    (call,) = seen["calls"]
    assert (call["call_id"], call["name"], call["arguments"], call["status"]) == ("call_a", "f", '{"a":1}', "completed")
    assert call["id"] != call["call_id"]
    assert seen["status"] == "completed"


def test_text_call_text_stays_text_call_text() -> None:
    _, seen = written(*TEXT, *CALL, TextDelta(0, "bye"), STOP)
    assert (seen["lifecycle"], seen["item_types"]) == ([], ["message", "function_call", "message"])
    assert [item["content"][0]["text"] for item in seen["items"] if item["type"] == "message"] == ["hello", "bye"]


def test_pieces_of_a_call_may_come_behind_text_and_between_another_s() -> None:
    _, seen = written(
        ToolCallStarted(0, 0, "call_a", "f"),
        ToolCallStarted(0, 1, "call_b", "f"),
        ToolArgumentsDelta(0, 0, "{"),
        ToolArgumentsDelta(0, 1, "["),
        TextDelta(0, "so"),
        ToolArgumentsDelta(0, 0, "}"),
        ToolArgumentsDelta(0, 1, "]"),
        STOP,
    )
    assert (seen["lifecycle"], seen["item_types"]) == ([], ["function_call", "function_call", "message"])
    assert [call["arguments"] for call in seen["calls"]] == ["{}", "[]"]


def test_a_name_that_comes_in_pieces_is_announced_whole() -> None:
    events, seen = written(
        ToolCallStarted(0, 0, "call_a", "ns_"), ToolNameDelta(0, 0, "_g"), ToolArgumentsDelta(0, 0, "{}"), STOP
    )
    added = next(event for event in events if event["type"] == "response.output_item.added")
    assert (added["item"]["name"], added["item"]["namespace"]) == ("g", "ns")
    assert seen["lifecycle"] == []


def test_a_custom_tool_gets_its_text_back() -> None:
    arguments = [ToolArgumentsDelta(0, 0, '{"inp'), ToolArgumentsDelta(0, 0, 'ut":"a\\nb"}')]
    events, seen = written(ToolCallStarted(0, 0, "call_a", "patch"), *arguments, STOP)
    assert (seen["item_types"], seen["calls"][0]["input"]) == (["custom_tool_call"], "a\nb")
    assert "custom_tool_call_input.done" in types(events)
    assert "function_call_arguments.delta" not in types(events)
    for odd in ("{", "[]", '{"input":1}'):
        _, seen = written(ToolCallStarted(0, 0, "call_a", "patch"), ToolArgumentsDelta(0, 0, odd), STOP)
        assert seen["calls"][0]["input"] == odd


def test_thoughts_and_refusals_have_items_and_parts_of_their_own() -> None:
    events, seen = written(ReasoningDelta(0, "hm"), TextDelta(0, "no"), RefusalDelta(0, ", sorry"), STOP)
    assert (seen["lifecycle"], seen["item_types"]) == ([], ["reasoning", "message"])
    assert seen["items"][0]["summary"] == [{"type": "summary_text", "text": "hm"}]
    assert [part["type"] for part in seen["items"][1]["content"]] == ["output_text", "refusal"]
    assert [event["content_index"] for event in events if "content_index" in event] == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("reason", "said"), [(FinishReason.LENGTH, "max_output_tokens"), (FinishReason.CONTENT_FILTER, "content_filter")]
)
def test_an_answer_that_was_cut_is_incomplete_and_so_is_its_last_item(reason: FinishReason, said: str) -> None:
    events, seen = written(*TEXT, *CALL, Finished(0, reason))
    assert types(events)[-1] == "incomplete"
    assert seen["final"]["incomplete_details"] == {"reason": said}
    assert [item["status"] for item in seen["items"]] == ["completed", "incomplete"]
    assert (seen["lifecycle"], seen["final"]["error"]) == ([], None)


@pytest.mark.parametrize(
    "last", [[ToolCallStarted(0, 1, "call_b", "f"), ToolArgumentsDelta(0, 1, "{")], [TextDelta(0, "so")]]
)
def test_of_an_answer_that_was_cut_only_the_last_item_is_incomplete(last: list[Event]) -> None:
    _, seen = written(*CALL, *last, Finished(0, FinishReason.LENGTH))
    assert [item["status"] for item in seen["items"]] == ["completed", "incomplete"]
    assert seen["lifecycle"] == []


def test_a_failure_is_said_twice_and_leaves_no_half_item_to_act_on() -> None:
    fault = Fault(Kind.UPSTREAM_TRUNCATED, "It broke off.")
    events, seen = written(*TEXT, *CALL, end=Failed(fault))
    assert types(events)[-2:] == ["error", "failed"]
    error = {"code": "upstream_truncated", "message": "It broke off."}
    assert events[-2] == {
        "type": "error",
        "sequence_number": events[-2]["sequence_number"],
        **error,
        "param": None,
        "error": {"type": "server_error", **error, "param": None},
    }
    assert seen["final"]["error"] == error
    assert (seen["status"], seen["item_types"]) == ("failed", ["message"])
    assert "function_call_arguments.done" not in types(events)


def test_usage_is_the_upstream_s_or_none() -> None:
    _, seen = written(*TEXT, STOP, UsageReported(7, 3, None, 2, 1))
    assert seen["final"]["usage"] == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 2},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 10,
    }
    for unknown in (UsageReported(None, 3), UsageReported(7, None), UsageReported()):
        assert written(*TEXT, STOP, unknown)[1]["final"]["usage"] is None


def test_what_was_asked_is_echoed_with_its_nulls() -> None:
    request = asked(
        instructions="I",
        metadata={"a": "1"},
        temperature=0.0,
        tool_choice="none",
        parallel_tool_calls=False,
        max_output_tokens=9,
        reasoning={"effort": "low"},
        text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}, "verbosity": "low"},
    )
    final = written(STOP, request=request)[1]["final"]
    assert (final["instructions"], final["metadata"], final["temperature"]) == ("I", {"a": "1"}, 0.0)
    assert (final["tool_choice"], final["parallel_tool_calls"], final["max_output_tokens"]) == ("none", False, 9)
    assert final["reasoning"] == {"effort": "low", "summary": None}
    schema = {"type": "json_schema", "name": "n", "description": None, "schema": {"type": "object"}, "strict": False}
    assert final["text"] == {"format": schema, "verbosity": "low"}
    assert final["tools"][0] == {"description": None, "strict": None, **FUNCTION}
    assert (final["error"], final["incomplete_details"], final["previous_response_id"]) == (None, None, None)


def test_log_probabilities_go_with_the_text_that_they_are_of() -> None:
    request = asked(include=["message.output_text.logprobs"])
    writer = responses.Writer(request, {})
    token = {"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": []}
    chunk = {"choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [token]}}]}
    data = writer.encode(Burst((Frame(json.dumps(chunk).encode(), (TextDelta(0, "a"),)),), Completed()))
    seen = derive_responses(parse_sse(data + writer.terminal()), None)
    assert seen["items"][0]["content"][0]["logprobs"] == [token]


EVENTS = st.lists(
    st.sampled_from(["text", "thought", "refusal", "start", "name", "arguments"]).flatmap(
        lambda kind: st.tuples(st.just(kind), st.integers(0, 3), st.text(max_size=3))
    ),
    max_size=25,
)


def made(draws: list[tuple[str, int, str]]) -> list[Event]:
    """Lawful events: a call is started before anything else is said of it."""
    events: list[Event] = []
    calls = 0
    for kind, number, text in draws:
        match kind:
            case "text" if text:
                events.append(TextDelta(0, text))
            case "thought" if text:
                events.append(ReasoningDelta(0, text))
            case "refusal" if text:
                events.append(RefusalDelta(0, text))
            case "start":
                events.append(ToolCallStarted(0, calls, f"call_{calls}", "f"))
                calls += 1
            case "arguments" if calls:
                events.append(ToolArgumentsDelta(0, number % calls, text))
    return events


@given(EVENTS, st.sampled_from(list(FinishReason)), st.booleans())
def test_whatever_comes_the_events_are_lawful_and_the_final_object_agrees(
    draws: list[tuple[str, int, str]], reason: FinishReason, at_once: bool
) -> None:
    events = made(draws)
    _, seen = written(*events, Finished(0, reason), at_once=at_once)
    assert seen["lifecycle"] == []
    assert seen["text"] == "".join(event.text for event in events if isinstance(event, TextDelta))
    said = {event.call: "" for event in events if isinstance(event, ToolCallStarted)}
    for event in events:
        if isinstance(event, ToolArgumentsDelta):
            said[event.call] += event.text
    assert {call["call_id"]: call["arguments"] for call in seen["calls"]} == {
        f"call_{number}": arguments for number, arguments in said.items()
    }


@given(EVENTS)
def test_whatever_comes_before_a_failure_nothing_follows_it(draws: list[tuple[str, int, str]]) -> None:
    events, seen = written(*made(draws), end=Failed(Fault(Kind.UPSTREAM_FAILED, "no")))
    assert seen["lifecycle"] == []
    assert types(events)[-1] == "failed"
    assert all(item["status"] == "completed" for item in seen["items"])
