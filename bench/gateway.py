"""The gateway as a child process, configured by `--set` alone."""

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata

from bench.child import running
from bench.peer import Peer

LISTENING = "tidegate: listening on http://127.0.0.1:"
SIMULATING = "tidegate simulate: listening on http://127.0.0.1:"


def add_set_option(parser: argparse.ArgumentParser) -> None:
    """`--set KEY=VALUE` as the gateway has it; `dict(args.set)` are settings."""
    add = parser.add_argument
    add("--set", type=setting, action="append", default=[], metavar="KEY=VALUE", help="for the gateway")


def setting(word: str) -> tuple[str, str]:
    key, _, value = word.partition("=")
    return key, value


@contextmanager
def open_gateway(
    upstream_port: int, settings: Mapping[str, object] | None = None, *, under: tuple[str, ...] = ()
) -> Iterator[Peer]:
    """A gateway before the upstream; `under` is what runs its module instead of `-m`, such as a profiler."""
    python = [sys.executable, *(under or ("-m",)), "server.cli"]
    serve = ["serve", "--port", "0", "--upstream", f"http://127.0.0.1:{upstream_port}/v1"]
    sets = [word for key, value in (settings or {}).items() for word in ("--set", f"{key}={value}")]
    with running([*python, *serve, *sets]) as child:
        port = int(child.wait_for(LISTENING))
        yield Peer("tidegate", version(), port, child.process, (child.process.pid,), child.stdout)


@contextmanager
def open_simulated() -> Iterator[int]:
    """The gateway's own simulated upstream as a process; its port."""
    with running([sys.executable, "-m", "server.cli", "simulate", "--port", "0"]) as child:
        yield int(child.wait_for(SIMULATING))


def version() -> str:
    try:
        return metadata.version("tidegate")
    except metadata.PackageNotFoundError:  # run from a checkout
        return "checkout"
