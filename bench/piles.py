"""Where the bytes of a stream are that an upstream produced and a client has not read."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, fields

from bench.figures import Spread, spread
from bench.queues import Ends, read_queues
from bench.upstream import Exchange


@dataclass(frozen=True)
class Pile:
    """Bytes of one stream, in the order of their way; what is in no kernel queue is in the proxy's own memory.

    Upstream and proxy frame the same events differently, so the last figure is off by some bytes an event.
    """

    produced: int
    upstream_unsent: int
    proxy_unread: int
    proxy_unsent: int
    client_unread: int

    @property
    def in_memory(self) -> int:
        kernels = self.upstream_unsent + self.proxy_unread + self.proxy_unsent + self.client_unread
        return self.produced - kernels


def read_piles(exchanges: Mapping[int, Exchange], clients: Mapping[int, socket.socket]) -> list[Pile]:
    """Of the streams that are open at both ends, joined by their numbers."""
    queues = read_queues()
    found = []
    for number, exchange in exchanges.items():
        client, at_proxy = ports(clients[number])
        upstream, out_of_proxy = ports(exchange.sock)
        pile = Pile(
            produced=exchange.sent,
            upstream_unsent=queues[upstream, out_of_proxy].unsent,
            proxy_unread=queues[out_of_proxy, upstream].unread,
            proxy_unsent=queues[at_proxy, client].unsent,
            client_unread=queues[client, at_proxy].unread,
        )
        found.append(pile)
    return found


def ports(sock: socket.socket) -> Ends:
    return sock.getsockname()[1], sock.getpeername()[1]


def summarize(piles: list[Pile]) -> dict[str, Spread]:
    names = [*(field.name for field in fields(Pile)), "in_memory"]
    return {name: spread([getattr(pile, name) for pile in piles]) for name in names}
