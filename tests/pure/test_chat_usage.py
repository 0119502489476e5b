"""Token counts in a chat stream: said once, at the end, wherever and however often the server says them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.dialects.chat.reader import StreamReader
from engine.events import UsageReported
from tests.pure.streams import (
    DONE,
    ENVELOPE,
    PROMPT,
    Json,
    Read,
    chunk,
    event,
    events_of,
    read,
    recording,
    said_to_client,
    stream,
    text,
)

USAGE: Json = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
NO_USAGE = msgspec.structs.replace(PROMPT, wants_usage=False)


def usage_chunk(usage: object, **more: object) -> Json:
    return {**ENVELOPE, "choices": [], "usage": usage, **more}


def counted(seen: Read) -> list[UsageReported]:
    return [event for event in seen.events if isinstance(event, UsageReported)]


def counted_in(usage: object) -> UsageReported:
    (said,) = counted(read(stream(text("a"), chunk({}, "stop"), usage_chunk(usage))))
    return said


def test_a_usage_chunk_of_the_protocol_passes_untouched() -> None:
    data = stream(text("a"), chunk({}, "stop"), usage_chunk(USAGE, timings={"x": 1.50}))
    assert read(data).written() == data
    assert counted(read(data)) == [UsageReported(3, 2, 5)]


@pytest.mark.parametrize(
    "chunks",
    [
        [text("a"), chunk({}, "stop", usage=USAGE)],
        [text("a"), usage_chunk(USAGE), chunk({}, "stop")],
        [usage_chunk(USAGE), text("a"), chunk({}, "stop")],
        [chunk({"content": "a"}, usage=USAGE), chunk({}, "stop")],
        [chunk({"content": "a"}, "stop", usage=USAGE)],
        [chunk({"content": "a"}, usage={"completion_tokens": 1}), chunk({}, "stop", usage=USAGE)],
        [text("a"), chunk({}, "stop"), usage_chunk({"completion_tokens": 1}), usage_chunk(USAGE)],
        [text("a"), chunk({}, "stop"), {**ENVELOPE, "usage": USAGE}],
        [text("a"), chunk({}, "stop"), {**ENVELOPE, "choices": None, "usage": USAGE}],
    ],
)
def test_usage_in_an_odd_place_comes_once_and_last(chunks: list[Json]) -> None:
    seen = read(stream(*chunks))
    assert counted(seen) == [UsageReported(3, 2, 5)]
    last = events_of(seen.written())[-1]
    assert (last["choices"], last["usage"], last["id"]) == ([], USAGE, ENVELOPE["id"])
    assert [said for said in events_of(seen.written()) if said.get("usage")] == [last]
    assert said_to_client(seen.written()).text == {0: "a"}


@pytest.mark.parametrize("recorded", ["llamacpp-smollm2-n2.sse", "llamacpp-smollm2-text.sse"])
def test_real_servers_usage_is_one_chunk_at_the_end(recorded: str) -> None:
    written = events_of(read(recording(recorded)).written())
    assert [at for at, said in enumerate(written) if said.get("usage")] == [len(written) - 1]


def test_a_client_that_did_not_ask_gets_no_usage_chunk() -> None:
    data = stream(text("a"), chunk({}, "stop"), usage_chunk(USAGE))
    assert read(data).written(NO_USAGE) == stream(text("a"), chunk({}, "stop"))
    mixed = read(stream(chunk({"content": "a"}, "stop", usage=USAGE)))
    assert said_to_client(mixed.written(NO_USAGE)).usage == []
    assert said_to_client(mixed.written(NO_USAGE)).text == {0: "a"}


def test_a_whole_answer_has_usage_whether_asked_for_or_not() -> None:
    assert read(stream(text("a"), chunk({}, "stop", usage=USAGE))).whole()["usage"] == USAGE


def test_no_usage_is_not_zero_usage() -> None:
    seen = read(stream(chunk({"content": "a"}, usage=None), chunk({}, "stop")))
    assert counted(seen) == []
    assert "usage" not in seen.whole()
    assert counted_in({"prompt_tokens": 0, "completion_tokens": 2}) == UsageReported(0, 2, None)


def test_details_are_counted_where_they_are_said() -> None:
    details: Json = {
        "prompt_tokens_details": {"cached_tokens": 1, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 4},
    }
    assert counted_in(USAGE | details) == UsageReported(3, 2, 5, 1, 4)
    assert counted_in(USAGE | dict.fromkeys(details)) == UsageReported(3, 2, 5)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": "3", "completion_tokens": 2.0}, UsageReported(3, 2)),
        ({"prompt_tokens": None, "completion_tokens": 2}, UsageReported(None, 2)),
        ({"prompt_tokens": {"x": 1}}, UsageReported()),
        ("many", UsageReported()),
        ([1, 2], UsageReported()),
    ],
)
def test_counts_of_an_odd_type_never_end_the_stream(usage: Any, expected: UsageReported) -> None:
    seen = read(stream(text("a"), chunk({}, "stop"), usage_chunk(usage)))
    assert counted(seen) == [expected]
    assert seen.written().endswith(DONE)


def test_usage_is_not_said_when_the_answer_fails() -> None:
    seen = read(stream(text("a"), usage_chunk(USAGE), {"error": {"message": "no"}}))
    assert counted(seen) == []


def running(*usages: int) -> list[Json]:
    return [chunk({"content": "a"}, usage={"completion_tokens": count}) for count in usages]


def test_running_usage_stays_where_it_is_for_a_client_that_asked_for_it() -> None:
    data = stream(*running(1, 2), chunk({}, "stop", usage={"completion_tokens": 2}), usage_chunk(USAGE))
    seen = read(data, StreamReader(keep_running_usage=True))
    assert said_to_client(seen.written()).usage == [1, 2, 2, 2]
    assert said_to_client(seen.written()).text == {0: "aa"}
    assert counted(seen) == [UsageReported(3, 2, 5)]


def test_running_usage_becomes_one_usage_for_everybody_else() -> None:
    seen = read(stream(*running(1, 2), chunk({}, "stop")))
    assert said_to_client(seen.written()).usage == [2]
    assert said_to_client(read(b"".join(map(event, running(1, 2))) + DONE).written(NO_USAGE)).usage == []
