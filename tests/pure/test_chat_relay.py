"""A chat stream that needs no repair passes as the bytes it came in, whatever reads it came in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.dialects.chat.reader import StreamReader
from engine.events import Completed, TextDelta
from tests.pure.streams import (
    DONE,
    RECORDINGS,
    bytes_of,
    called,
    chunk,
    cut,
    cuttings,
    event,
    every_cut,
    read,
    recording,
    said_by_events,
    said_to_client,
    stream,
    text,
    without_runs,
)

ALL = sorted(path.name for path in RECORDINGS.glob("*.sse"))
WELL_FORMED = [name for name in ALL if not name.endswith(("-n2.sse", "cpp-python-tool-named.sse"))]
"""Not: two usages for two choices; names and ids that are repeated in every delta."""


def test_the_recordings_are_there() -> None:
    assert len(ALL) >= 14
    assert len(ALL) - len(WELL_FORMED) == 2


@pytest.mark.parametrize("name", WELL_FORMED)
def test_a_real_stream_in_good_form_passes_byte_for_byte(name: str) -> None:
    data = recording(name)
    assert read(data).written() == data
    assert read(bytes_of(data)).written() == data


@pytest.mark.parametrize("name", WELL_FORMED)
@settings(max_examples=10)
@given(draws=st.data())
def test_no_cutting_changes_a_byte_of_what_passes(name: str, draws: st.DataObject) -> None:
    data = recording(name)
    pieces = cut(data, draws.draw(cuttings(len(data))))
    assert read(pieces).written() == data


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=10)
@given(draws=st.data())
def test_no_cutting_changes_what_a_real_stream_says(name: str, draws: st.DataObject) -> None:
    data = recording(name)
    plain = read(data, without_runs())
    other = read(cut(data, draws.draw(cuttings(len(data)))))
    assert said_by_events(other.events) == said_by_events(plain.events)
    assert said_to_client(other.written()) == said_by_events(plain.events)
    assert other.whole() == plain.whole()
    assert type(other.end) is type(plain.end)


@pytest.mark.parametrize("name", ALL)
def test_a_recording_ends_as_its_server_ended_it(name: str) -> None:
    assert (read(recording(name)).end is None) == name.endswith("-abort.sse")


def test_a_text_in_good_form_is_seen_though_it_is_not_touched() -> None:
    seen = read(recording("llamacpp-smollm2-text.sse"))
    assert said_by_events(seen.events).text == {0: "The capital of France is Paris."}
    assert said_by_events(seen.events).finish == {0: ["stop"]}
    assert said_by_events(seen.events).usage == [8]


def test_fields_that_nobody_here_knows_pass() -> None:
    odd = chunk({"content": "a", "x_delta": [1]}, x_top={"y": None}) | {"service_tier": "flex"}
    odd["choices"][0]["x_choice"] = 1.5
    last = chunk({}, "stop", x_last=True)
    assert read(stream(text("b"), odd, last)).written() == stream(text("b"), odd, last)


def test_the_way_that_json_is_written_passes() -> None:
    spaced = b'data: { "choices" : [ {"delta":{"content":"\\u00e9\\/"}, "index" : 0} ], "n": 1.0e0 }\n\n'
    assert read(spaced + stream(chunk({}, "stop"))).written().startswith(spaced)


@pytest.mark.parametrize("ends", ["\r\n", "\r", "\n"])
def test_line_ends_become_line_feeds(ends: str) -> None:
    data = stream(text("a"), text("b"), chunk({}, "stop"))
    for pieces in every_cut(data.replace(b"\n", ends.encode())):
        assert read(pieces).written() == data


def test_framing_of_any_kind_is_written_in_one_way() -> None:
    one, rest = text("é"), stream(chunk({}, "stop"))
    pretty = "".join(f"data: {line}\n" for line in json.dumps(one, indent=1, ensure_ascii=False).split("\n"))
    for framed in (f"data:{json.dumps(one)}\n\n", f": hi\nid: 1\ndata: {json.dumps(one)}\n\n", pretty + "\n"):
        data = b"\xef\xbb\xbf" + framed.encode() + rest
        for pieces in every_cut(data):
            assert read(pieces).chunks == [one, chunk({}, "stop")]


def test_the_last_event_counts_without_its_blank_line() -> None:
    data = stream(text("a"), chunk({}, "stop"))
    for missing in (1, 2):
        for pieces in every_cut(data[:-missing]):
            assert read(pieces).written() == data


def test_each_read_is_a_burst_with_what_it_completed() -> None:
    reader = StreamReader()
    one, two = event(text("a")), event(text("b"))
    assert [len(reader.feed(piece).frames) for piece in (one, one[:9], one[9:] + two, b": hi\n\n")] == [1, 0, 2, 0]


def test_a_tool_call_in_good_form_passes_untouched() -> None:
    begin = {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}
    more = {"index": 0, "function": {"arguments": "{}"}}
    other = {"index": 1, "id": "b", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    data = stream(*(called(**piece) for piece in (begin, more, other)), chunk({}, "tool_calls"))
    assert read(data).written() == data
    assert said_by_events(read(data).events).calls == {(0, 0): ["a", "f", "{}"], (0, 1): ["b", "f", "{}"]}


def test_nothing_is_said_after_the_end() -> None:
    data = stream(text("a"), chunk({}, "stop"))
    late = event(text("LATE")) + DONE
    assert read(data + late).written() == data
    reader = StreamReader()
    reader.feed(data)
    assert reader.feed(late).frames == ()
    assert reader.close().frames == ()


def test_an_event_cut_within_a_character_is_whole_again() -> None:
    data = b"data: " + json.dumps(text("é😀\u2028"), ensure_ascii=False).encode() + b"\n\n" + DONE
    for pieces in every_cut(data):
        assert said_by_events(read(pieces).events).text == {0: "é😀\u2028"}


@pytest.mark.parametrize(
    ("delta", "expected"),
    [
        ({"content": "a"}, {"text": {0: "a"}}),
        ({"reasoning_content": "a"}, {"reasoning": {0: "a"}}),
        ({"reasoning": "a"}, {"reasoning": {0: "a"}}),
        ({"reasoning_content": "a", "reasoning": "a"}, {"reasoning": {0: "a"}}),
        ({"reasoning_content": "a", "content": "b"}, {"reasoning": {0: "a"}, "text": {0: "b"}}),
        ({"refusal": "no"}, {"refusal": {0: "no"}}),
        ({"content": "a", "refusal": "no"}, {"text": {0: "a"}, "refusal": {0: "no"}}),
        ({"role": "assistant", "content": ""}, {}),
        ({"content": None, "reasoning_content": "", "tool_calls": None, "function_call": None}, {}),
    ],
)
def test_the_events_say_all_that_a_delta_says(delta: dict[str, Any], expected: dict[str, Any]) -> None:
    seen = read(stream(chunk(delta), chunk({}, "stop")))
    said = said_by_events(seen.events)
    assert {key: value for key, value in vars(said).items() if value and key != "finish"} == expected


def test_a_role_alone_says_nothing_yet() -> None:
    reader = StreamReader()
    assert not reader.feed(event(chunk({"role": "assistant", "content": ""}))).says_something()
    assert reader.feed(event(text("a"))).says_something()


def test_a_finish_is_an_event_that_says_something() -> None:
    burst = StreamReader().feed(stream(chunk({}, "stop")))
    assert burst.says_something()
    assert isinstance(burst.end, Completed)


def test_events_know_their_choice() -> None:
    seen = read(stream(text("a", 1), text("b", 0), chunk({}, "stop", 0), chunk({}, "length", 1)))
    assert [event for event in seen.events if isinstance(event, TextDelta)] == [TextDelta(1, "a"), TextDelta(0, "b")]
    assert said_by_events(seen.events).finish == {0: ["stop"], 1: ["length"]}
