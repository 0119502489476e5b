"""Probes that other servers failed (DESIGN: the planes), against our own data plane: cancelling reaches a write."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
import trio

from engine.errors import Kind
from engine.wire.http1_server import Limits, Request, gone
from engine.wire.response import Rendered, Response
from tests.helpers.gateway import connected_to, listener_of, listening
from tests.helpers.http import request
from tests.helpers.lockstep import HEADERS, ScriptedHandler

HUGE = b"x" * 64 * 1024 * 1024
SMALL = 4096


async def test_a_write_that_nobody_takes_can_be_cancelled_by_a_deadline() -> None:
    """hypercorn's Trio worker shields each socket write: there a deadline of 1 s had not fired after 4."""
    took: list[float] = []

    async def respond(request: Request, response: Response) -> None:
        began = time.monotonic()
        with trio.move_on_after(0.2) as patience:
            await response.send_whole(Rendered(200, HEADERS, HUGE))
        assert patience.cancelled_caught
        took.append(time.monotonic() - began)
        raise gone(Kind.CLIENT_STALLED)

    handler = ScriptedHandler(respond)
    async with listening(listener_of(handler)) as port, connected_to(port, receive_buffer=SMALL) as client:
        await client.send(request())
        await handler.is_done()
        await client.dropped()
    assert 0.2 <= took[0] < 1


async def test_stopping_the_server_reaches_a_write_that_nobody_takes() -> None:
    async def respond(request: Request, response: Response) -> None:
        await response.send_whole(Rendered(200, HEADERS, HUGE))

    handler = ScriptedHandler(respond)
    with trio.fail_after(2):
        async with listening(listener_of(handler)) as port, connected_to(port, receive_buffer=SMALL) as client:
            await client.send(request())
            await client.head()
    assert handler.done == [(200, None)]


async def test_the_kernel_holds_little_of_what_a_client_does_not_take() -> None:
    """Without TCP_NOTSENT_LOWAT a socket's send buffer grows to megabytes before a write waits."""
    written: list[int] = []

    async def respond(request: Request, response: Response) -> None:
        response.begin_stream(200, HEADERS)
        with trio.move_on_after(0.3):
            while True:
                await response.write(b"x" * 1000)
                written.append(1000)
        raise gone(Kind.CLIENT_STALLED)

    handler = ScriptedHandler(respond)
    async with listening(listener_of(handler)) as port, connected_to(port, receive_buffer=SMALL) as client:
        await client.send(request())
        await handler.is_done()
        await client.dropped()
    assert 0 < sum(written) < 256 * 1024


@pytest.mark.parametrize("behind", [1, 1000, 30_000])
async def test_a_disconnect_behind_pipelined_bytes_is_seen_while_a_handler_works(behind: int) -> None:
    saw: list[Kind] = []

    def see(kind: Kind, work: trio.CancelScope) -> None:
        saw.append(kind)
        work.cancel()

    async def respond(request: Request, response: Response) -> None:
        with trio.CancelScope() as work:
            response.when_client_leaves = lambda kind: see(kind, work)
            working.set()
            await trio.sleep_forever()
        raise gone(saw[0])

    working = trio.Event()
    handler = ScriptedHandler(respond)
    async with listening(listener_of(handler, Limits(pipelined_bytes=64 * 1024))) as port:
        async with connected_to(port) as client:
            await client.send(request())
            await working.wait()
            await client.send(b"x" * behind)
        with trio.fail_after(2):
            await handler.is_done()
    assert saw == [Kind.CLIENT_LEFT]


async def test_a_client_may_not_send_ahead_without_bound() -> None:
    async def respond(request: Request, response: Response) -> None:
        with trio.CancelScope() as work:
            response.when_client_leaves = lambda kind: work.cancel()
            await trio.sleep_forever()
        raise gone(Kind.CLIENT_OVERRAN)

    sent, piece = 0, b"x" * 16 * 1024
    handler = ScriptedHandler(respond)
    async with (
        listening(listener_of(handler, Limits(pipelined_bytes=len(piece)))) as port,
        connected_to(port) as client,
    ):
        await client.send(request())
        with trio.fail_after(5), suppress(trio.BrokenResourceError):
            while sent < len(HUGE):
                await client.send(piece)
                sent += len(piece)
    assert sent < 8 * 1024 * 1024  # what the kernel's buffers on both sides take is not ours
