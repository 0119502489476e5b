"""The interface of a history, and a turn as a record. Contents are bytes here; only the dialect reads them."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from engine.history.book import Entry, Statistics


class Record(Struct, frozen=True):
    """One turn. `given` and `answer` are JSON: the client's items of this turn alone, and the response object."""

    id: str
    tenant: str
    parent: str | None
    made_at: float
    """Seconds since 1970."""
    given: bytes
    answer: bytes
    is_open: bool = True
    """Announced, and not over yet."""

    @property
    def size(self) -> int:
        """Bytes that it counts for: its contents, and as much again as its frame costs."""
        return len(self.given) + len(self.answer) + OVERHEAD

    def entry(self, used_at: float) -> Entry:
        return Entry(self.id, self.tenant, self.parent, self.size, self.made_at, used_at, self.is_open)


OVERHEAD = 512
"""Bytes for the ids, the times and the entries in indexes."""


class Broken(Exception):
    """A turn or an ancestor of it cannot be read. The message names it."""


class Store(Protocol):
    """Where turns are kept. Every method may raise Broken or OSError: then nothing has been kept."""

    @property
    def statistics(self) -> Statistics: ...

    @property
    def largest(self) -> int:
        """Bytes of one turn, by `Record.size`."""

    async def begin(self, record: Record) -> None:
        """Before a client hears of the id. Raises TooLarge."""

    async def finish(self, record: Record) -> None:
        """Before the client hears that it is over. Raises TooLarge: then the turn is as it was begun."""

    async def get(self, tenant: str, id_: str) -> Record | None:
        """None if the tenant has no such turn, whoever else may have it."""

    async def chain(self, tenant: str, id_: str) -> list[Record] | None:
        """A turn and its ancestors, the oldest first; None as above. Raises Broken if one is missing or unreadable."""

    async def delete(self, tenant: str, id_: str) -> bool:
        """Whether there was one. A child that continues it is not touched."""

    async def expire(self) -> None:
        """Let go of what is too old."""

    async def close(self) -> None:
        """Nothing more will be asked."""
