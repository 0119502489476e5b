"""The gateway's process: everything that lives as long as it does, in one nursery."""

from __future__ import annotations

import gc
import logging
import os
import resource
import sys
from collections.abc import Mapping
from contextlib import suppress

import trio

from engine.history.store import Broken, Store
from engine.wire.http1_server import Limits
from engine.wire.pool import IDLE_SECONDS
from server.config import Config
from server.gateway import Gateway
from server.journal import Journal
from server.keeping import open_history
from server.listen import Listener, open_sockets, watch_signals

log = logging.getLogger(__name__)

STDOUT = 1
GC_THRESHOLDS = (20_000, 20, 20)
"""Allocations between collections. A turn leaves no cycles behind; Python's default of 700 looked for some twice a
turn, for 5 % of its time."""
LAST_RECORDS = 0.25
"""Seconds for the journal's last lines and the history's last times of use. A reader that does not take its lines by
then does not get them; a turn whose time of use is not written counts from its last write."""


def say(line: str) -> None:
    """What the operator is told outside the log: where the gateway listens."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201 — a command's own output


def raise_file_limit() -> None:
    """A turn needs two sockets, and most systems start a process with 1,024 files: take what the hard limit allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS has a lower limit of its own, and says no to the hard one
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def serve(config: Config, environment: Mapping[str, str], history: Store | None = None) -> None:
    """Run until a signal has drained it. Raises OSError if it cannot listen."""
    journal = Journal(STDOUT)
    gateway = Gateway(config, environment, journal, history)
    limits = Limits(
        config.limits.head_bytes,
        config.limits.body_bytes,
        config.limits.pipelined_bytes,
        config.limits.requests_per_connection,
    )
    listener = Listener(
        gateway,
        limits,
        config.deadlines,
        connections=config.limits.connections,
        idle_seconds=config.limits.idle_connection_seconds,
    )
    try:
        async with trio.open_nursery() as process:
            process.start_soon(journal.run)
            process.start_soon(_expire_connections, gateway)
            # Before anybody knows that there is something to stop.
            await process.start(watch_signals, lambda: _begin_drain(process, listener, gateway), listener.cancel)
            await listener.serve(await open_sockets(config.server.host, config.server.port, "tidegate", say))
            process.cancel_scope.cancel(reason="served")
    finally:
        gateway.close()
        with trio.move_on_after(LAST_RECORDS, shield=True):
            await trio.to_thread.run_sync(journal.flush, abandon_on_cancel=True)
            await gateway.history.close()


def _begin_drain(process: trio.Nursery, listener: Listener, gateway: Gateway) -> None:
    gateway.is_draining = True
    process.start_soon(listener.drain, gateway.stop_turns)


async def _expire_connections(gateway: Gateway) -> None:
    while True:
        await trio.sleep(IDLE_SECONDS / 2)
        gateway.expire_connections()
        try:
            await gateway.history.expire()
        except (Broken, OSError) as error:
            log.warning("the history could not be looked through: %s", error)


def run(config: Config) -> int:
    """Serve; the process's exit status."""
    raise_file_limit()
    gc.freeze()  # what was imported stays; a collection need not look at it
    gc.set_threshold(*GC_THRESHOLDS)
    logging.basicConfig(
        stream=sys.stderr, level=config.log.level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        history = open_history(config)
    except (OSError, Broken) as error:
        say(f"tidegate: cannot use the history: {error}")
        return 1
    status = 0
    try:
        trio.run(serve, config, os.environ, history)
    except* OSError as errors:
        status = 1
        reason = errors.exceptions[0]
        say(f"tidegate: cannot listen on {config.server.host} port {config.server.port}: {reason}")
    return status
