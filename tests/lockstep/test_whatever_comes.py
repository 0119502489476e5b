"""Whatever bytes come, from a client or an upstream: it ends in time, in order, and with nothing held.

Seeded, so that a failure can be run again: its number is in the test's name.
"""

from __future__ import annotations

import gzip
import random
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

from engine.deadlines import Deadlines
from engine.errors import Fault, Kind, TurnError
from engine.wire.http1_server import Limits, Request
from engine.wire.response import Response
from tests.helpers import chat
from tests.helpers.farend import LockstepPool, all_of, call
from tests.helpers.http import request
from tests.helpers.lockstep import HEADERS, Connected, ScriptedHandler, connected, echo

SEEDS = range(20)
ROUNDS = 20
LIMITS = Limits(head_bytes=300, body_bytes=200, pipelined_bytes=500, requests_per_connection=5)
OFFER = ("Connection: upgrade", "Upgrade: h2c")

REQUESTS = [
    request("POST /a HTTP/1.1", body=b"x" * 30),
    request("GET /b HTTP/1.1"),
    request("POST /c HTTP/1.1", "Transfer-Encoding: chunked", body=b"3\r\nabc\r\n0\r\nA: b\r\n\r\n"),
    request("POST /d HTTP/1.1", "Expect: 100-continue", body=b"abc"),
    request("GET /e HTTP/1.1", *OFFER),
    request("POST /f HTTP/1.1", *OFFER, body=request("GET /inner HTTP/1.1")),
    request("CONNECT test:80 HTTP/1.1"),
    request("POST /g HTTP/1.1", "Content-Length: 100000"),
    request("GET /h HTTP/1.0"),
]
PIECES_OF_REQUESTS = [
    *(b"\r\n", b"\0", b"\n", b" ", b":", b"\xff\xff", b"HTTP/9.9", b"0\r\n\r\n"),
    *(b"Content-Length: 5\r\n", b"Content-Length: x\r\n", b"Transfer-Encoding: chunked\r\n"),
    *(b"Expect: 100-continue\r\n", b"Connection: close\r\n", b"Connection: upgrade\r\nUpgrade: x\r\n"),
]

ZIPPED = gzip.compress(chat.text("zip") + chat.DONE)
ANSWERS = [
    chat.HEAD + chat.chunk(chat.ROLE + chat.text("a")) + chat.chunk(chat.STOP + chat.DONE) + chat.LAST,
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + chat.text("a") + chat.DONE,
    b'HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\n{"choices":[{"message":{"content":"a"},"finish_reason":""}]}',
    b"HTTP/1.1 500 No\r\nContent-Length: 20\r\nRetry-After: 5\r\n\r\n" + b'{"error":"whatever"}',
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(ZIPPED) + ZIPPED,
    b"HTTP/1.1 100 Continue\r\n\r\n",
]
PIECES_OF_ANSWERS = [
    *(b"\r\n", b"\0", b"{", b"}", b"null", b"[]", b'"x"', b"1e999", b"\n\n", b":", b"\xff", b"data: ", b'"error":'),
    *(b"event: error\n", b"HTTP/1.1 200 OK\r\n", b"Transfer-Encoding: chunked\r\n", b'"usage":{"prompt_tokens":"x"},'),
]


def mangled(chance: random.Random, wholes: list[bytes], pieces: list[bytes]) -> bytes:
    """Some messages one behind the other, with a few places broken."""
    data = bytearray().join(chance.choices(wholes, k=chance.randint(1, 3)))
    for _ in range(chance.randint(0, 4)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(3):
            case 0:
                data[at:at] = chance.choice(pieces)
            case 1:
                del data[at : at + chance.randint(1, 6)]
            case _:
                data[at : at + 1] = chance.randbytes(1)
    return bytes(data)


def cut(chance: random.Random, data: bytes) -> list[bytes]:
    places = sorted(chance.sample(range(1, len(data)), min(chance.randint(0, 6), len(data) - 1)))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


async def speak(chance: random.Random, both: Connected) -> None:
    """Send in pieces, with pauses; then be silent, or leave."""
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        for piece in cut(chance, mangled(chance, REQUESTS, PIECES_OF_REQUESTS)):
            await both.client.send(piece)
            await trio.sleep(chance.choice([0, 0, 0, 3]))
        await trio.sleep(chance.choice([0, 20]))
        if chance.random() < 0.5:
            both.finish_sending()


async def pause(chance: random.Random) -> None:
    await trio.sleep(chance.choice([0, 0, 0, 0, 8]))


async def listen(chance: random.Random, both: Connected) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        while await both.client.stream.receive_some(chance.randint(1, 300)):
            await pause(chance)


def handler(chance: random.Random) -> ScriptedHandler:
    async def respond(request: Request, response: Response) -> None:
        await trio.sleep(chance.choice([0, 0, 2]))
        if chance.random() < 0.2:
            response.begin_stream(200, HEADERS)
            await response.write(b"abc")
            await response.write(b"", last=True)
        else:
            await echo(request, response)

    return ScriptedHandler(respond, lambda _: Fault(Kind.NOT_FOUND, "no") if chance.random() < 0.2 else None)


@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_a_client_sends_each_exchange_ends_once(seed: int, autojump_clock: MockClock) -> None:
    for number in range(ROUNDS):
        chance = random.Random(seed * ROUNDS + number)
        serving = handler(chance)
        async with connected(serving, limits=LIMITS, deadlines=Deadlines(head=5, body=5, drain=5)) as both:
            with trio.move_on_after(200):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(speak, chance, both)
                    nursery.start_soon(listen, chance, both)
        assert len(serving.done) == len(serving.begun)
        assert all(status is not None or loss is not None for status, loss in serving.done)


@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_an_upstream_sends_a_call_ends_once(seed: int, autojump_clock: MockClock) -> None:
    for number in range(ROUNDS):
        chance, pool = random.Random(seed * ROUNDS + number), LockstepPool()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer, chance, pool)
            with trio.fail_after(200), suppress(TurnError):
                bursts = await all_of(call(pool, Deadlines(first_event=50, idle=20)))
                assert [burst.end is not None for burst in bursts].index(True) == len(bursts) - 1
            nursery.cancel_scope.cancel()
        assert pool.leased == 0
        pool.close()


async def answer(chance: random.Random, pool: LockstepPool) -> None:
    end = await pool.connection()
    with suppress(trio.BrokenResourceError):
        await end.request()
        await end.send(*cut(chance, mangled(chance, ANSWERS, PIECES_OF_ANSWERS)))
        if chance.random() < 0.7:
            end.close()
