"""What a stream of tool calls can make the gateway remember, and how far it looks into their arguments."""

from __future__ import annotations

import pytest

from engine.dialects.chat.calls import MOST_ARGUMENTS, MOST_CALLS, ToolCalls, TooManyCalls
from engine.errors import Kind
from engine.events import Failed
from tests.pure.streams import DONE, called, chunk, read, said_by_events, said_to_client, stream

WITHOUT_ID = {"index": 0, "function": {"name": "f", "arguments": "{}"}}


def test_more_calls_than_any_answer_has_end_the_answer() -> None:
    def begin(number: int) -> object:
        return called(index=number, id=f"i{number}", type="function", function={"name": "f", "arguments": ""})

    assert read(stream(*map(begin, range(MOST_CALLS)))).written().endswith(DONE)
    end = read(stream(*map(begin, range(MOST_CALLS + 1)))).end
    assert isinstance(end, Failed)
    assert end.fault.kind is Kind.UPSTREAM_PROTOCOL
    end = read(stream(*[called(**WITHOUT_ID)] * (MOST_CALLS + 1))).end
    assert isinstance(end, Failed)


def test_the_call_that_is_too_many_is_not_placed() -> None:
    calls = ToolCalls()
    for number in range(MOST_CALLS):
        calls.place(number, f"i{number}", "f", "")
    with pytest.raises(TooManyCalls):
        calls.place(MOST_CALLS, "one more", "f", "")
    assert len(calls) == MOST_CALLS
    assert calls.place(5, None, None, "{}").call.id == "i5"


def test_arguments_without_end_arrive_and_are_not_kept() -> None:
    piece = "x" * 100_000
    begin = called(index=0, id="a", type="function", function={"name": "f", "arguments": '"'})
    more = [called(index=0, function={"arguments": piece})] * 12
    said = said_to_client(read(stream(begin, *more, chunk({}, "tool_calls"))).written())
    assert said.calls == {(0, 0): ["a", "f", '"' + piece * 12]}
    calls = ToolCalls()
    calls.place(0, "a", "f", "")
    for _ in range(12):
        call = calls.place(0, None, None, piece).call
        assert sum(map(len, call.pieces)) <= MOST_ARGUMENTS
    assert call.pieces == []


@pytest.mark.parametrize("deep", ["[" * 50_000 + "]" * 50_000, '{"a":' * 50_000 + "1" + "}" * 50_000])
def test_arguments_that_are_nested_deeply_are_no_crash(deep: str) -> None:
    """Without ids, whether a name begins another call depends on whether the arguments before it are whole."""
    first = {"function": {"name": "f", "arguments": deep}}
    for place in ({}, {"index": 0}):
        seen = read(stream(*[called(**place, **first)] * 2, chunk({}, "tool_calls")))
        assert "".join(call[2] for call in said_by_events(seen.events).calls.values()) == deep * 2
