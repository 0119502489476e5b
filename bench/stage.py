"""What every probe stands on: one loop, our upstream in it, and the proxy between that and the probe's clients."""

import argparse
import resource
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from bench.child import end_children_when_told_to_stop
from bench.client import Client
from bench.gateway import add_set_option, open_gateway
from bench.http1 import chat_request
from bench.loop import Loop
from bench.nginx import open_nginx
from bench.peer import Peer
from bench.report import add_json_option
from bench.script import Script
from bench.upstream import Exchange, Upstream


@dataclass(frozen=True)
class Stage:
    """Clients are numbered, and their number comes out at the upstream: both ends of a stream are known."""

    loop: Loop
    upstream: Upstream
    peer: Peer

    def exchanges(self, numbers: range) -> dict[int, Exchange]:
        return {each.answer.number: each for each in self.upstream.exchanges if each.answer.number in numbers}

    def client(self, number: int, script: Script, *, stream: bool = True) -> Client:
        """A reading client that has asked; how it ends is for the probe to look at."""
        client = Client(self.loop, self.peer.port, lambda _: None)
        client.ask(numbered_request(number, script, stream=stream))
        return client


def numbered_request(number: int, script: Script, *, stream: bool = True) -> bytes:
    return chat_request(script.model, stream=stream, text=f"client {number}")


@contextmanager
def open_stage(peer_name: str, settings: Mapping[str, object]) -> Iterator[Stage]:
    allow_many_files()
    loop = Loop()
    upstream = Upstream(loop)
    try:
        with open_peer(peer_name, upstream.port, settings) as peer:
            yield Stage(loop, upstream, peer)
    finally:
        upstream.close()
        loop.close()


def open_peer(name: str, upstream_port: int, settings: Mapping[str, object]) -> AbstractContextManager[Peer]:
    if name == "nginx":
        return open_nginx(upstream_port, send_timeout=float(str(settings.get("deadlines.drain", 60))))
    return open_gateway(upstream_port, settings)


def allow_many_files() -> None:
    """The soft limit is often 1024; the proxy inherits ours."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def read_arguments(parser: argparse.ArgumentParser, *, peers: tuple[str, ...] = ()) -> argparse.Namespace:
    """The options that probes share, and what a probe does before anything else."""
    if peers:
        parser.add_argument("--peer", choices=peers, default=peers[0], help="the proxy under test")
    add_set_option(parser)
    add_json_option(parser)
    end_children_when_told_to_stop()
    return parser.parse_args()
