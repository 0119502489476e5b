"""A keep-alive client connection that asks and reads whole answers; a load has many, a probe has odd ones."""

import socket
import struct
import time
from collections.abc import Callable

from bench.http1 import Head, read_body, read_head
from bench.loop import Loop

READ_SIZE = 1 << 18
RESET = struct.pack("ii", 1, 0)  # linger for no time: close with RST


class Client:
    """Asks one thing at a time; calls `on_answer(client)` when `body` is whole or `fault` says why not."""

    def __init__(self, loop: Loop, port: int, on_answer: Callable[["Client"], None]) -> None:
        self._loop = loop
        self._on_answer = on_answer
        self.sock = connect(port)
        self.received = b""
        self.head: Head | None = None
        self.body: bytes | None = None
        self.fault: str | None = None
        self.asked_at = 0.0
        self.left_at: float | None = None
        loop.watch(self.sock, self._on_event)

    def ask(self, request: bytes) -> None:
        """A request smaller than a socket's buffer; a failed write is told as the read's failure."""
        self.received = b""
        self.head = self.body = None
        self.asked_at = time.perf_counter()
        self.sock.send(request)

    @property
    def has_body(self) -> bool:
        """Some of the body has come, whole or not."""
        return self.head is not None and len(self.received) > self.head.size

    def _on_event(self, _mask: int) -> None:
        try:
            data = self.sock.recv(READ_SIZE)
        except BlockingIOError:
            return
        except ConnectionError as error:
            self._fail(type(error).__name__)
            return
        if not data:
            self._fail("closed before the end" if self.received else "closed before an answer")
            return
        self.received += data
        self._read()

    def _read(self) -> None:
        try:
            self.head = self.head or read_head(self.received)
            self.body = read_body(self.received, self.head) if self.head else None
        except ValueError as error:
            self._fail(str(error))
            return
        if self.body is not None:
            self._on_answer(self)

    def _fail(self, fault: str) -> None:
        self.fault = fault
        self.leave()
        self._on_answer(self)

    def leave(self, *, reset: bool = False) -> None:
        """Closes with FIN or RST and notes when. Unread bytes would make a RST of a FIN: they are read first."""
        self._loop.forget(self.sock)
        if reset:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        else:
            drain(self.sock)
        self.left_at = self.left_at or time.perf_counter()
        self.sock.close()


def connect(port: int, *, segment: int | None = None, buffer: int | None = None) -> socket.socket:
    """Non-blocking once connected. `segment`: the largest TCP segment to take; `buffer`: to receive in; bytes."""
    sock = socket.socket()
    if segment:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, segment)
    if buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    sock.settimeout(5)
    sock.connect(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setblocking(False)
    return sock


def drain(sock: socket.socket) -> None:
    try:
        while sock.recv(READ_SIZE):
            pass
    except OSError:
        return
