"""Simulated answers: the script in a model's name or message, and the bytes that it stands for."""

from __future__ import annotations

from itertools import islice
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import Kind, TurnError
from engine.prompt import Prompt
from engine.upstreams.script import CREATED, DEFAULT_TEXT, CutHere, Script, Step, parse_script, script_of, steps
from tests.pure.streams import DONE, Json, events_of, read, said_by_events

PROMPT = Prompt("chat", "simulated", b"{}", wants_usage=True, last_words="hello")


def played(text: str = "", prompt: Prompt = PROMPT) -> list[Step]:
    return list(steps(parse_script(text, "model"), prompt))


def sent(text: str = "", prompt: Prompt = PROMPT) -> bytes:
    return b"".join(step.data for step in played(text, prompt))


def until_cut(text: str) -> tuple[bytes, bool]:
    """What goes out before a scripted cut, and whether the cut is a reset."""
    data = b""
    try:
        for step in steps(parse_script(text, "model"), PROMPT):
            data += step.data
    except CutHere as cut:
        return data, cut.reset
    raise AssertionError("it was not cut")


def deltas(data: bytes) -> list[Json]:
    return [event["choices"][0]["delta"] for event in events_of(data) if event.get("choices")]


def refused_word(text: str) -> tuple[str | None, str]:
    with pytest.raises(TurnError) as caught:
        parse_script(text, "model")
    assert caught.value.fault.kind is Kind.BAD_REQUEST
    return caught.value.fault.param, caught.value.fault.message


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", {}),
        ("chunks=64", {"chunks": 64}),
        ("chunks=0", {"chunks": 0}),
        ("size=8", {"size": 8}),
        ("pace=0.01", {"pace": 0.01}),
        ("pace=2", {"pace": 2.0}),
        ("burst=16", {"burst": 16}),
        ("burst=0", {"burst": 1}),
        ("delay=1.5", {"delay": 1.5}),
        ("tools=2", {"tools": 2}),
        ("reasoning=4", {"reasoning": 4}),
        ("usage=0", {"usage": False}),
        ("usage=1", {"usage": True}),
        ("endless", {"endless": True}),
        ("nofinish", {"nofinish": True}),
        ("nodone", {"nodone": True}),
        ("seed=7", {"seed": 7}),
        ("stall=30@5", {"stall": (30.0, 5)}),
        ("cut@5", {"cut": 5}),
        ("reset@0", {"reset": 0}),
        ("error=503", {"error": (503, None)}),
        ("error=503@5", {"error": (503, 5)}),
        (" chunks=2 , ,nodone,", {"chunks": 2, "nodone": True}),
        ("chunks=2,chunks=3", {"chunks": 3}),
    ],
)
def test_each_word_is_understood(text: str, fields: dict[str, Any]) -> None:
    assert parse_script(text, "model") == Script(**fields)


@pytest.mark.parametrize(
    "word",
    [
        *(
            "nonsense",
            "chunks",
            "chunks=x",
            "chunks=1.5",
            "chunks@5",
            "endless=1",
            "endless@3",
            "nodone=1",
            "cut",
            "cut=5",
        ),
        *("cut@x", "stall=5", "stall@5", "stall=x@5", "error", "error=x", "error=503@x", "pace", "pace=fast", "usage"),
    ],
)
def test_a_word_that_is_not_understood_is_named(word: str) -> None:
    param, message = refused_word(f"chunks=3,{word}")
    assert param == "model"
    assert f"`{word}`" in message
    assert "stall=S@N" in message


@pytest.mark.parametrize(
    "word", ["pace=-1", "pace=nan", "delay=-0.5", "delay=nan", "stall=-1@2", "stall=nan@2", "error=0"]
)
def test_a_number_that_cannot_be_played_is_refused(word: str) -> None:
    assert f"`{word}`" in refused_word(word)[1]


@pytest.mark.parametrize("word", ["error=200", "error=99", "error=600", "error=99999"])
def test_an_error_has_the_status_of_one(word: str) -> None:
    assert f"`{word}`" in refused_word(word)[1]


@pytest.mark.parametrize("word", ["burst=1000000000", "size=1000000000000"])
def test_no_script_makes_the_process_hold_more_than_a_write_can(word: str) -> None:
    """The simulated upstream is part of the gateway: one request must not stop the others."""
    try:
        script = parse_script("endless," + word, "model")
    except TurnError:
        return
    assert script.burst * max(script.size, 200) <= 64 * 1024 * 1024


def test_more_choices_than_anybody_may_ask_for_are_not_simulated() -> None:
    with pytest.raises(TurnError, match="`n`"):
        script_of(msgspec.structs.replace(PROMPT, choices=129))
    most = msgspec.structs.replace(PROMPT, choices=128)
    assert len(next(steps(Script(size=65536, burst=1024), most)).data) < 32 * 1024 * 1024


def test_the_script_stands_behind_the_model_s_name_or_in_the_last_message() -> None:
    named = msgspec.structs.replace(PROMPT, model="simulated/chunks=3,nodone")
    assert script_of(named) == Script(chunks=3, nodone=True)
    assert script_of(PROMPT) == Script()
    spoken = msgspec.structs.replace(named, last_words="/simulate chunks=5 ")
    assert script_of(spoken) == Script(chunks=5)
    with pytest.raises(TurnError) as caught:
        script_of(msgspec.structs.replace(PROMPT, last_words="/simulate nonsense"))
    assert caught.value.fault.param == "messages"


def test_by_default_it_is_a_short_text_in_eight_chunks() -> None:
    said = said_by_events(read(sent()).events)
    assert said.text == {0: "".join(DEFAULT_TEXT)}
    assert said.finish == {0: ["stop"]}
    assert said.usage == [8]
    assert len(played()) == len(DEFAULT_TEXT) + 3
    assert sent().endswith(DONE)


def test_what_it_sends_is_in_good_form() -> None:
    data = sent("chunks=5,size=9,tools=2,reasoning=2")
    assert read(data).written() == data


@given(st.integers(0, 5), st.integers(0, 20), st.integers(0, 2), st.integers(0, 9), st.integers(1, 4))
def test_the_same_script_is_the_same_bytes(chunks: int, size: int, tools: int, seed: int, burst: int) -> None:
    script = f"chunks={chunks},size={size},tools={tools},seed={seed},burst={burst}"
    assert played(script) == played(script)
    assert sent(script) == sent(script + ",burst=1,pace=3"), "how it is sent changes nothing of what is sent"


def test_another_seed_is_another_answer() -> None:
    texts = [said_by_events(read(sent(f"chunks=20,seed={seed}")).events).text[0] for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert events_of(sent("seed=3"))[0]["created"] == CREATED


def test_each_word_does_what_it_says() -> None:
    assert len(deltas(sent("chunks=3"))) == 3 + 1
    assert [len(each["content"].encode()) for each in deltas(sent("chunks=3,size=17"))[:3]] == [17] * 3
    assert [step.chunks for step in played("chunks=5,burst=4,nodone,usage=0")] == [4, 2]
    assert [step.pause for step in played("chunks=3,pace=2,delay=7,nofinish,nodone,usage=0")] == [7, 2, 2]
    assert [step.pause for step in played("chunks=3,stall=30@2,nofinish,nodone,usage=0")] == [0, 0, 30]
    assert [step.pause for step in played("chunks=3,stall=30@0,delay=1,nofinish,nodone,usage=0")] == [31, 0, 0]
    assert not sent("nodone").endswith(DONE)
    assert said_by_events(read(sent("nofinish,nodone")).events).finish == {}
    assert b'"usage"' not in sent("usage=0")
    assert b'"usage"' not in sent("", msgspec.structs.replace(PROMPT, wants_usage=False))


def test_tools_and_reasoning_come_after_and_before_the_text() -> None:
    said = said_by_events(read(sent("chunks=1,tools=2,reasoning=3,seed=5")).events)
    assert said.calls == {
        (0, 0): ["call_5_0", "tool_0", '{"number":0}'],
        (0, 1): ["call_5_1", "tool_1", '{"number":1}'],
    }
    assert len(said.reasoning[0].split()) == 3
    assert said.finish == {0: ["tool_calls"]}


def test_a_cut_comes_before_its_chunk_and_says_which_kind() -> None:
    for word, reset in (("cut", False), ("reset", True)):
        data, was_reset = until_cut(f"chunks=8,burst=4,{word}@5")
        assert (len(deltas(data)), was_reset) == (5, reset)
        assert until_cut(f"{word}@0") == (b"", reset)


def test_a_stall_lets_out_what_came_before_it() -> None:
    first, second = islice(steps(parse_script("chunks=8,burst=100,stall=30@5", "model"), PROMPT), 2)
    assert (first.chunks, first.pause) == (5, 0)
    assert second.pause == 30


def test_an_error_in_the_stream_is_its_last_event() -> None:
    data = sent("chunks=8,error=503@5")
    assert len(deltas(data)) == 5
    assert events_of(data)[-1]["error"]["code"] == 503
    assert DONE not in data


def test_endless_does_not_end() -> None:
    some = list(islice(steps(parse_script("endless,chunks=1", "model"), PROMPT), 500))
    assert sum(step.chunks for step in some) == 500


def test_choices_and_the_token_limit_are_honoured() -> None:
    two = msgspec.structs.replace(PROMPT, choices=2, token_limit=3)
    said = said_by_events(read(sent("", two)).events)
    assert said.text == {0: "".join(DEFAULT_TEXT[:3]), 1: "".join(DEFAULT_TEXT[:3])}
    assert said.finish == {0: ["length"], 1: ["length"]}
    assert said.usage == [6]
