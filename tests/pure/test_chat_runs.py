"""Text chunks that differ only in their text are recognised by their bytes, and say what they would say decoded."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.dialects.chat.reader import StreamReader
from engine.events import End, Failed
from tests.pure.streams import (
    DONE,
    ENVELOPE,
    Json,
    Read,
    bytes_of,
    chunk,
    cut,
    cuttings,
    event,
    read,
    said_by_events,
    said_to_client,
    stream,
    text,
    without_runs,
)

Write = Callable[[Json], str]
WRITERS: dict[str, Write] = {
    "compact": lambda value: json.dumps(value, separators=(",", ":")),
    "spaced": json.dumps,
    "with characters as they are": lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False),
    "sorted": lambda value: json.dumps(value, sort_keys=True),
}
SHAPES: dict[str, Callable[[str], Json]] = {
    "content": text,
    "content after a role": lambda words: chunk({"role": "assistant", "content": words}),
    "content before null fields": lambda words: chunk({"content": words, "tool_calls": None, "refusal": None}),
    "reasoning_content": lambda words: chunk({"reasoning_content": words}),
    "reasoning": lambda words: chunk({"reasoning": words}),
    "second choice": lambda words: text(words, 1),
    "fields behind": lambda words: chunk({"content": words}, usage=None, x={"y": '"content":"'}),
}
SNIPPETS = st.sampled_from(
    [
        *('"', "\\", "\\\\", '\\"', "\\n", "\\u", "\\ud83d", "\n", "\n\n", "\r\n", "\x00", "\x7f", "\u2028", "é", "😀"),
        *('"content":"', '"}', '"}}]}', '"},"finish_reason":null}]}', "data: ", "data: [DONE]", ",", "{", "[", " "),
        event(text("x")).decode(),
    ]
)
WORDS = st.lists(SNIPPETS | st.text(max_size=4), max_size=4).map("".join)


def plain(data: bytes) -> Read:
    return read(data, without_runs())


def same(seen: Read, other: Read) -> None:
    """Both said the same, to every kind of client."""
    assert said_by_events(seen.events) == said_by_events(other.events)
    assert said_to_client(seen.written()) == said_to_client(other.written())
    assert seen.whole() == other.whole()
    assert kind_of(seen.end) == kind_of(other.end)


def kind_of(end: End | None) -> str:
    return str(end.fault.kind) if isinstance(end, Failed) else type(end).__name__


def took_runs(seen: Read) -> bool:
    return any(frame.wire is not None for frame in seen.frames)


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_each_way_to_write_a_chunk_is_recognised(write: Write, shape: Callable[[str], Json]) -> None:
    data = "".join(f"data: {write(shape(words))}\n\n" for words in ("a", "b", "é", "c")).encode()
    seen = read([data, data, data])
    assert took_runs(seen)
    same(seen, plain(data * 3))


@given(
    st.data(), st.lists(WORDS, max_size=12), st.sampled_from([*WRITERS.values()]), st.sampled_from([*SHAPES.values()])
)
def test_a_run_says_what_its_chunks_say_whatever_the_text(
    draws: st.DataObject, words: list[str], write: Write, shape: Callable[[str], Json]
) -> None:
    data = "".join(f"data: {write(shape(each))}\n\n" for each in ["one", "two", *words]).encode() + DONE
    expected = plain(data)
    said = said_by_events(expected.events)
    assert "".join([*said.text.values(), *said.reasoning.values()]) == "".join(["one", "two", *words])
    for pieces in ([data], bytes_of(data), cut(data, draws.draw(cuttings(len(data))))):
        seen = read(pieces)
        same(seen, expected)
        assert seen.written() == expected.written()


RAW = st.sampled_from(
    [
        *(b"\\", b'"', b"\\u", b"\\u00", b"e9", b"\\ud83d", b"\\ude00", b"\xf0\x9f", b"\x98\x80", b"\xff", b","),
        *(b"a", b"\n", b"\n\n", b"\r", b"\x01", b'"}', b'","x":"', b'\\"', b": c\n", b"data: x\n\n", b""),
    ]
)


@given(st.data(), st.lists(st.lists(RAW, max_size=3).map(b"".join), max_size=8), st.sampled_from([*SHAPES.values()]))
def test_broken_text_is_no_better_for_standing_in_a_run(
    draws: st.DataObject, texts: list[bytes], shape: Callable[[str], Json]
) -> None:
    head, tail = event(shape("TEXT")).split(b"TEXT")
    data = b"".join(head + each + tail for each in [b"one", b"two", *texts]) + DONE
    expected = plain(data)
    for pieces in ([data], cut(data, draws.draw(cuttings(len(data))))):
        same(read(pieces), expected)


def test_an_escape_is_not_completed_by_the_next_chunk() -> None:
    for first, second in ((b"a\\", b"n"), (b"\\ud83d", b"\\ude00"), (b"\\u00", b"e9"), (b"\xf0\x9f", b"\x98\x80")):
        head, tail = event(text("TEXT")).split(b"TEXT")
        data = head + b"x" + tail + head + b"y" + tail + head + first + tail + head + second + tail + DONE
        for pieces in ([data], [data[: 2 * len(head + b"x" + tail)], data[2 * len(head + b"x" + tail) :]]):
            same(read(pieces), plain(data))
            assert "😀" not in said_by_events(read(pieces).events).text[0]


def test_the_text_may_hold_the_form_of_its_own_chunk() -> None:
    inner = event(text("x")).decode()
    words = ["a", "b", inner, '"}}]', inner[6:-2], "\\", '\\"}', "data: [DONE]\n\n", '"content":"']
    data = stream(*map(text, words), chunk({}, "stop"))
    for pieces in ([data], bytes_of(data), [data[:300], data[300:]]):
        assert said_by_events(read(pieces).events).text == {0: "".join(words)}
        assert read(pieces).written() == data


BESIDE: dict[str, Json] = {
    "the same reasoning in two fields": {"reasoning": "-"},
    "token ids": {"token_ids": [7]},
    "a list that goes on": {"annotations": [{"type": "x"}]},
    "a text that goes on": {"thought_signature": "s"},
}


@pytest.mark.parametrize("beside", BESIDE.values(), ids=BESIDE)
def test_equal_chunks_are_added_up_as_often_as_they_came(beside: Json) -> None:
    """A whole answer joins texts and lists, so what stands beside the text counts once for each chunk."""
    data = stream(*[chunk({"reasoning_content": "-", **beside})] * 6, chunk({}, "stop"))
    assert read(data).whole() == plain(data).whole()
    data = stream(*[chunk({"content": "-", **beside})] * 6, chunk({}, "stop"))
    assert read(data).whole() == plain(data).whole()


def test_equal_logprobs_are_added_up_as_often_as_they_came() -> None:
    value = chunk({"reasoning_content": "-"})
    value["choices"][0]["logprobs"] = {"content": [{"token": "-", "logprob": -0.5}]}
    data = stream(*[value] * 6, chunk({}, "stop"))
    assert read(data).whole() == plain(data).whole()


@given(st.data(), st.lists(st.tuples(st.integers(0, 5), WORDS), max_size=16))
def test_an_envelope_that_varies_is_no_run_but_says_the_same(
    draws: st.DataObject, parts: list[tuple[int, str]]
) -> None:
    def vary(kind: int, words: str) -> Json:
        value = text(words, kind % 3)
        if kind == 3:
            value = {**text(words), "created": 1700000001}
        elif kind == 4:
            value = chunk({"content": words, "reasoning": words})
        elif kind == 5:
            value = chunk({"content": words}, usage={"completion_tokens": 1})
        return value

    data = stream(text("a"), text("b"), *(vary(*part) for part in parts), chunk({}, "stop"))
    expected = plain(data)
    for pieces in ([data], cut(data, draws.draw(cuttings(len(data))))):
        same(read(pieces), expected)


def test_a_run_goes_out_as_the_bytes_it_came_in() -> None:
    one = event(text("é\\")) * 50
    reader = StreamReader()
    reader.feed(event(text("a")) * 2)
    burst = reader.feed(one)
    assert [frame.wire for frame in burst.frames] == [one]
    assert json.loads(burst.frames[0].data) == text("é\\" * 50)


def test_a_run_of_empty_texts_says_nothing_and_still_passes() -> None:
    reader = StreamReader()
    reader.feed(event(text("a")) * 2)
    burst = reader.feed(event(text("")) * 5)
    assert not burst.says_something()
    assert [frame.wire for frame in burst.frames] == [event(text("")) * 5]


@pytest.mark.parametrize(
    "before", [b": ", b"data: ", b"data", b"x: ", b"event: error\n", b"event: x\n", b"data: [1,\n"]
)
def test_a_form_in_the_middle_of_an_event_is_no_run(before: bytes) -> None:
    """A read may begin with the very bytes of a chunk, and continue something else."""
    known = event(text("a")) * 3
    data = known + before + event(text("b")) + stream(text("c"), chunk({}, "stop"))
    for pieces in ([known + before, data[len(known + before) :]], [known, before, data[len(known + before) :]]):
        same(read(pieces), plain(data))


def test_what_follows_a_run_in_the_same_read_is_read_too() -> None:
    reader = StreamReader()
    reader.feed(event(text("a")) * 2)
    seen = Read([reader.feed(stream(text("b"), text("c"), chunk({}, "length")))])
    assert said_by_events(seen.events).finish == {0: ["length"]}
    assert said_by_events(seen.events).text == {0: "bc"}


def test_a_form_that_never_comes_again_is_not_looked_for_for_ever() -> None:
    reader = StreamReader()
    for number in range(20):
        reader.feed(event({**text("a"), "created": number}))
    form = reader._runs.run
    reader.feed(event({**text("a"), "created": 20}))
    assert reader._runs.run is form
    assert said_by_events(reader.feed(event(text("b"))).frames[0].events).text == {0: "b"}


def test_a_text_is_not_mistaken_where_its_key_is_there_twice() -> None:
    for odd in (
        {**ENVELOPE, "x": {"content": "a"}, "choices": [{"index": 0, "delta": {"content": "a"}}]},
        {**ENVELOPE, "choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": {"content": "a"}}]},
    ):
        data = stream(odd, odd, odd, chunk({}, "stop"))
        assert not took_runs(read(data))
        same(read(data), plain(data))
