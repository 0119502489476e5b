"""A fast simulated upstream: rendered answers out of one epoll loop, and a stopwatch on every exchange.

A probe runs it in its own loop and reads `exchanges`; `python -m bench.upstream` is a server of its own for
loads, which keeps none. It does not judge requests: one that it cannot read ends the process.
"""

import argparse
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bench.answers import Answer, answer_to
from bench.child import running
from bench.http1 import split_request
from bench.loop import READ, WRITE, Loop

LISTENING = "bench.upstream: listening on http://127.0.0.1:"
READ_SIZE = 1 << 16
GOLDEN = 0.618034  # its multiples, modulo 1, never bunch


class Exchange:
    """One request and what became of its answer. Times are `time.perf_counter`."""

    def __init__(self, answer: Answer, sock: socket.socket) -> None:
        self.answer = answer
        self.sock = sock
        self.writes = 0  # begun
        self.sent = 0  # bytes that our kernel took
        self.sent_at = time.perf_counter()  # when it last took any
        self.finished = False
        self.cut_at: float | None = None  # when the proxy was seen to leave before the end

    @property
    def is_last_write(self) -> bool:
        return not self.answer.endless and self.writes == len(self.answer.writes)

    def next_write(self) -> memoryview:
        data = self.answer.writes[min(self.writes, len(self.answer.writes) - 1)]
        self.writes += 1
        return memoryview(data)


class Connection:
    """One connection from the proxy: requests in turn, each answered write by write."""

    def __init__(self, upstream: "Upstream", sock: socket.socket) -> None:
        self._upstream = upstream
        self._loop = upstream.loop
        self._sock = sock
        self._exchange: Exchange | None = None
        self._received = b""
        self._unsent = memoryview(b"")
        self._mask = READ
        self._loop.watch(sock, self._on_event)

    def _on_event(self, mask: int) -> None:
        if mask & WRITE and self._exchange:
            self._send(self._exchange)
        if mask & ~WRITE:
            self._read()

    def _read(self) -> None:
        try:
            data = self._sock.recv(READ_SIZE)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self.close()
            return
        self._received += data
        if self._exchange is None and (request := split_request(self._received)):
            body, self._received = request
            self._begin(answer_to(body))

    def _begin(self, answer: Answer) -> None:
        exchange = self._exchange = Exchange(answer, self._sock)
        self._upstream.began(exchange)
        if answer.delay:
            self._loop.later(answer.delay, lambda: self._resume(exchange))
        else:
            self._send(exchange)

    def _resume(self, exchange: Exchange) -> None:
        """What a timer calls; the connection may be gone by then."""
        if self._exchange is exchange:
            self._send(exchange)

    def _send(self, exchange: Exchange) -> None:
        self._unsent = self._unsent or exchange.next_write()
        with suppress(BlockingIOError, ConnectionError):  # an error comes back as the read's
            taken = self._sock.send(self._unsent)
            self._unsent = self._unsent[taken:]
            exchange.sent += taken
            exchange.sent_at = time.perf_counter()
        if self._unsent:
            self._watch(READ | WRITE)
        else:
            self._go_on(exchange)

    def _go_on(self, exchange: Exchange) -> None:
        """The kernel has the write: the next comes at its pace, or after the other connections' turn."""
        pace = exchange.answer.pace
        if exchange.is_last_write:
            exchange.finished = True
            self._exchange = None
            self._watch(READ)
        elif pace:
            self._watch(READ)
            share = self._upstream.stagger() if exchange.writes == 1 else 1.0
            self._loop.later(pace * share, lambda: self._resume(exchange))
        else:
            self._watch(READ | WRITE)

    def _watch(self, mask: int) -> None:
        if mask != self._mask:
            self._mask = mask
            self._loop.rewatch(self._sock, mask)

    def close(self) -> None:
        if self._exchange:
            self._exchange.cut_at = time.perf_counter()
            self._exchange = None
        self._loop.forget(self._sock)
        self._sock.close()
        self._upstream.connections.discard(self)


class Upstream:
    """Listens on a free port of 127.0.0.1; `keep` says whether exchanges are remembered."""

    def __init__(self, loop: Loop, port: int = 0, *, keep: bool = True) -> None:
        self.loop = loop
        self.exchanges: list[Exchange] = []
        self.connections: set[Connection] = set()
        self._keep = keep
        self._begun = 0
        self._listener = socket.create_server(("127.0.0.1", port), backlog=4096)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        loop.watch(self._listener, self._accept)

    def _accept(self, _mask: int) -> None:
        with suppress(BlockingIOError):
            sock, _ = self._listener.accept()
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections.add(Connection(self, sock))

    def began(self, exchange: Exchange) -> None:
        self._begun += 1
        if self._keep:
            self.exchanges.append(exchange)

    def stagger(self) -> float:
        """The share of its first pause that a paced stream waits: all different, so that none are in step."""
        return self._begun * GOLDEN % 1

    def close(self) -> None:
        self.loop.forget(self._listener)
        self._listener.close()
        for connection in tuple(self.connections):
            connection.close()


@contextmanager
def open_upstream() -> Iterator[int]:
    """The upstream as a process; its port."""
    with running([sys.executable, "-m", "bench.upstream"]) as child:
        yield int(child.wait_for(LISTENING))


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.upstream", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600, help="stop by itself after so long")
    args = parser.parse_args()
    loop = Loop()
    upstream = Upstream(loop, args.port, keep=False)
    print(f"{LISTENING}{upstream.port}", file=sys.stderr, flush=True)
    loop.run(args.seconds)


if __name__ == "__main__":
    main()
