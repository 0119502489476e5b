"""Nothing but loopback: loaded by every Python process of a run, since its folder stands first in PYTHONPATH.

An address elsewhere fails the call, and is written down in the file that TIDEGATE_GATE_DENIED names: a run that tried
is not believed, whatever it then said.
"""

from __future__ import annotations

import ipaddress
import os
import sys

LOG = os.environ.get("TIDEGATE_GATE_DENIED")
NAMES = ("localhost", "ip6-localhost", "")


def is_here(host: object) -> bool:
    """Whether a host of a connect, sendto or name lookup is this machine. None and "" are every address of it."""
    if host is None:
        return True
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
    if name in NAMES:
        return True
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def hosts(event: str, arguments: tuple[object, ...]) -> list[object]:
    """The hosts that an audit event is about."""
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        address = arguments[1]
        return [address[0]] if isinstance(address, tuple) and address else []  # a path is a socket of this machine
    if event in ("socket.getaddrinfo", "socket.gethostbyname"):
        return [arguments[0]]
    return []


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if not event.startswith("socket."):
        return
    for host in hosts(event, arguments):
        if not is_here(host):
            if LOG is not None:
                with open(LOG, "a", encoding="utf-8") as log:  # noqa: PTH123 — pathlib is not loaded this early
                    log.write(f"{event} {host!r}\n")
            raise PermissionError(f"{event} to {host!r}: only loopback is allowed here")


if LOG is not None:
    sys.addaudithook(_watch)
