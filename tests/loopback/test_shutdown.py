"""The process, and how it stops: who is healthy finishes, who is not is told, and the exit waits for nobody."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from subprocess import DEVNULL

import pytest
import trio

import server.serve
from server.load import load
from tests.helpers import chat
from tests.helpers.gateway import Client, chat_request, connected_to
from tests.helpers.http import request
from tests.helpers.pipes import fill, written
from tests.helpers.process import ROOT, STARTS, Process, serving, simulated

HEALTHY = "simulated/chunks=8,pace=0.1,size=4"
SILENT = "simulated/stall=60@1"
ENDLESS = "simulated/endless,size=1000"
SLACK = 1.0
"""Seconds that the exit may take beyond the grace."""


async def rest_of_stream(client: Client) -> bytes:
    """Chunk by chunk to the body's proper end."""
    pieces = []
    while piece := await client.chunk():
        pieces.append(piece)
    return b"".join(pieces)


async def exited_by(process: Process, due: float) -> None:
    with trio.fail_at(due):
        assert await process.exited() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_idle_gateway_exits_at_once(number: int) -> None:
    async with serving() as process, process.client() as client:
        assert (await client.ask("GET /readyz HTTP/1.1")).status == 200
        sent = process.signal(number)
        assert await client.rest() == b""  # an idle connection is closed
        await exited_by(process, sent + SLACK)


async def test_while_draining_it_is_alive_but_not_ready_and_takes_no_connection() -> None:
    async with serving() as process, process.client() as first, process.client() as second:
        for client in (first, second):
            await client.chat(HEALTHY)
            await client.head()
        process.signal()
        # Idle connections are closed, so the question has to stand behind the answer that is under way.
        await first.send(request("GET /readyz HTTP/1.1"))
        await second.send(request("GET /livez HTTP/1.1"))
        await refusing_connections(process)
        for client, status in ((first, 503), (second, 200)):
            assert b"[DONE]" in await rest_of_stream(client)
            answer = await client.answer()
            assert (answer.status, answer.headers["connection"]) == (status, "close")
            assert json.loads(answer.body)["status"] == "draining"
        assert await process.exited() == 0


async def refusing_connections(process: Process) -> None:
    """Wait until the first signal has arrived: then nobody listens any more."""
    with suppress(OSError):
        while True:
            async with process.client() as client:
                await everything(client)


async def test_a_healthy_stream_is_finished_within_the_grace() -> None:
    async with serving(*simulated("deadlines.grace=20")) as process, process.client() as client:
        await client.chat(HEALTHY)
        await client.head()
        sent = process.signal()
        stream = await rest_of_stream(client)
        assert len(chat.said(stream)) == 32
        assert stream.endswith(chat.DONE)
        await exited_by(process, sent + 5)  # as soon as the last turn is done, not when the grace is over
        assert (await process.record())["end"] == "completed"


async def test_a_silent_stream_is_told_when_the_grace_is_over() -> None:
    async with serving(*simulated("deadlines.grace=0.5")) as process, process.client() as client:
        await client.chat(SILENT)
        await client.head()
        await client.chunk()
        sent = process.signal()
        stream = await rest_of_stream(client)
        assert trio.current_time() - sent >= 0.5
        assert b'"code":"server_shutdown"' in stream
        assert b"[DONE]" not in stream
        assert await client.rest() == b""
        await exited_by(process, sent + 0.5 + SLACK)
        record = await process.record()
        assert (record["end"], record["fault"]) == ("failed", {"origin": "gateway", "kind": "shutting_down"})


async def test_a_turn_behind_one_that_was_told_is_told_too_and_not_begun() -> None:
    async with serving(*simulated("deadlines.grace=0.3")) as process, process.client() as client:
        await client.chat(SILENT)
        await client.head()
        await client.send(chat_request(SILENT))
        sent = process.signal()
        told = await everything(client)
        await exited_by(process, sent + 0.3 + SLACK)
        assert told.count(b"server_shutdown") == 2
        for _ in range(2):
            record = await process.record()
            assert (record["end"], record["fault"]) == ("failed", {"origin": "gateway", "kind": "shutting_down"})


@pytest.mark.parametrize("stream", [True, False])
async def test_a_turn_that_has_said_nothing_yet_gets_a_status_that_invites_a_retry(stream: bool) -> None:
    async with serving(*simulated("deadlines.grace=0.3")) as process, process.client() as client:
        await client.send(chat_request("simulated/delay=60", stream=stream))
        await client.send(request("GET /health HTTP/1.1"))
        await under_way(process)
        sent = process.signal()
        answer = await client.answer()
        assert (answer.status, answer.headers["retry-after"], answer.headers["connection"]) == (503, "1", "close")
        await exited_by(process, sent + 0.3 + SLACK)


async def under_way(process: Process) -> None:
    """Wait until the gateway counts one turn."""
    async with process.client() as client:
        while b'"turns":1' not in (await client.ask("GET /readyz HTTP/1.1")).body:
            pass


async def test_readers_that_do_not_read_hold_nobody_up() -> None:
    settings = simulated("deadlines.grace=0.5", "deadlines.drain=300")
    async with (
        serving(*settings) as process,
        process.client(receive_buffer=4096) as first,
        process.client(receive_buffer=4096) as second,
    ):
        for client in (first, second):
            await client.chat(ENDLESS)
            await client.head()
        sent = process.signal()
        await exited_by(process, sent + 0.5 + SLACK)
        assert b"[DONE]" not in await everything(first)
        for _ in (first, second):
            record = await process.record()
            assert (record["end"], record["fault"]) == ("cancelled", {"origin": "gateway", "kind": "shutting_down"})


async def everything(client: Client) -> bytes:
    taken = bytearray()
    try:
        while data := await client.stream.receive_some():
            taken += data
    except trio.BrokenResourceError:
        pass
    return bytes(taken)


async def test_clients_in_the_middle_of_a_request_hold_nobody_up() -> None:
    settings = simulated("deadlines.grace=0.5")
    async with serving(*settings) as process, process.client() as in_head, process.client() as in_body:
        await in_head.send(request() + b"POST /v1/chat/completions HTTP/1.1\r\n")
        assert (await in_head.answer()).status == 200
        fields = ("Content-Length: 1000", "Expect: 100-continue")
        await in_body.send(request("POST /v1/chat/completions HTTP/1.1", *fields))
        assert (await in_body.head()).status == 100
        sent = process.signal()
        await exited_by(process, sent + 0.5 + SLACK)


async def test_a_second_signal_ends_it_at_once() -> None:
    async with serving(*simulated("deadlines.grace=60")) as process, process.client() as client:
        await client.chat(SILENT)
        await client.head()
        await client.chunk()
        process.signal()
        await refusing_connections(process)
        sent = process.signal()
        await exited_by(process, sent + SLACK)
        assert b"0\r\n\r\n" not in await everything(client)


async def test_the_journals_last_lines_are_written_before_the_exit() -> None:
    async with serving(*simulated("deadlines.grace=0.2")) as process, process.client() as client:
        await client.chat(SILENT)
        await client.head()
        process.signal()
        await everything(client)
        assert await process.exited() == 0
        record = await process.record()
        assert (record["model"], record["end"]) == (SILENT, "failed")


async def test_the_exit_waits_for_whoever_reads_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    filled = fill(writing)
    telling, told = trio.open_memory_channel[str](1)
    monkeypatch.setattr(server.serve, "STDOUT", writing)
    monkeypatch.setattr(server.serve, "LAST_RECORDS", 30.0)
    monkeypatch.setattr(server.serve, "say", telling.send_nowait)
    exited = trio.Event()

    async def serve() -> None:
        await server.serve.serve(load(None, ["server.port=0", "deadlines.grace=0"], {}), {})
        exited.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        port = int((await told.receive()).rpartition(":")[2])
        async with connected_to(port) as client:
            await client.chat(SILENT)
            await client.head()
            os.kill(os.getpid(), signal.SIGTERM)
            await everything(client)
        with trio.move_on_after(0.5):
            await exited.wait()
        assert not exited.is_set()
        assert len(os.read(reading, filled)) == filled
    assert [json.loads(line)["model"] for line in written(reading, writing)] == [SILENT]


async def test_without_a_grace_turns_are_told_at_once() -> None:
    async with serving(*simulated("deadlines.grace=0")) as process, process.client() as client:
        await client.chat(SILENT)
        await client.head()
        sent = process.signal()
        assert b"shutting down" in await rest_of_stream(client)
        await exited_by(process, sent + SLACK)


async def test_a_signal_while_it_says_where_it_listens_is_a_drain_too() -> None:
    """Whoever knows the port need not wait for the announcement, which stands here before a full pipe."""
    with trio.socket.socket() as taken:
        await taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    reading, writing = os.pipe()
    filled = fill(writing)
    command = [sys.executable, "-m", "server.cli", "serve", "--port", str(port)]
    process = await trio.lowlevel.open_process(command, cwd=ROOT, stdin=None, stdout=DEVNULL, stderr=writing)
    os.close(writing)
    try:
        with trio.fail_after(STARTS):
            while not await is_listening(port):  # noqa: ASYNC110 — another process tells nobody
                await trio.sleep(0.01)
            process.terminate()
            assert len(os.read(reading, filled)) == filled
            assert await process.wait() == 0
    finally:
        process.kill()
        os.close(reading)


async def is_listening(port: int) -> bool:
    try:
        await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
    except OSError:
        return False
    return True


async def test_a_signal_right_after_the_announcement_is_a_drain_too() -> None:
    """A supervisor may stop what it has just started; the default action of the signal would be a death."""
    for _ in range(3):
        async with serving() as process:
            process.signal()
            with trio.fail_after(5):
                assert await process.exited() == 0


async def test_a_port_that_is_taken_is_said_in_one_line() -> None:
    async with serving() as first:
        command = [sys.executable, "-m", "server.cli", "serve", "--port", str(first.port)]
        second = await trio.run_process(command, cwd=ROOT, check=False, capture_stderr=True, stdin=b"")
        assert second.returncode == 1
        assert second.stderr.decode().count("\n") == 1
        assert f"cannot listen on 127.0.0.1 port {first.port}" in second.stderr.decode()
