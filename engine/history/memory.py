"""A history that lasts as long as the process."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import trio

from engine.history.book import Book, Bounds, TooLarge
from engine.history.store import Broken, Record, Statistics


class MemoryStore:
    """See `engine.history.store.Store`. `clock` gives seconds since 1970."""

    def __init__(self, bounds: Bounds, clock: Callable[[], float] = time.time) -> None:
        self.statistics = Statistics()
        self.largest = bounds.largest
        self._book = Book(bounds)
        self._records: dict[str, Record] = {}
        self._clock = clock

    async def begin(self, record: Record) -> None:
        try:
            gone = self._book.add(record.entry(self._clock()))
        except TooLarge:
            self.statistics.refused += 1
            raise
        except KeyError:
            raise Broken(f"the turn {record.parent} is gone") from None
        self._records[record.id] = record
        self._let_go(gone)
        await trio.lowlevel.checkpoint()

    async def finish(self, record: Record) -> None:
        try:
            gone = self._book.close(record.id, record.size, self._clock())
        except TooLarge:
            self.statistics.refused += 1
            raise
        self._records[record.id] = record
        self.statistics.stored += 1
        self._let_go(gone)
        await trio.lowlevel.checkpoint()

    async def get(self, tenant: str, id_: str) -> Record | None:
        chain = await self.chain(tenant, id_)
        return chain[-1] if chain is not None else None

    async def chain(self, tenant: str, id_: str) -> list[Record] | None:
        await trio.lowlevel.checkpoint()
        now = self._clock()
        if self._book.visible(tenant, id_, now) is None:
            self.statistics.misses += 1
            return None
        self.statistics.hits += 1
        try:
            return [self._records[each] for each in self._book.chain(id_, now)]
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
        book, statistics = self._book, self.statistics
        statistics.gone += len(gone)
        statistics.turns, statistics.bytes, statistics.tenants = len(book), book.bytes, book.tenants
