"""Listening sockets and the accept loop. Non-blocking sockets of our own, for transport.py to work on."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Awaitable, Callable

import trio

log = logging.getLogger(__name__)

BACKLOG = 1024
"""Connections that may wait to be accepted; the kernel caps it at net.core.somaxconn."""
NOT_SENT_LOWAT = 16 * 1024
"""Bytes that may lie unsent in the kernel before a write waits: without it the send buffer grows to megabytes."""
_KEEPALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
"""A peer that vanished without a FIN is noticed within two minutes, in seconds and probes."""
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)


async def open_listeners(host: str, port: int) -> list[socket.socket]:
    """Sockets listening on every address of `host`. Port 0 takes one free port for all. Raises OSError."""
    infos = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listeners: list[socket.socket] = []
    try:
        for family, _, _, _, address in infos:
            chosen = listeners[0].getsockname()[1] if listeners and port == 0 else address[1]
            listeners.append(_listen(family, (address[0], chosen, *address[2:])))
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _listen(family: int, address: tuple[object, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


async def accept_forever(listener: socket.socket, serve: Callable[[socket.socket], Awaitable[None]]) -> None:
    """Hand each connection to `serve`, which waits while there is no room for one more. Ends by cancellation."""
    while True:
        await trio.lowlevel.wait_readable(listener)
        try:
            client, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            continue
        except OSError as error:
            if error.errno not in _OUT_OF_FILES:
                raise
            log.warning("cannot accept: %s", error.strerror)
            await trio.sleep(0.1)  # nothing tells when a file descriptor is free again (trio does the same)
            continue
        tune(client, not_sent=NOT_SENT_LOWAT)
        await serve(client)


def tune(sock: socket.socket, *, not_sent: int | None = None, receive_buffer: int | None = None) -> None:
    """What every socket here has: no blocking, no Nagle, keep-alive probes; and the bounds that are asked for."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if not_sent is not None and hasattr(socket, "TCP_NOTSENT_LOWAT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, not_sent)
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
