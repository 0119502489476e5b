"""What the kernel holds of every loopback connection, from /proc/net/tcp: both ends, whoever owns them. Linux.

The proxy's sockets are on the same machine, so its kernel buffers can be told apart from its memory without
asking it.
"""

from dataclasses import dataclass
from pathlib import Path

Ends = tuple[int, int]  # local port, remote port


@dataclass(frozen=True)
class Queue:
    """Bytes at one end of a connection."""

    unsent: int  # written by the owner and not yet with the other side's kernel
    unread: int  # with this side's kernel and not read by the owner


def read_queues() -> dict[Ends, Queue]:
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return dict(map(parse, lines))


def parse(line: str) -> tuple[Ends, Queue]:
    """`sl local_address rem_address st tx_queue:rx_queue …`, numbers in hexadecimal (proc_pid_net(5))."""
    _, local, remote, _, sizes, *_ = line.split()
    unsent, unread = sizes.split(":")
    return (port(local), port(remote)), Queue(int(unsent, 16), int(unread, 16))


def port(address: str) -> int:
    return int(address.partition(":")[2], 16)
