"""The judge of the cases, judged: what it derives from bytes, what its operations hold to be true."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases import capabilities, plan
from tests.cases.observation import MISSING, derive, evaluate, get, paths_of
from tests.cases.requests import requests_of, substituted
from tests.cases.script import Generator, Script, framed
from tests.cases.wire import MessageReader

CASES = Path(__file__).parents[1] / "cases"


def streamed(dialect: str, *events: str, ending: str = "\n\n") -> dict[str, Any]:
    body = "\n\n".join(events) + ending
    client = {"status": 200, "headers": {"content-type": "text/event-stream"}, "body": body.encode()}
    return derive(dialect, {"client": client})


def chat_event(delta: dict[str, Any], finish: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return "data: " + json.dumps({"id": "c", "choices": [choice]})


def call_piece(**piece: Any) -> dict[str, Any]:
    return {"tool_calls": [piece]}


def named(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: " + json.dumps({"type": kind, **fields})


def test_tool_calls_are_added_up_so_that_a_repeated_id_shows() -> None:
    first = call_piece(index=0, id="call_a", function={"name": "f", "arguments": '{"a"'})
    again = call_piece(index=0, id="call_a", function={"arguments": ":1}"})
    calls = streamed("openai-chat", chat_event(first), chat_event(again))["chat"]["tool_calls"]
    assert calls == [
        {"index": 0, "id": "call_acall_a", "type": None, "name": "f", "arguments": '{"a":1}'},
    ]


def test_an_event_without_its_blank_line_is_not_an_event() -> None:
    seen = streamed("openai-chat", chat_event({"content": "a"}), chat_event({"content": "b"}), ending="")
    assert seen["chat"]["text"] == "a"


def test_events_after_done_are_counted() -> None:
    seen = streamed("openai-chat", "data: [DONE]", ": late", chat_event({"content": "x"}), "data: nonsense")
    assert (seen["sse"]["done"], seen["sse"]["after_done"]) == (1, 2)
    assert (seen["sse"]["comments"], seen["sse"]["bad_json"]) == (1, 1)


def test_an_anthropic_delta_outside_its_block_is_unlawful() -> None:
    delta = named("content_block_delta", index=0, delta={"type": "text_delta", "text": "x"})
    seen = streamed("anthropic-messages", named("message_start", message={}), delta, named("message_stop"))
    assert seen["anthropic"]["lifecycle_ok"] is False
    assert "content_block_delta for block 0 that is not open" in seen["anthropic"]["lifecycle"]


def test_a_gap_in_the_sequence_numbers_is_unlawful() -> None:
    done: dict[str, Any] = {"object": "response", "status": "completed", "output": []}
    first = named("response.created", sequence_number=0)
    for number, lawful in ((1, True), (2, False)):
        last = named("response.completed", sequence_number=number, response=done)
        assert streamed("openai-responses", first, last)["responses"]["lifecycle_ok"] is lawful


@pytest.mark.parametrize(
    ("op", "seen", "value", "holds"),
    [
        ("eq", None, None, True),
        ("eq", MISSING, None, False),
        ("ne", MISSING, 1, True),
        ("absent", MISSING, None, True),
        ("absent", None, None, True),
        ("present", None, None, False),
        ("le", None, 1000, False),
        ("le", 999.5, 1000, True),
        ("len", "abc", 3, True),
        ("len", 3, 3, False),
        ("not_contains", MISSING, "a", True),
        ("matches", "Traceback (most", "Traceback", True),
        ("not_matches", MISSING, ".", True),
        ("json_eq", '{"a": 1}', {"a": 1}, True),
        ("json_eq", "{", {}, False),
        ("subseq", ["a", "b", "c"], ["a", "c"], True),
        ("subseq", ["c", "a"], ["a", "c"], False),
        ("count", ["a", "b", "a"], {"item": "a", "n": 2}, True),
        ("type", "", "string", True),
        ("type", MISSING, "object", False),
    ],
)
def test_an_operation_holds_for_what_it_says(op: str, seen: Any, value: Any, holds: bool) -> None:
    observation = {} if seen is MISSING else {"it": seen}
    check = {"path": "it", "op": op, "value": value}
    assert evaluate(check, observation) is holds
    assert evaluate({"not": check}, observation) is not holds
    assert evaluate({"all": [check, check]}, observation) is holds
    assert evaluate({"any": [check, {"path": "no", "op": "present"}]}, observation) is holds


def test_same_as_never_holds_against_nothing() -> None:
    check = {"path": "a", "op": "eq", "same_as": "b"}
    assert evaluate(check, {"a": 1, "b": 1})
    assert not evaluate(check, {})
    assert set(paths_of({"any": [check, {"not": {"path": "c.0", "op": "truthy"}}]})) == {"a", "b", "c.0"}


def test_a_path_counts_lists_from_both_ends() -> None:
    assert get({"a": [{"b": 1}, {"b": 2}]}, "a.-1.b") == 2
    assert get({"a": []}, "a.0") is MISSING


@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_a_message_is_the_same_however_it_is_cut(cut: int) -> None:
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + framed(b"Hello") + b"0\r\n\r\n"
    reader = MessageReader(is_response=True)
    body = b"".join(reader.feed(raw[at : at + cut]) for at in range(0, len(raw), cut))
    assert (body, reader.is_complete, reader.is_lawful) == (b"Hello", True, True)


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{} trailing",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n{}",
    ],
)
def test_a_wrongly_framed_response_is_unlawful(raw: bytes) -> None:
    reader = MessageReader(is_response=True)
    reader.feed(raw)
    reader.end()
    assert not reader.is_lawful


def test_a_generator_makes_writes_of_exactly_its_size() -> None:
    generator = Generator(prefix=b"<", repeated=b"abc", count=5, suffix=b">", write_size=4)
    writes = list(generator.writes())
    assert b"".join(writes) == b"<" + b"abc" * 5 + b">"
    assert [len(write) for write in writes] == [4, 4, 4, 4, 1]


def test_a_whole_answer_says_its_length_and_a_stream_is_chunked() -> None:
    assert b"content-length: 2\r\n" in Script.of({"status": 200, "headers": {}, "body_b64": "e30="}).head()
    assert Script.of({"status": 200, "headers": {}, "chunks_b64": [], "delays_ms": []}).is_chunked


def test_a_sequence_changes_key_and_size_as_its_words_say() -> None:
    headers = {"authorization": "Bearer good"}
    words = ["stream", "non-stream with an unread 64 KiB body refused by 401"]
    spec = {"path": "/v1/x", "headers": headers, "json": {"model": "m"}, "sequence": words}
    first, second = requests_of(spec)
    assert b"Bearer good" in first.head
    assert b"Bearer good" not in second.head
    assert len(second.body) > 65536
    assert (first.wants_answer_with, second.wants_answer_with) == (200, 401)


def test_placeholders_are_filled_in_at_any_depth_and_strangers_left_alone() -> None:
    spec = {"path": "/v1/{{rid}}", "json": [{"a": "{{rid}} {{other}}"}]}
    assert substituted(spec, {"rid": "r1"}) == {"path": "/v1/r1", "json": [{"a": "r1 {{other}}"}]}


def test_every_case_of_the_folder_can_be_read() -> None:
    entries = plan.load(CASES)
    assert len({entry.case for entry in entries}) == len(list(CASES.glob("*.json")))
    assert len({entry.name for entry in entries}) == len(entries)


def test_what_cannot_be_played_is_not_run_for_a_reason_of_its_own() -> None:
    (entry,) = plan.entries_of(minimal_case())
    assert capabilities.why_not(entry) is None
    assert_not_run("upstream dialect grpc is not spoken yet", upstream_dialect="grpc")
    assert_not_run("the runner does not understand: client action dance", client_action={"type": "dance"})
    assert_not_run("setting colour is not there yet", config={"colour": "red"})
    assert_not_run("no sentence of it has a check", expect=[{"say": "All is well."}])
    unseen = {"say": "Calm.", "check": {"path": "gateway.mood", "op": "absent"}}
    assert_not_run("the runner does not observe gateway.mood", expect=[unseen])


def test_a_file_that_is_no_case_is_counted_as_not_run(tmp_path: Path) -> None:
    (tmp_path / "001-odd.json").write_text('{"id": "001-odd", "steps": 5}')
    (entry,) = plan.load(tmp_path)
    assert str(capabilities.why_not(entry)).startswith("the file cannot be read as a case: TypeError")


def minimal_case() -> dict[str, Any]:
    return {
        "id": "000-minimal",
        "client_dialect": "openai-chat",
        "upstream_dialect": "none",
        "client_request": {"method": "POST", "path": "/v1/chat/completions", "headers": {}, "json": {}},
        "expect": [{"say": "Fine.", "check": {"path": "client.status", "op": "eq", "value": 200}}],
    }


def assert_not_run(reason: str, **changes: Any) -> None:
    (entry,) = plan.entries_of({**minimal_case(), **changes})
    assert capabilities.why_not(entry) == reason
