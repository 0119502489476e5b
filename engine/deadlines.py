"""Every deadline of a turn, as one frozen value. The same names serve configuration, errors and the journal.

A deadline is a cancel scope opened around the one await that can be slow, by the code that knows whose slowness it
is. This file only holds the numbers; who applies which is said beside each.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

Seconds = Annotated[float, Meta(ge=0, description="seconds; 0 switches it off")]
OFF = 0.0
"""A deadline of 0 seconds never comes."""


class Deadline(StrEnum):
    """The names, as they appear in errors and in the journal."""

    HEAD = "head"
    BODY = "body"
    CONNECT = "connect"
    FIRST_EVENT = "first_event"
    IDLE = "idle"
    TOTAL = "total"
    DRAIN = "drain"
    GRACE = "grace"


class Deadlines(Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds; 0 switches one off."""

    head: Seconds = 10.0
    """From a request's first byte to the end of its head. Late: the client. Applied by wire/http1_server.py."""
    body: Seconds = 60.0
    """From the end of the head to the end of the body. Late: the client. Applied by wire/http1_server.py."""
    connect: Seconds = 5.0
    """To get a connection to the upstream, pool and TLS included. Late: the upstream. Applied by wire/pool.py."""
    first_event: Seconds = 300.0
    """From the request to the answer's first event; long, since a prompt may be. Late: the upstream. upstreams/."""
    idle: Seconds = 120.0
    """Between two reads from the upstream after that. Late: the upstream. Applied by upstreams/http.py."""
    total: Seconds = OFF
    """The whole turn. The operator's policy. Applied by turn.py."""
    drain: Seconds = 30.0
    """One write to the client, renewed by progress. Late: the client. Applied by wire/http1_server.py."""
    grace: Seconds = 20.0
    """From the signal to stop to the end of the last turn; here 0 means none. Applied by server/listen.py."""


def seconds(deadline: float) -> float:
    """The deadline as trio's scopes take it: infinity where it is off."""
    return deadline if deadline > OFF else float("inf")
