"""One record a turn: a JSON line with everything but what was said."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any

import pytest

from engine.answers import Seen
from engine.errors import Fault, Kind
from engine.events import Burst, Completed, Failed, UsageReported
from server import journal
from server.journal import Blame, Journal, Record
from tests.pure.streams import called, chunk, read, stream, text

SECRET = "SECRET-WORDS"


def lines(*records: Record) -> list[dict[str, Any]]:
    """What these records look like when they are read back."""
    with tempfile.TemporaryFile() as file:
        kept = Journal(file.fileno())
        for record in records:
            kept.write(record)
        assert kept.flush()
        file.seek(0)
        return [json.loads(line) for line in file.read().splitlines()]


def test_a_record_is_one_line_with_all_its_fields() -> None:
    (record,) = lines(
        Record(at=1.5, id="req_1", model="a\nb", end="failed", fault=Blame("upstream", "upstream_timeout"))
    )
    assert record["model"] == "a\nb"
    assert record["fault"] == {"origin": "upstream", "kind": "upstream_timeout"}
    assert {"at", "id", "tenant", "dialect", "model", "upstream", "stream", "status", "end", "fault"} <= record.keys()
    assert {"finish", "usage", "bytes_in", "bytes_out", "bursts", "first_byte_ms", "ms"} <= record.keys()


def test_a_record_has_nothing_to_put_a_prompt_an_answer_or_a_key_into() -> None:
    fields = set(Record.__struct_fields__)
    assert not fields & {"prompt", "messages", "body", "text", "answer", "content", "key", "headers", "authorization"}


def test_nothing_of_an_answer_is_seen_but_how_it_ended_and_what_it_counted() -> None:
    begin = called(index=0, id="a", type="function", function={"name": SECRET, "arguments": SECRET})
    usage = {**chunk({}), "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "x": SECRET}}
    seen = Seen()
    for burst in read(stream(text(SECRET), begin, chunk({"content": SECRET}, "stop"), usage)).bursts:
        seen.look_at(burst)
    (record,) = lines(Record(at=0, id="x", finish=seen.finish, usage=seen.usage))
    assert seen.is_whole
    assert SECRET not in json.dumps(record)
    assert record["finish"] == ["stop"]
    assert (record["usage"]["prompt_tokens"], record["usage"]["completion_tokens"]) == (3, 2)


def test_a_server_s_own_word_for_the_end_is_kept_and_is_short() -> None:
    for said in ("eos", SECRET * 1000):
        seen = Seen()
        for burst in read(stream(chunk({}, said))).bursts:
            seen.look_at(burst)
        assert len(seen.finish[0]) < 200
        assert seen.finish[0].startswith(said[:10])


def test_a_failure_is_seen_as_its_fault() -> None:
    fault = Fault(Kind.UPSTREAM_TIMEOUT, "late")
    seen = Seen()
    seen.look_at(Burst(end=Failed(fault)))
    assert (seen.fault, seen.is_whole, seen.usage) == (fault, False, None)
    seen = Seen()
    seen.look_at(Burst(end=Completed()))
    assert (seen.fault, seen.is_whole) == (None, True)


def test_counts_that_were_not_said_are_null_and_not_zero() -> None:
    (record,) = lines(Record(at=0, id="x", usage=UsageReported(completion_tokens=2)))
    assert (record["usage"]["prompt_tokens"], record["usage"]["completion_tokens"]) == (None, 2)


def test_records_come_in_the_order_of_their_writing() -> None:
    assert [line["id"] for line in lines(*(Record(at=0, id=str(number)) for number in range(20)))] == [
        str(number) for number in range(20)
    ]


def test_what_waits_is_bounded_and_what_is_lost_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MOST_WAITING", 5)
    kept = Journal(-1)
    for number in range(8):
        kept.write(Record(at=0, id=str(number)))
    assert (len(kept._waiting), kept.lost) == (5, 3)
    assert [json.loads(line)["id"] for line in kept._waiting] == ["3", "4", "5", "6", "7"]


def test_a_reader_that_is_gone_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    kept = Journal(writing)
    kept.write(Record(at=0, id="x"))
    assert kept.flush() is False
    os.close(writing)
