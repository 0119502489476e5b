"""What real servers get wrong in chat chunks, and what a client gets of it. Calls, reasons and usage have their own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.dialects.chat.reader import StreamReader
from engine.events import Completed, OtherContent
from tests.pure.streams import (
    DONE,
    ENVELOPE,
    Json,
    bytes_of,
    chunk,
    cut,
    cuttings,
    event,
    events_of,
    read,
    said_by_events,
    said_to_client,
    stream,
    text,
    without_runs,
)

NOTHING: list[object] = [
    {**ENVELOPE, "choices": None},
    {**ENVELOPE, "choices": []},
    {**ENVELOPE},
    {**ENVELOPE, "choices": {}},
    {**ENVELOPE, "choices": [None]},
    {**ENVELOPE, "choices": ["x"]},
    {},
    chunk(None),
    chunk("x"),
    chunk([]),
    {**ENVELOPE, "choices": [{"index": 0}]},
]


@pytest.mark.parametrize("value", NOTHING)
def test_a_chunk_that_says_nothing_changes_nothing(value: object) -> None:
    plain = [text("a"), text("b"), chunk({}, "stop")]
    for place in range(4):
        seen = read(stream(*plain[:place], value, *plain[place:]))
        assert said_to_client(seen.written()).text == {0: "ab"}
        assert said_to_client(seen.written()).finish == {0: ["stop"]}
        assert seen.whole()["choices"][0]["message"]["content"] == "ab"


@pytest.mark.parametrize("value", [text("a"), chunk(None), chunk({}), chunk({}, "stop")])
def test_every_choice_that_goes_out_has_its_number_and_a_delta(value: Json) -> None:
    del value["choices"][0]["index"]
    seen = read(stream(value, chunk({"content": "b"}), chunk({}, "stop")))
    for said in events_of(seen.written()):
        assert [(choice["index"], type(choice["delta"])) for choice in said["choices"]] == [(0, dict)]
    assert seen.whole()["choices"][0]["message"]["content"].endswith("b")


@pytest.mark.parametrize("index", [None, "0", "x", 0.5])
def test_a_number_that_is_none_is_the_first(index: object) -> None:
    odd = {**ENVELOPE, "choices": [{"index": index, "delta": {"content": "a"}, "finish_reason": None}]}
    assert said_to_client(read(stream(odd, text("b"), chunk({}, "stop"))).written()).text == {0: "ab"}


def test_several_choices_in_one_chunk_are_all_said() -> None:
    choices = [{"index": at, "delta": {"content": words}, "finish_reason": None} for at, words in enumerate("abc")]
    seen = read(stream({**ENVELOPE, "choices": choices}))
    assert said_to_client(seen.written()).text == {0: "a", 1: "b", 2: "c"}
    assert said_to_client(seen.written()).finish == {0: ["stop"], 1: ["stop"], 2: ["stop"]}


def test_a_message_where_a_delta_belongs_is_taken_for_one() -> None:
    odd = {
        **ENVELOPE,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}],
    }
    seen = read(stream(odd))
    assert said_to_client(seen.written()).text == {0: "a"}
    assert all("message" not in said["choices"][0] for said in events_of(seen.written()))


def test_unknown_fields_survive_a_repair() -> None:
    odd = chunk({"content": "a", "tool_calls": [], "x_delta": {"y": [1]}}, x_top=1.5)
    odd["choices"][0] |= {"x_choice": "z", "logprobs": {"content": []}}
    (said, *_) = events_of(read(stream(odd, chunk({}, "stop"))).written())
    del odd["choices"][0]["delta"]["tool_calls"]
    assert said == odd


def test_what_a_server_says_beside_no_choice_passes() -> None:
    """Azure's verdict on the prompt comes so."""
    odd = {**ENVELOPE, "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
    assert events_of(read(stream(odd, text("a"), chunk({}, "stop"))).written())[0] == odd


def test_an_annotation_without_a_delta_passes() -> None:
    odd = chunk(None)
    odd["choices"][0]["content_filter_offsets"] = {"check_offset": 0}
    (_, said, *_) = events_of(read(stream(text("a"), odd, chunk({}, "stop"))).written())
    assert said["choices"][0] == {
        "index": 0,
        "delta": {},
        "finish_reason": None,
        "content_filter_offsets": {"check_offset": 0},
    }


@pytest.mark.parametrize(
    ("content", "words", "thought"),
    [
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab", ""),
        (["a", {"type": "text", "text": "b"}, None, 5], "ab", ""),
        (
            [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "a"}],
            "a",
            "hm",
        ),
        ([{"type": "thinking", "thinking": "hm"}], "", "hm"),
        ([{"type": "text", "text": None}, {"type": "reference", "reference_ids": [1]}], "", ""),
        ([], "", ""),
    ],
)
def test_content_in_parts_becomes_text_and_reasoning(content: object, words: str, thought: str) -> None:
    seen = read(stream(chunk({"content": content}), chunk({}, "stop")))
    said = said_to_client(seen.written())
    assert (said.text.get(0, ""), said.reasoning.get(0, "")) == (words, thought)
    assert said_by_events(seen.events) == said


def test_half_a_surrogate_pair_becomes_a_replacement_character() -> None:
    odd = event(text("HALF")).replace(b"HALF", b"a\\ud83d")
    data = event(text("a")) + odd + odd.replace(b"\\ud83d", b"\\ude00") + stream(chunk({}, "stop"))
    for reader in (StreamReader(), without_runs()):
        seen = read(data, reader)
        assert said_to_client(seen.written()).text == {0: "aa\ufffda\ufffd"}
        seen.written().decode("utf-8")


def test_bytes_that_are_not_utf8_become_a_replacement_character() -> None:
    data = event(text("NOT")).replace(b"NOT", b"a\xff") + stream(text("b"), chunk({}, "stop"))
    assert said_to_client(read(data).written()).text == {0: "a\ufffdb"}


def test_audio_and_a_legacy_function_call_pass_and_are_known_to_be_content() -> None:
    for delta in (
        {"audio": {"id": "x", "data": "AAAA"}},
        {"function_call": {"name": "f", "arguments": ""}},
        {"function_call": "odd"},
    ):
        seen = read(stream(chunk(delta), chunk({}, "stop")))
        assert events_of(seen.written())[0]["choices"][0]["delta"] == delta
        assert OtherContent(0) in seen.events


def thought(*words: str, reader: StreamReader | None = None) -> tuple[str, str]:
    """Reasoning and text of an upstream that puts its reasoning into tags."""
    seen = read(stream(*(text(each) for each in words), chunk({}, "stop")), reader or StreamReader(think_tags=True))
    assert isinstance(seen.end, Completed)
    said = said_to_client(seen.written())
    assert said == said_by_events(seen.events)
    message = seen.whole()["choices"][0]["message"]
    assert message.get("reasoning_content", "") == said.reasoning.get(0, "")
    assert (message["content"] or "") == said.text.get(0, "")
    return said.reasoning.get(0, ""), said.text.get(0, "")


@given(st.data())
def test_reasoning_in_tags_is_told_apart_however_it_is_cut(draws: st.DataObject) -> None:
    whole = "\n<think>hm < </thin k></think>\n\nso <think>x</think>"
    words = [piece.decode() for piece in cut(whole.encode(), draws.draw(cuttings(len(whole)))) if piece]
    assert thought(*words) == ("hm < </thin k>", "so <think>x</think>")


def test_tags_are_text_unless_the_upstream_is_known_for_them() -> None:
    assert thought("<think>hm</think>so", reader=StreamReader()) == ("", "<think>hm</think>so")


@pytest.mark.parametrize("rest", ["<", "</thi", "  \n", "<th"])
def test_what_was_held_back_as_a_possible_tag_is_said_before_the_end(rest: str) -> None:
    assert thought(rest) == ("", rest)
    assert thought("<think>hm", rest) == ("hm" + rest, "")


@pytest.mark.parametrize("rest", ["<", "</thi", "  \n", "<th"])
@pytest.mark.parametrize("ending", [b"", event({"error": {"message": "no"}}), b"data: nonsense\n\n"])
def test_what_was_held_back_as_a_possible_tag_is_said_also_where_the_answer_breaks_off(
    ending: bytes, rest: str
) -> None:
    seen = read(stream(text("<think>hm"), text(rest), done=False) + ending, StreamReader(think_tags=True))
    assert not isinstance(seen.end, Completed)
    assert said_to_client(seen.written()).reasoning == {0: "hm" + rest}


def test_runs_begin_once_the_tags_are_behind() -> None:
    reader = StreamReader(think_tags=True)
    assert thought("<think>", "hm", "</think>", *("so" for _ in range(5)), reader=reader) == ("hm", "so" * 5)
    assert reader._runs.run is not None


ODD_DELTAS: list[Any] = [
    *({"content": word} for word in ("a", "", "é", '"', None, ["x"])),
    *({"role": "assistant"}, {"reasoning": "r"}, {"reasoning_content": "q"}, {"refusal": "no"}, {"tool_calls": None}),
    *({"tool_calls": [{"index": 0, "id": "i", "function": {"name": "f", "arguments": "{}"}}]}, None, {}, []),
]
ODD_CHUNKS = st.one_of(
    st.builds(
        chunk, st.sampled_from(ODD_DELTAS), st.sampled_from([None, None, None, "stop", "", "eos"]), st.integers(0, 2)
    ),
    st.sampled_from(NOTHING),
    st.just({**ENVELOPE, "choices": [], "usage": {"completion_tokens": 1}}),
)
FRAMING = st.sampled_from(
    ["data: {}\n\n", "data:{}\n\n", ": hi\ndata: {}\r\n\r\n", "data: {}\r\r", "event: x\ndata: {}\n\n"]
)


@given(st.data(), st.lists(st.tuples(ODD_CHUNKS, FRAMING), max_size=12), st.booleans())
def test_no_cutting_of_a_disorderly_stream_changes_what_it_says(
    draws: st.DataObject, parts: list[tuple[Json, str]], done: bool
) -> None:
    data = "".join(framing.replace("{}", json.dumps(value)) for value, framing in parts).encode() + (
        DONE if done else b""
    )
    plain = read(data, without_runs())
    said = said_by_events(plain.events)
    assert said_to_client(plain.written()) == said
    for pieces in (bytes_of(data), cut(data, draws.draw(cuttings(len(data))))):
        other = read(pieces)
        assert said_by_events(other.events) == said
        assert said_to_client(other.written()) == said
        assert type(other.end) is type(plain.end)
        assert other.whole()["choices"] == plain.whole()["choices"]
