"""Tool calls in a chat stream: whatever a server leaves out or says twice, a client adds up whole calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.streams import (
    Json,
    Read,
    called,
    chunk,
    cut,
    cuttings,
    read,
    recording,
    said_by_events,
    said_to_client,
    stream,
    text,
)

Calls = list[list[str]]


def piece(arguments: object = "", **more: object) -> Json:
    """A delta of a call with a piece of its arguments; `name` goes where it belongs."""
    function = {"arguments": arguments} | ({"name": more.pop("name")} if "name" in more else {})
    return {**more, "function": function}


def begun(id_: str, name: str, arguments: object = "", **more: object) -> Json:
    return piece(arguments, id=id_, type="function", name=name, **more)


def answered(*pieces: Json, together: bool = False, finish: str = "tool_calls") -> Read:
    """The stream of these deltas, each in a chunk of its own or all in one."""
    chunks = [chunk({"tool_calls": list(pieces)})] if together else [called(**each) for each in pieces]
    return read(stream(*chunks, chunk({}, finish)))


def calls(seen: Read) -> Calls:
    """The calls as the client adds them up; the events must say the same."""
    to_client = said_to_client(seen.written()).calls
    assert said_by_events(seen.events).calls == to_client
    assert [call for _, call in to_client] == list(range(len(to_client)))
    whole = [
        [call["id"], call["function"]["name"], call["function"]["arguments"]]
        for call in seen.whole()["choices"][0]["message"].get("tool_calls", ())
    ]
    assert [call[1:] for call in whole] == [call[1:] for call in to_client.values()]
    return list(to_client.values())


A, B = ["a", "f", '{"x":1}'], ["b", "g", '{"y":2}']
A_REST, B_REST = (piece('{"x"'), piece(":1}")), (piece('{"y"'), piece(":2}"))


def at(index: int | None, *pieces: Json) -> list[Json]:
    return [{**each, "index": index} for each in pieces]


@pytest.mark.parametrize(
    "pieces",
    [
        [*at(0, begun("a", "f"), *A_REST), *at(1, begun("b", "g"), *B_REST)],
        [*at(0, begun("a", "f")), *at(1, begun("b", "g")), *at(0, A_REST[0]), *at(1, *B_REST), *at(0, A_REST[1])],
        [begun("a", "f"), *A_REST, begun("b", "g"), *B_REST],
        [*at(None, begun("a", "f"), *A_REST, begun("b", "g"), *B_REST)],
        [*at(0, begun("a", "f"), *A_REST, begun("b", "g"), *B_REST)],
        [*at(0, begun("a", "f", '{"x":1}'), begun("b", "g", '{"y":2}'))],
        [*at(1, begun("a", "f"), *A_REST), *at(2, begun("b", "g"), *B_REST)],
        [*at(7, begun("a", "f"), *A_REST), *at(3, begun("b", "g"), *B_REST)],
        [*at(0, begun("a", "f"), piece('{"x"', id=""), piece(":1}", id="")), *at(1, begun("b", "g"), *B_REST)],
        [*at(0, begun("a", "f"), piece('{"x"', id="null"), piece(":1}", id=None)), *at(1, begun("b", "g"), *B_REST)],
        [*at(0, begun("a", "f"), piece('{"x"', id="a"), piece(":1}", id="a")), *at(1, begun("b", "g"), *B_REST)],
        [*at(0, begun("a", "f"), *(begun("a", "f", p) for p in ('{"x"', ":1}"))), *at(1, begun("b", "g"), *B_REST)],
        [*at(0, begun("a", "f"), *(piece(p, name="f") for p in ('{"x"', ":1}"))), *at(1, begun("b", "g"), *B_REST)],
        [*at(0, begun("a", "f"), *(piece(p, name="") for p in ('{"x"', ":1}"))), *at(1, begun("b", "g"), *B_REST)],
        [*at(0, begun("a", "f", {"x": 1})), *at(1, begun("b", "g", {"y": 2}))],
        [*at(0, {"id": "a", "function": {"name": "f"}}, *A_REST), *at(1, begun("b", "g", None), *B_REST)],
        [begun("a", "f"), *at(0, *A_REST), begun("b", "g"), *at(1, *B_REST)],
    ],
    ids=[
        *("as the protocol has it", "alternating", "no index", "null for an index", "one index, two ids"),
        *("whole calls at one index", "indexes from one", "indexes with gaps", "empty ids", "the word null for an id"),
        *("the id in every delta", "id and name in every delta", "the name in every delta", "empty names"),
        *("arguments as an object", "no arguments at first", "an index only later"),
    ],
)
@pytest.mark.parametrize("together", [False, True], ids=["apart", "in one chunk"])
def test_two_calls_arrive_as_two_whole_calls(pieces: list[Json], together: bool) -> None:
    assert calls(answered(*pieces, together=together)) == [A, B]


@pytest.mark.parametrize(
    "pieces",
    [
        [piece("{}", name="f"), piece("{}", name="g")],
        [piece("", name="f"), piece("{}"), piece("{}", name="g")],
        at(0, piece("{}", name="f"), piece("{}", name="g")),
        [*at(0, piece("{}", name="f", id="")), *at(1, piece("{}", name="g", id=""))],
        [*at(0, piece("{}", name="f", id="None")), *at(1, piece("{}", name="g", id="None"))],
    ],
)
def test_calls_without_ids_get_one_each(pieces: list[Json]) -> None:
    seen = answered(*pieces)
    assert calls(seen) == [["made up", "f", "{}"], ["made up", "g", "{}"]]
    ids = [call["id"] for call in seen.whole()["choices"][0]["message"]["tool_calls"]]
    assert len(set(ids)) == 2


def test_the_same_function_twice_is_two_calls_once_the_first_is_whole() -> None:
    assert calls(answered(piece('{"x":1}', name="f"), piece('{"x":2}', name="f"))) == [
        ["made up", "f", '{"x":1}'],
        ["made up", "f", '{"x":2}'],
    ]


def test_one_id_at_two_indexes_with_two_names_is_two_calls() -> None:
    """Some servers number the calls, and give them all the same id."""
    seen = answered(*at(0, begun("a", "f", "{}")), *at(1, begun("a", "g", "{}")))
    assert [call[1:] for call in calls(seen)] == [["f", "{}"], ["g", "{}"]]
    assert len({call["id"] for call in seen.whole()["choices"][0]["message"]["tool_calls"]}) == 2


def test_an_id_that_comes_late_belongs_to_the_call_that_waits_for_it() -> None:
    seen = answered(*at(0, piece("", name="f"), piece("{}", id="a")))
    assert [call[1:] for call in calls(seen)] == [["f", "{}"]]


def test_an_id_that_came_late_tells_its_call_from_the_next() -> None:
    seen = answered(*at(0, piece("", name="f"), piece("", id="a"), begun("b", "g")))
    assert [call[1] for call in calls(seen)] == ["f", "g"]


def test_an_id_that_changes_in_every_delta_is_one_call_where_the_index_stays() -> None:
    seen = answered(*at(0, begun("a1", "f"), piece('{"x"', id="a2"), piece(":1}", id="a3")))
    assert calls(seen) == [["a1", "f", '{"x":1}']]


def test_a_name_that_comes_in_pieces_is_joined() -> None:
    assert calls(answered(*at(0, begun("a", "get_"), piece("", name="weather"), piece("{}")))) == [
        ["a", "get_weather", "{}"]
    ]


@pytest.mark.parametrize("finish", ["tool_calls", "stop", "length"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_call_in_the_same_chunk_as_the_finish_is_whole(finish: str, count: int) -> None:
    """As Gemini's and many other servers send it, and as any answer in one piece is taken apart."""
    pieces = [{**begun(id_, name, "{}"), "index": at} for at, (id_, name) in enumerate((("a", "f"), ("b", "g")))]
    seen = read(stream(chunk({"role": "assistant", "tool_calls": pieces[:count]}, finish)))
    assert calls(seen) == [["a", "f", "{}"], ["b", "g", "{}"]][:count]
    assert said_to_client(seen.written()).finish == {0: ["length" if finish == "length" else "tool_calls"]}


def test_the_last_piece_of_a_call_in_the_same_chunk_as_the_finish_is_said_once() -> None:
    last = chunk({"tool_calls": [{**piece(":1}"), "index": 0}]}, "tool_calls")
    seen = read(stream(*(called(**each) for each in at(0, begun("a", "f"), A_REST[0])), last))
    assert calls(seen) == [A]


def test_text_between_the_deltas_of_a_call_changes_nothing_in_it() -> None:
    first, second, third = at(0, begun("a", "f"), *A_REST)
    seen = read(stream(called(**first), text("so "), called(**second), text("so"), called(**third), chunk({}, "stop")))
    assert calls(seen) == [A]
    assert said_by_events(seen.events).text == {0: "so so"}


def test_text_and_a_call_in_one_chunk_are_both_said() -> None:
    delta = {"content": "so", "tool_calls": at(0, begun("a", "f", '{"x":1}'))}
    seen = read(stream(chunk(delta), chunk({}, "tool_calls")))
    assert (calls(seen), said_to_client(seen.written()).text) == ([A], {0: "so"})


def test_reasoning_and_a_call_in_one_chunk_are_both_said() -> None:
    for key in ("reasoning", "reasoning_content"):
        delta = {key: "so", "tool_calls": at(0, begun("a", "f", '{"x":1}'))}
        seen = read(stream(chunk(delta), chunk({}, "tool_calls")))
        assert said_by_events(seen.events) == said_to_client(seen.written())


def test_each_choice_counts_its_own_calls() -> None:
    chunks = [chunk({"tool_calls": at(0, begun(f"id{index}", "f", "{}"))}, index=index) for index in (0, 1)]
    seen = read(stream(*chunks, chunk({}, "tool_calls", 0), chunk({}, "tool_calls", 1)))
    assert said_to_client(seen.written()).calls == {(0, 0): ["id0", "f", "{}"], (1, 0): ["id1", "f", "{}"]}


def test_unknown_fields_of_a_call_survive_its_repair() -> None:
    seen = answered({**begun("a", "f", "{}"), "extra_content": {"signature": "s"}})
    assert seen.whole()["choices"][0]["message"]["tool_calls"][0]["extra_content"] == {"signature": "s"}


@pytest.mark.parametrize("said", [[], {}, "x", [None], [5]])
def test_tool_calls_that_are_none_are_left_out(said: object) -> None:
    seen = read(stream(chunk({"content": "a", "tool_calls": said}), chunk({}, "stop")))
    assert said_to_client(seen.written()).text == {0: "a"}
    assert said_to_client(seen.written()).finish == {0: ["stop"]}


def test_custom_calls_are_told_from_functions() -> None:
    begin = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "f", "input": "x"}}
    seen = read(stream(called(**begin), called(index=0, custom={"input": "y"}), chunk({}, "tool_calls")))
    call = seen.whole()["choices"][0]["message"]["tool_calls"][0]
    assert call == {"id": "a", "type": "custom", "custom": {"name": "f", "input": "xy"}}


def test_a_real_server_that_repeats_id_and_name_is_mended() -> None:
    seen = read(recording("llama-cpp-python-tool-named.sse"))
    ((id_, name, arguments),) = calls(seen)
    assert (name, json.loads(arguments)["city"]) == ("get_weather", "Paris")
    assert id_.count("call_") == 1


def test_a_legacy_function_call_has_its_name_once_when_added_up() -> None:
    message = read(recording("llama-cpp-python-tool-named.sse")).whole()["choices"][0]["message"]
    assert message["function_call"]["name"] == "get_weather"


INDEXES = st.sampled_from(["right", "zero", "none"])
REPEATS = st.sampled_from(["once", "id again", "all again"])


@given(st.data(), st.integers(1, 4), INDEXES, REPEATS, st.sampled_from(["stop", "tool_calls"]))
def test_no_cutting_and_no_habit_of_a_server_changes_the_calls(
    draws: st.DataObject, count: int, index: str, repeat: str, finish: str
) -> None:
    parts = st.lists(st.sampled_from(['"', "x", ",", "é", "\\"]), min_size=1, max_size=4)
    expected: Calls = []
    pieces: list[Json] = []
    for number in range(count):
        arguments = ['{"a":', *draws.draw(parts), "}"]
        expected.append([f"id{number}", f"f{number}", "".join(arguments)])
        habits: dict[str, Any] = {"id once": {}, "id again": {"id": f"id{number}"}}
        for at_piece, words in enumerate(arguments):
            again = (
                habits.get(repeat, {}) if at_piece else {"id": f"id{number}", "type": "function", "name": f"f{number}"}
            )
            if repeat == "all again":
                again = {"id": f"id{number}", "type": "function", "name": f"f{number}"}
            place = {"right": {"index": number}, "zero": {"index": 0}, "none": {}}[index]
            pieces.append(piece(words, **again, **place))
    data = stream(*(called(**each) for each in pieces), chunk({}, finish))
    seen = read(cut(data, draws.draw(cuttings(len(data)))))
    assert calls(seen) == expected
    assert said_to_client(seen.written()).finish == {0: ["tool_calls"]}
