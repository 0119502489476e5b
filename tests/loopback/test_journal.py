"""One record a turn, whatever its exit; numbers and names, and never a prompt, an answer or a key."""

from __future__ import annotations

import json
import os
import time

import pytest
import trio

from engine.upstreams.routing import Choice, FirstThatAnswers
from server.auth import hash_key
from server.journal import Journal, Record
from tests.helpers import chat
from tests.helpers.gateway import Json, Running, connected_to, gateway
from tests.helpers.outcome import beside
from tests.helpers.pipes import fill, written
from tests.helpers.turns import ScriptedUpstream, Step, say
from tests.helpers.upstream import Accepted, upstream

SECRET = "xyzzy"


async def record_of(running: Running, model: str, *headers: str, stream: bool = True, **fields: object) -> Json:
    await running.chatted(model, *headers, stream=stream, **fields)
    return await running.journal.record()


async def test_a_completed_turn_is_recorded_with_its_numbers() -> None:
    async with gateway() as running, connected_to(running.port) as client:
        began = time.time()
        answer = await client.chatted("simulated/chunks=3,burst=2")
        record = await running.journal.record()
        assert record["id"] == answer.headers["x-request-id"]
        assert began - 1 <= record["at"] <= time.time() + 1
        assert (record["tenant"], record["dialect"], record["stream"]) == ("anybody", "chat", True)
        assert (record["model"], record["upstream"]) == ("simulated/chunks=3,burst=2", ["simulated"])
        assert (record["status"], record["end"], record["fault"]) == (200, "completed", None)
        assert record["finish"] == ["stop"]
        assert record["usage"]["completion_tokens"] == 3
        assert record["bytes_in"] == len(chat.body("simulated/chunks=3,burst=2"))
        assert record["bytes_out"] > len(answer.body)
        assert record["bursts"] >= 2
        assert 0 < record["first_byte_ms"] <= record["ms"]


async def test_usage_that_the_upstream_does_not_give_is_not_made_up() -> None:
    async def without_usage(peer: Accepted) -> None:
        await peer.request()
        await peer.stream(chat.text("a"))
        await peer.finish()

    async with upstream(without_usage) as server, gateway(server.setting) as running:
        assert (await record_of(running, "m"))["usage"] is None


ENDS = {
    "simulated": (200, "completed", None),
    "simulated/error=429": (429, "failed", "upstream_rate_limit"),
    "simulated/cut@2": (200, "failed", "upstream_truncated"),
    "simulated/error=500@2": (200, "failed", "upstream_failed"),
    "simulated/cut@0": (502, "failed", "upstream_truncated"),
    "simulated/nonsense": (400, "refused", "bad_request"),
    "unknown": (404, "refused", "unknown_model"),
}


@pytest.mark.parametrize("model", ENDS)
async def test_how_a_turn_ended_and_whose_fault_it_was_is_recorded(model: str) -> None:
    async with gateway() as running:
        record = await record_of(running, model)
        fault = record["fault"]
        assert (record["status"], record["end"], fault and fault["kind"]) == ENDS[model]


async def test_every_turn_has_one_record_and_nothing_else_has_any() -> None:
    async with gateway() as running, connected_to(running.port) as client:
        for line in ("GET /health", "GET /v1/models", "GET /v1/chat/completions", "POST /nothing"):
            await client.ask(f"{line} HTTP/1.1")
        for model in ("simulated", "simulated/error=500", "unknown"):
            await client.chatted(model)
        for path in ("/v1/responses", "/v1/messages"):
            await client.ask(f"POST {path} HTTP/1.1", body=b"{}")
        dialects = [(await running.journal.record())["dialect"] for _ in range(5)]
        assert dialects == ["chat", "chat", "chat", "responses", "messages"]
    assert len(running.journal.lines) == 5


async def test_no_record_has_a_prompt_an_answer_or_a_key() -> None:
    tenants = f'tenants=[{{name="a",keys=["sha256:{hash_key(SECRET).hex()}"]}}]'
    messages = [{"role": "user", "content": SECRET}, {"role": "assistant", "content": SECRET}]

    async def says_it(peer: Accepted) -> None:
        await peer.request()
        await peer.stream(chat.text(SECRET), b'data: {"error":{"message":"' + SECRET.encode() + b'"}}\n\n')

    async with upstream(says_it) as server, gateway(server.setting, tenants) as running:
        for key in (f"Authorization: Bearer {SECRET}", f"x-api-key: not-{SECRET}"):
            for stream in (True, False):
                await running.chatted("m", key, stream=stream, messages=messages, user=SECRET)
                await running.journal.record()
        assert len(running.journal.lines) == 4
        assert SECRET not in "".join(running.journal.lines)
        assert hash_key(SECRET).hex() not in "".join(running.journal.lines)


async def test_a_line_is_short_however_long_the_names_in_it() -> None:
    """Waiting lines are counted and not measured; a client chooses the model's name, up to the size of a body."""
    async with gateway() as running:
        name = "m" * 100_000
        record = await record_of(running, name)
        assert name.startswith(record["model"])
        assert len(running.journal.lines[0]) < 1000


BUGGY: dict[str, list[Step]] = {"before": [RuntimeError("bug")], "after": [say("{}"), RuntimeError("bug")]}


@pytest.mark.parametrize("when", BUGGY)
async def test_a_bug_of_our_own_fails_one_turn_and_is_recorded_as_one(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def route(*_: object) -> FirstThatAnswers:
        return FirstThatAnswers([Choice("buggy", lambda: ScriptedUpstream(BUGGY[when]))])

    async with gateway() as running, connected_to(running.port) as client, connected_to(running.port) as other:
        monkeypatch.setattr(running.gateway._models, "route", route)
        await client.chat()
        assert (await client.head()).status == (500 if when == "before" else 200)
        record = await running.journal.record()
        assert (record["end"], record["fault"]) == ("failed", {"origin": "gateway", "kind": "internal"})
        assert (await other.ask()).status == 200


# The journal itself: a pipe or a disk can block, and a turn must not


async def test_lines_are_written_in_order_and_whole() -> None:
    reading, writing = os.pipe()
    journal = Journal(writing)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        for number in range(100):
            journal.write(Record(at=0.0, id=f"req_{number}"))
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    journal.flush()
    lines = written(reading, writing)
    assert [json.loads(line)["id"] for line in lines] == [f"req_{number}" for number in range(100)]


async def test_the_last_flush_waits_for_one_that_is_under_way() -> None:
    """The gateway exits after it: what another thread has taken and not yet written would be lost."""
    reading, writing = os.pipe()
    filled = fill(writing)
    journal = Journal(writing)
    journal.write(Record(at=0.0, id="req_last"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        while journal._waiting:  # noqa: ASYNC110 — another thread takes it
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    async with beside(lambda: trio.to_thread.run_sync(journal.flush)) as last:
        with trio.move_on_after(0.1):
            await last.ended()
        was_done_with_a_full_pipe = last.has_ended
        assert len(os.read(reading, filled)) == filled
    assert len(written(reading, writing)) == 1
    assert not was_done_with_a_full_pipe


async def test_a_line_that_comes_while_others_are_being_written_needs_no_further_one() -> None:
    """Otherwise the last line before a quiet night is read in the morning."""
    reading, writing = os.pipe()
    filled = fill(writing)
    journal = Journal(writing)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        for name in ("req_1", "req_2"):
            while journal._waiting:  # noqa: ASYNC110 — another thread takes the first, and stands before a full pipe
                await trio.lowlevel.checkpoint()
            journal.write(Record(at=0.0, id=name))
        assert len(os.read(reading, filled)) == filled
        with trio.move_on_after(2):
            while journal._waiting:  # noqa: ASYNC110 — as above
                await trio.lowlevel.checkpoint()
        left = len(journal._waiting)
        nursery.cancel_scope.cancel()
    journal.flush()  # it waits for the thread
    assert [json.loads(line)["id"] for line in written(reading, writing)] == ["req_1", "req_2"]
    assert left == 0


async def test_a_reader_that_is_gone_ends_the_journal_and_not_the_gateway() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    journal = Journal(writing)
    try:
        with trio.fail_after(2):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(journal.run)
                journal.write(Record(at=0.0, id="req_1"))
        journal.write(Record(at=0.0, id="req_2"))
    finally:
        os.close(writing)


def test_a_record_is_one_line_whatever_it_names() -> None:
    reading, writing = os.pipe()
    journal = Journal(writing)
    journal.write(Record(at=0.0, id="req_1", model="two\nlines\r\u2028"))
    assert journal.flush()
    assert len(written(reading, writing)) == 1
