"""Connections to upstreams on real sockets: reuse, staleness, bounds, and TLS that checks whom it talks to."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trio
import trustme

from engine.errors import Kind, TurnError
from engine.wire.http1 import render_head
from engine.wire.http1_client import ClientConnection, ResponseHead
from engine.wire.pool import IDLE_SECONDS, RECEIVE_BUFFER, Pool
from engine.wire.tls import client_context
from engine.wire.transport import SocketTransport
from tests.helpers import chat
from tests.helpers.gateway import gateway
from tests.helpers.http import END_OF_HEAD
from tests.helpers.upstream import Accepted, Script, upstream

SO_BUF_LOCK, RECEIVE_BUFFER_IS_SET = 72, 2
"""Linux: which buffers were set by hand (socket(7) has them since 5.14); the others grow to megabytes by themselves."""
HEAD = render_head(b"GET /v1/models HTTP/1.1", [(b"host", b"upstream")])
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
NO = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"


def pool_to(port: int, *, scheme: str = "http", most: int = 10, connect: float = 2.0, **tls: ssl.SSLContext) -> Pool:
    return Pool(urlsplit(f"{scheme}://127.0.0.1:{port}"), most=most, connect=connect, **tls)


async def asked(connection: ClientConnection) -> tuple[ResponseHead, bytes]:
    await connection.send(HEAD, b"")
    head = await connection.receive_head()
    body = b""
    while data := await connection.receive_body():
        body += data
    return head, body


@asynccontextmanager
async def used(pool: Pool) -> AsyncIterator[Pool]:
    try:
        yield pool
    finally:
        pool.close()


async def says_ok(peer: Accepted) -> None:
    while True:
        await peer.request()
        await peer.send(OK)


async def test_a_connection_serves_again_and_one_is_enough() -> None:
    async with upstream(says_ok) as server, used(pool_to(server.port)) as pool:
        for _ in range(5):
            async with pool.lease() as connection:
                assert (await asked(connection))[1] == b"ok"
        assert (len(server.accepted), pool.idle, pool.leased) == (1, 1, 0)


async def test_two_at_a_time_are_two_connections_and_both_are_kept() -> None:
    async with upstream(says_ok) as server, used(pool_to(server.port)) as pool:
        async with pool.lease() as first, pool.lease() as second:
            await asked(first)
            await asked(second)
            assert (pool.idle, pool.leased) == (0, 2)
        assert (len(server.accepted), pool.idle, pool.leased) == (2, 2, 0)


async def test_the_connection_that_came_back_last_is_used_next() -> None:
    """What many turns at once have left behind then grows old and is closed; in turn, all of it would stay young."""
    async with upstream(says_ok) as server, used(pool_to(server.port)) as pool:
        async with pool.lease() as last:
            async with pool.lease() as first:
                await asked(first)
            await asked(last)
        async with pool.lease() as again:
            assert again is last


async def test_a_connection_that_is_given_back_early_is_given_back_once() -> None:
    async with upstream(says_ok) as server, used(pool_to(server.port, most=2)) as pool:
        lease = pool.lease()
        async with pool.lease(), lease as connection:
            await asked(connection)
            lease.give_back()
            lease.give_back()
            assert (pool.idle, pool.leased) == (1, 1)
        assert (pool.idle, pool.leased) == (2, 0)


async def talk_unasked(peer: Accepted) -> None:
    await peer.send(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    await trio.sleep_forever()


async def end(peer: Accepted) -> None:
    peer.close()
    await trio.lowlevel.checkpoint()


async def reset(peer: Accepted) -> None:
    peer.reset()
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("go_bad", [end, reset, talk_unasked])
async def test_an_idle_connection_that_went_bad_is_not_handed_out(go_bad: Script) -> None:
    async def script(peer: Accepted) -> None:
        await peer.request()
        await peer.send(OK)
        await is_idle.wait()
        await go_bad(peer)

    is_idle = trio.Event()
    async with upstream(script) as server, used(pool_to(server.port)) as pool:
        async with pool.lease() as connection:
            await asked(connection)
            bad = connection.transport
        is_idle.set()
        assert isinstance(bad, SocketTransport)
        await trio.lowlevel.wait_readable(bad._socket)
        async with pool.lease() as connection:
            assert connection.transport is not bad
        assert len(server.accepted) == 2


async def test_a_connection_that_says_close_is_closed() -> None:
    async def says_close(peer: Accepted) -> None:
        await peer.request()
        await peer.send(NO)
        await trio.sleep_forever()

    async with upstream(says_close) as server, used(pool_to(server.port)) as pool:
        async with pool.lease() as connection:
            await asked(connection)
        assert (pool.idle, pool.leased) == (0, 0)
        with trio.fail_after(2):
            await server.accepted[0].left()


async def test_a_lease_that_ends_in_the_middle_of_a_response_closes_its_connection() -> None:
    async def half(peer: Accepted) -> None:
        await peer.request()
        await peer.send(OK[:-1])
        await trio.sleep_forever()

    async with upstream(half) as server, used(pool_to(server.port)) as pool:
        with trio.move_on_after(0.1):
            async with pool.lease() as connection:
                await asked(connection)
        with trio.fail_after(2):
            await server.accepted[0].left()
        assert (pool.idle, pool.leased) == (0, 0)


async def test_closing_the_pool_closes_what_is_idle() -> None:
    async with upstream(says_ok) as server, used(pool_to(server.port)) as pool:
        async with pool.lease() as connection:
            await asked(connection)
        pool.close()
        with trio.fail_after(2):
            await server.accepted[0].left()
        assert pool.idle == 0


async def test_what_has_been_idle_for_long_is_closed_and_the_rest_is_kept() -> None:
    async with upstream(says_ok) as server, used(pool_to(server.port)) as pool:
        async with pool.lease() as first, pool.lease() as second:
            await asked(first)
            await asked(second)
        since, connection = pool._idle[0]
        pool._idle[0] = (since - IDLE_SECONDS - 1, connection)
        pool.expire()
        assert pool.idle == 1
        with trio.fail_after(2):
            await server.accepted[1].left()  # it was the first to come back
        assert server.accepted[0].how is None


async def test_a_connection_has_no_delay_and_a_small_receive_buffer() -> None:
    async with upstream(says_ok) as server, used(pool_to(server.port)) as pool, pool.lease() as connection:
        transport = connection.transport
        assert isinstance(transport, SocketTransport)
        sock = transport._socket
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= 2 * RECEIVE_BUFFER
        assert sock.getsockopt(socket.SOL_SOCKET, SO_BUF_LOCK) & RECEIVE_BUFFER_IS_SET


async def test_nobody_listening_is_unreachable() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        pool = pool_to(sock.getsockname()[1])
        with pytest.raises(TurnError) as raised:
            await pool.acquire()
    assert raised.value.fault.kind is Kind.UPSTREAM_UNREACHABLE
    assert pool.leased == 0


# TLS


class TlsServer:
    """Says OK to every request; keeps the names that clients asked for."""

    def __init__(self, name: str) -> None:
        self.authority = trustme.CA()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert(name).configure_cert(self.context)
        self.context.sni_callback = self._note
        self.names: list[str | None] = []
        self.connections = 0

    def _note(self, conn: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        self.names.append(name)

    async def serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        tls = trio.SSLStream(stream, self.context, server_side=True, https_compatible=True)
        try:
            while data := await tls.receive_some():
                if data.endswith(END_OF_HEAD):
                    await tls.send_all(OK)
        except trio.BrokenResourceError:
            pass
        finally:
            await trio.aclose_forcefully(tls)

    def trusted(self, tmp_path: Path) -> ssl.SSLContext:
        return client_context(self.ca_file(tmp_path))

    def ca_file(self, tmp_path: Path) -> Path:
        path = tmp_path / "ca.pem"
        self.authority.cert_pem.write_to_path(str(path))
        return path


@asynccontextmanager
async def tls_listening(serve: Callable[[trio.SocketStream], Awaitable[None]]) -> AsyncIterator[int]:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, listeners)  # noqa: ASYNC113 — as there
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


def localhost(port: int, context: ssl.SSLContext, *, connect: float = 5.0) -> Pool:
    return Pool(urlsplit(f"https://localhost:{port}"), most=1, connect=connect, tls=context)


async def test_a_server_of_the_operators_authority_is_trusted_by_name_and_reused(tmp_path: Path) -> None:
    server = TlsServer("localhost")
    async with tls_listening(server.serve) as port, used(localhost(port, server.trusted(tmp_path))) as pool:
        for _ in range(3):
            async with pool.lease() as connection:
                assert (await asked(connection))[1] == b"ok"
        assert (server.names, server.connections, pool.idle) == (["localhost"], 1, 1)


async def test_what_a_tls_server_says_unasked_is_not_the_next_answer(tmp_path: Path) -> None:
    """Load balancers say 408 to a connection that they find idle; nothing of it shows before it is decrypted."""
    server, is_idle, sent = TlsServer("localhost"), trio.Event(), trio.Event()

    async def talks_unasked(stream: trio.SocketStream) -> None:
        tls = trio.SSLStream(stream, server.context, server_side=True, https_compatible=True)
        with suppress(trio.BrokenResourceError):
            await tls.receive_some()
            await tls.send_all(OK)
            await is_idle.wait()
            await tls.send_all(OK.replace(b"200", b"408"))
            sent.set()
            await tls.receive_some()
        await trio.aclose_forcefully(tls)

    async with tls_listening(talks_unasked) as port, used(localhost(port, server.trusted(tmp_path))) as pool:
        async with pool.lease() as connection:
            await asked(connection)
        is_idle.set()
        await sent.wait()
        async with pool.lease() as connection:
            head, _ = await asked(connection)
        assert head.status == 200


@pytest.mark.parametrize("name", ["example.test", "127.0.0.2"])
async def test_a_server_with_another_name_is_refused(name: str, tmp_path: Path) -> None:
    server = TlsServer(name)
    async with tls_listening(server.serve) as port:
        pool = localhost(port, server.trusted(tmp_path))
        with pytest.raises(TurnError) as raised:
            await pool.acquire()
    assert raised.value.fault.kind is Kind.UPSTREAM_UNREACHABLE
    assert pool.leased == 0


async def test_a_server_of_an_unknown_authority_is_refused(tmp_path: Path) -> None:
    server, other = TlsServer("localhost"), TlsServer("localhost")
    async with tls_listening(server.serve) as port:
        for context in (client_context(), other.trusted(tmp_path)):
            with pytest.raises(TurnError):
                await localhost(port, context).acquire()


async def test_a_server_that_does_not_speak_tls_is_unreachable(tmp_path: Path) -> None:
    async def plain(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(OK)

    async with tls_listening(plain) as port:
        with pytest.raises(TurnError) as raised:
            await localhost(port, TlsServer("localhost").trusted(tmp_path)).acquire()
    assert raised.value.fault.kind is Kind.UPSTREAM_UNREACHABLE


async def test_a_handshake_that_hangs_meets_the_connect_deadline_and_is_closed(tmp_path: Path) -> None:
    left = trio.Event()

    async def hangs(stream: trio.SocketStream) -> None:
        async with stream:
            while await stream.receive_some():
                pass
            left.set()

    async with tls_listening(hangs) as port:
        pool = localhost(port, TlsServer("localhost").trusted(tmp_path), connect=0.3)
        with trio.fail_after(2):
            with pytest.raises(TurnError) as raised:
                await pool.acquire()
            await left.wait()
    assert (raised.value.fault.kind, raised.value.fault.code) == (Kind.UPSTREAM_TIMEOUT, "connect_timeout")
    assert pool.leased == 0


async def test_a_gateway_reaches_an_upstream_over_tls_with_the_operators_authority(tmp_path: Path) -> None:
    server = TlsServer("localhost")

    async def answers(stream: trio.SocketStream) -> None:
        tls = trio.SSLStream(stream, server.context, server_side=True, https_compatible=True)
        with suppress(trio.BrokenResourceError):
            await tls.receive_some()
            await tls.send_all(chat.HEAD + chat.chunk(chat.text("sealed") + chat.STOP + chat.DONE) + chat.LAST)
            await tls.receive_some()
        await trio.aclose_forcefully(tls)

    async with tls_listening(answers) as port:
        way = f'upstreams={{default={{url="https://localhost:{port}/v1",ca_file="{server.ca_file(tmp_path)}"}}}}'
        async with gateway(way) as running:
            assert chat.said((await running.chatted()).body) == "sealed"
        async with gateway(f'upstreams={{default={{url="https://localhost:{port}/v1"}}}}') as running:
            assert (await running.chatted()).status == 502
