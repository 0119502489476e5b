"""A history that lasts as long as the process."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import trio

from engine.history.book import Book, Bounds, Statistics
from engine.history.store import Broken, Record


class MemoryStore:
    """See `engine.history.store.Store`. `clock` gives seconds since 1970."""

    def __init__(self, bounds: Bounds, clock: Callable[[], float] = time.time) -> None:
        self._book = Book(bounds)
        self._records: dict[str, Record] = {}
        self._clock = clock

    @property
    def statistics(self) -> Statistics:
        return self._book.statistics

    @property
    def largest(self) -> int:
        return self._book.bounds.largest

    async def begin(self, record: Record) -> None:
        try:
            gone = self._book.add(record.entry(self._clock()))
        except KeyError:
            raise Broken(f"the turn {record.parent} is gone") from None
        self._records[record.id] = record
        self._let_go(gone)
        await trio.lowlevel.checkpoint()

    async def finish(self, record: Record) -> None:
        gone = self._book.close(record.id, record.size, self._clock())
        self._records[record.id] = record
        self._let_go(gone)
        await trio.lowlevel.checkpoint()

    async def get(self, tenant: str, id_: str) -> Record | None:
        chain = await self.chain(tenant, id_)
        return chain[-1] if chain is not None else None

    async def chain(self, tenant: str, id_: str) -> list[Record] | None:
        await trio.lowlevel.checkpoint()
        try:
            ids = self._book.resolve(tenant, id_, self._clock())
            return [self._records[each] for each in ids] if ids is not None else None
        except KeyError as missing:
            raise Broken(f"the turn {missing.args[0]} is missing") from None

    async def delete(self, tenant: str, id_: str) -> bool:
        await trio.lowlevel.checkpoint()
        if self._book.visible(tenant, id_, self._clock()) is None:
            return False
        self._let_go(self._book.hide(id_))
        return True

    async def expire(self) -> None:
        self._let_go(self._book.expire(self._clock()))
        await trio.lowlevel.checkpoint()

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()

    def _let_go(self, gone: Collection[str]) -> None:
        for id_ in gone:
            del self._records[id_]
