"""How a chat stream ends: each choice with one reason that the protocol knows, or the answer is not whole."""

from __future__ import annotations

import pytest

from engine.dialects.chat.reader import StreamReader
from engine.errors import Kind
from engine.events import Completed, Failed, Finished, FinishReason
from tests.pure.streams import (
    DONE,
    Json,
    Read,
    called,
    chunk,
    event,
    every_cut,
    read,
    said_by_events,
    said_to_client,
    stream,
    text,
)

CALL: Json = {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def reasons(seen: Read) -> dict[int, list[str]]:
    """Each choice's reasons as the client sees them; the events must say the same."""
    finish = said_to_client(seen.written()).finish
    assert finish == said_by_events(seen.events).finish
    return finish


@pytest.mark.parametrize("reason", list(FinishReason))
def test_a_reason_of_the_protocol_passes_untouched(reason: FinishReason) -> None:
    data = stream(text("a"), chunk({}, str(reason)))
    assert read(data).written() == data
    assert reasons(read(data)) == {0: [str(reason)]}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("eos", "stop"),
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("STOP", "stop"),
        ("made_up_tomorrow", "stop"),
        ("max_tokens", "length"),
        ("MAX_TOKENS", "length"),
        ("model_length", "length"),
        ("tool_use", "tool_calls"),
        ("SAFETY", "content_filter"),
        ("refusal", "content_filter"),
    ],
)
def test_a_server_s_own_word_becomes_the_protocol_s(said: str, reason: str) -> None:
    seen = read(stream(text("a"), chunk({}, said)))
    assert reasons(seen) == {0: [reason]}
    assert seen.events[-1] == Finished(0, FinishReason(reason), said)
    assert seen.whole()["choices"][0]["finish_reason"] == reason


@pytest.mark.parametrize("said", ["stop", None, "eos"])
def test_calls_that_were_made_end_with_tool_calls(said: str | None) -> None:
    ending = [chunk({}, said)] if said else []
    assert reasons(read(stream(called(**CALL), *ending))) == {0: ["tool_calls"]}


@pytest.mark.parametrize("said", ["length", "content_filter"])
def test_calls_that_were_cut_keep_their_reason(said: str) -> None:
    assert reasons(read(stream(called(**CALL), chunk({}, said)))) == {0: [said]}


def test_a_legacy_function_call_ends_with_function_call() -> None:
    call = chunk({"function_call": {"name": "f", "arguments": "{}"}})
    assert reasons(read(stream(call, chunk({}, "stop")))) == {0: ["function_call"]}


def test_a_reason_that_never_comes_is_stop() -> None:
    seen = read(stream(text("a")))
    assert reasons(seen) == {0: ["stop"]}
    last = seen.chunks[-1]
    assert {key: last[key] for key in ("id", "object", "created", "model")} == {
        key: text("a")[key] for key in ("id", "object", "created", "model")
    }


@pytest.mark.parametrize("early", [chunk({"content": "one "}, "stop"), chunk({}, "stop")])
def test_text_after_the_reason_still_arrives_and_the_reason_is_last(early: Json) -> None:
    seen = read(stream(text("zero "), early, text("two"), chunk({}, "stop")))
    words = "zero one two" if early["choices"][0]["delta"] else "zero two"
    assert said_to_client(seen.written()).text == {0: words}
    assert reasons(seen) == {0: ["stop"]}
    assert seen.chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_the_last_reason_counts() -> None:
    assert reasons(read(stream(text("a"), chunk({}, "stop"), chunk({}, "length")))) == {0: ["length"]}


def test_text_in_the_chunk_of_the_reason_is_said_before_it() -> None:
    seen = read(stream(chunk({"content": "a"}, "length")))
    assert said_to_client(seen.written()).text == {0: "a"}
    assert reasons(seen) == {0: ["length"]}
    assert seen.whole()["choices"][0]["message"]["content"] == "a"


def test_an_empty_reason_in_every_chunk_is_no_reason() -> None:
    seen = read(stream(chunk({"content": "a"}, ""), chunk({"content": "b"}, ""), chunk({}, "stop")))
    assert reasons(seen) == {0: ["stop"]}


@pytest.mark.parametrize("said", ["error", "abort", "network_error", "ERROR"])
def test_a_reason_that_means_broken_off_is_a_failure(said: str) -> None:
    seen = read(stream(text("a"), chunk({"content": "b"}, said)))
    assert isinstance(seen.end, Failed)
    assert seen.end.fault.kind is Kind.UPSTREAM_TRUNCATED
    assert said in seen.end.fault.message
    assert reasons(seen) == {}
    assert DONE not in seen.written()


def test_nothing_is_said_after_a_reason_that_means_broken_off() -> None:
    both = chunk({}, "error")
    both["choices"].append({"index": 1, "delta": {"content": "LATE"}, "finish_reason": None})
    assert said_to_client(read(stream(both)).written()).text == {}


def test_each_choice_ends_with_its_own_reason() -> None:
    data = stream(text("a", 0), text("b", 1), chunk({}, "length", 1), text("c", 0), chunk({}, "stop", 0))
    assert reasons(read(data)) == {0: ["stop"], 1: ["length"]}


def test_done_ends_every_choice_also_one_without_a_reason() -> None:
    assert reasons(read(stream(text("a", 0), text("b", 1), chunk({}, "length", 1)))) == {0: ["stop"], 1: ["length"]}


def test_a_reason_without_done_is_a_whole_answer() -> None:
    data = stream(text("a"), chunk({}, "stop"))
    for pieces in every_cut(data.removesuffix(DONE)):
        assert read(pieces).written() == data


def test_a_stream_that_is_cut_before_any_reason_has_no_end() -> None:
    data = event(text("a")) + event(text("b"))
    for place in range(len(data) + 1):
        assert read(data[:place]).end is None


def test_a_stream_is_not_whole_while_one_of_its_choices_has_no_reason() -> None:
    seen = read(stream(text("a", 0), text("b", 1), chunk({}, "stop", 0), text("c", 1), done=False))
    assert seen.end is None
    assert reasons(seen) == {}


def test_a_cut_in_the_middle_of_the_last_event_is_not_a_failure_of_its_own() -> None:
    data = stream(text("a"), done=False) + event(chunk({}, "stop"))[:60]
    assert read(data).end is None


def test_done_with_blanks_around_it_is_done() -> None:
    for done in (b"data:[DONE]\n\n", b"data: [DONE] \n\n", b"data:  [DONE]\n\n", b"event: x\ndata: [DONE]\n\n"):
        assert isinstance(read(stream(text("a"), done=False) + done).end, Completed)


def test_done_alone_is_an_empty_answer_with_an_end() -> None:
    seen = read(DONE)
    assert reasons(seen) == {0: ["stop"]}
    assert said_to_client(seen.written()).text == {}


def test_an_empty_body_has_no_end() -> None:
    assert read(b"").end is None
    assert read([b": hi\n\n", b"\n"]).end is None


def test_the_end_is_in_the_burst_that_brought_it() -> None:
    reader = StreamReader()
    assert reader.feed(event(text("a"))).end is None
    assert reader.feed(event(chunk({}, "stop"))).frames == ()
    burst = reader.feed(DONE)
    assert isinstance(burst.end, Completed)
    assert [type(said) for frame in burst.frames for said in frame.events] == [Finished]
