"""What a chat client is sent: each burst's events, one end mark, and nothing that looks like success after an error."""

from __future__ import annotations

import json

import msgspec

from engine.dialects.chat.writer import StreamWriter, WholeWriter
from engine.errors import Fault, Kind
from engine.events import Burst, Completed, Failed, Finished, FinishReason, Frame, TextDelta, UsageReported
from tests.pure.streams import DONE, PROMPT, chunk, event, text

ONE = Frame(json.dumps(text("a")).encode(), (TextDelta(0, "a"),))
USAGE = Frame(b'{"choices":[],"usage":{}}', (UsageReported(),))


def test_a_frame_is_one_event() -> None:
    assert StreamWriter(PROMPT).encode(Burst((Frame(b'{"a":1}'),))) == b'data: {"a":1}\n\n'


def test_a_frame_with_a_name_keeps_it() -> None:
    assert StreamWriter(PROMPT).encode(Burst((Frame(b"{}", name=b"ping"),))) == b"event: ping\ndata: {}\n\n"


def test_the_bytes_that_came_go_out_where_there_are_any() -> None:
    wire = event(text("a")) * 2
    assert StreamWriter(PROMPT).encode(Burst((Frame(b"joined", wire=wire),))) == wire


def test_all_frames_of_a_burst_are_one_write() -> None:
    assert StreamWriter(PROMPT).encode(Burst((Frame(b"1"), Frame(b"2")))) == b"data: 1\n\ndata: 2\n\n"
    assert StreamWriter(PROMPT).encode(Burst()) == b""


def test_a_whole_answer_ends_with_done_in_the_write_of_its_last_frames() -> None:
    assert StreamWriter(PROMPT).encode(Burst((Frame(b"1"),), Completed())) == b"data: 1\n\n" + DONE


def test_an_error_is_the_last_thing_said_and_done_is_not() -> None:
    fault = Fault(Kind.UPSTREAM_TRUNCATED, "broke off")
    written = StreamWriter(PROMPT).encode(Burst((Frame(b"1"),), Failed(fault)))
    first, last = written.removesuffix(b"\n\n").split(b"\n\n")
    assert first == b"data: 1"
    assert json.loads(last.removeprefix(b"data: ")) == {
        "error": {"message": "broke off", "type": "server_error", "param": None, "code": "upstream_truncated"}
    }
    assert DONE not in written


def test_usage_has_a_frame_of_its_own_that_only_a_client_gets_who_asked() -> None:
    burst = Burst((ONE, USAGE), Completed())
    with_usage = StreamWriter(PROMPT).encode(burst)
    without = StreamWriter(msgspec.structs.replace(PROMPT, wants_usage=False)).encode(burst)
    assert with_usage == without.removesuffix(DONE) + b"data: " + USAGE.data + b"\n\n" + DONE


def test_the_keep_alive_is_a_comment() -> None:
    assert StreamWriter.keep_alive.startswith(b":")
    assert StreamWriter.keep_alive.endswith(b"\n\n")


def test_the_content_types_are_those_of_the_protocol() -> None:
    assert StreamWriter.content_type.startswith(b"text/event-stream")
    assert WholeWriter.content_type == b"application/json"


def test_a_whole_answer_is_one_document_of_all_bursts() -> None:
    writer = WholeWriter(PROMPT)
    writer.add(Burst((ONE,)))
    writer.add(Burst((ONE, Frame(json.dumps(chunk({}, "stop")).encode(), (Finished(0, FinishReason.STOP),)))))
    whole = json.loads(writer.result())
    assert whole["object"] == "chat.completion"
    assert whole["choices"][0]["message"]["content"] == "aa"
    assert whole["choices"][0]["finish_reason"] == "stop"


def test_an_answer_of_nothing_is_a_document_without_choices() -> None:
    assert json.loads(WholeWriter(PROMPT).result())["choices"] == []
