"""A history in a file of SQLite's: write-ahead log, a version of its schema, one writer off the event loop.

One process has the file; a second one is told so. What was under way when a process died is marked as failed when the
next one opens the file, so that no turn is in progress for ever.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import trio

from engine.history.book import Book, Bounds, Entry, Statistics
from engine.history.store import OVERHEAD, Broken, Record

T = TypeVar("T")
MIGRATIONS = (
    """
    CREATE TABLE turns (
        id TEXT PRIMARY KEY,
        tenant TEXT NOT NULL,
        parent TEXT,
        made_at REAL NOT NULL,
        used_at REAL NOT NULL,
        is_open INTEGER NOT NULL,
        is_hidden INTEGER NOT NULL DEFAULT 0,
        given BLOB NOT NULL,
        answer BLOB NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
)
"""What leads from each version of the schema to the next; `PRAGMA user_version` is how many have been done."""
BUSY = 5.0
"""Seconds to wait for a lock that another program, a backup say, holds on the file."""


class InUse(OSError):
    """Another process has the file."""


class SqliteStore:
    """See `engine.history.store.Store`. Made by `open_store`."""

    def __init__(self, database: sqlite3.Connection, lock: int, book: Book, clock: Callable[[], float]) -> None:
        self._database = database
        self._lock = lock
        self._book = book
        self._clock = clock
        self._one = trio.CapacityLimiter(1)

    @property
    def statistics(self) -> Statistics:
        return self._book.statistics

    @property
    def largest(self) -> int:
        return self._book.bounds.largest

    async def begin(self, record: Record) -> None:
        def begin() -> None:
            try:
                self._write(record, _INSERT, self._book.add(record.entry(self._clock())))
            except KeyError:
                raise Broken(f"the turn {record.parent} is gone") from None
            except sqlite3.Error:  # what is in the book alone would be under way for ever
                self._book.discard(record.id)
                raise

        await self._in_thread(begin)

    async def finish(self, record: Record) -> None:
        await self._in_thread(
            lambda: self._write(record, _UPDATE, self._book.close(record.id, record.size, self._clock()))
        )

    async def get(self, tenant: str, id_: str) -> Record | None:
        chain = await self._in_thread(lambda: self._read(tenant, id_, slice(-1, None)))
        return chain[0] if chain is not None else None

    async def chain(self, tenant: str, id_: str) -> list[Record] | None:
        return await self._in_thread(lambda: self._read(tenant, id_, slice(None)))

    async def delete(self, tenant: str, id_: str) -> bool:
        def delete() -> bool:
            if self._book.visible(tenant, id_, self._clock()) is None:
                return False
            with self._database:
                self._database.execute("UPDATE turns SET is_hidden = 1 WHERE id = ?", (id_,))
                self._remove(self._book.hide(id_))
            return True

        return await self._in_thread(delete)

    async def expire(self) -> None:
        def expire() -> None:
            with self._database:
                self._remove(self._book.expire(self._clock()))

        await self._in_thread(expire)

    async def close(self) -> None:
        def close() -> None:
            with self._database:
                used = [(entry.used_at, entry.id) for entry in self._book.entries()]
                self._database.executemany("UPDATE turns SET used_at = ? WHERE id = ?", used)
            self._database.close()
            os.close(self._lock)

        await self._in_thread(close, abandon=True)

    def _write(self, record: Record, statement: str, gone: Collection[str]) -> None:
        with self._database:
            self._database.execute(statement, _fields(record, self._clock()))
            self._remove(gone)

    def _read(self, tenant: str, id_: str, part: slice) -> list[Record] | None:
        try:
            ids = self._book.resolve(tenant, id_, self._clock())
        except KeyError as missing:
            raise Broken(f"the turn {missing.args[0]} is missing") from None
        return [self._one_of(each) for each in ids[part]] if ids is not None else None

    def _one_of(self, id_: str) -> Record:
        query = "SELECT id, tenant, parent, made_at, given, answer, is_open FROM turns WHERE id = ?"
        try:
            row = self._database.execute(query, (id_,)).fetchone()
        except sqlite3.DatabaseError as error:
            raise Broken(f"the turn {id_} cannot be read: {error}") from None
        if row is None:
            raise Broken(f"the turn {id_} is missing")
        found, tenant, parent, made_at, given, answer, is_open = row
        return Record(found, tenant, parent, made_at, given, answer, bool(is_open))

    def _remove(self, gone: Collection[str]) -> None:
        self._database.executemany("DELETE FROM turns WHERE id = ?", [(id_,) for id_ in gone])

    async def _in_thread(self, work: Callable[[], T], *, abandon: bool = False) -> T:
        """One at a time, in the order of asking. A cancellation waits for it, so that nothing is half done; but for the
        last work of all, which ends with the process."""
        try:
            return await trio.to_thread.run_sync(work, limiter=self._one, abandon_on_cancel=abandon)
        except sqlite3.Error as error:
            raise Broken(f"the history cannot be written or read: {error}") from error


def open_store(
    path: Path, bounds: Bounds, failed: Callable[[bytes], bytes], clock: Callable[[], float] = time.time
) -> SqliteStore:
    """Open the file, or make it. `failed` turns the answer of a turn that was under way into one that failed. Raises
    OSError, InUse, Broken. Blocks; it is for the start of a process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as failing:
        lock = _lock(path.with_name(path.name + ".lock"))
        failing.callback(os.close, lock)
        try:
            database = sqlite3.connect(path, timeout=BUSY, check_same_thread=False)
            failing.callback(database.close)
            store = SqliteStore(database, lock, _prepare(database, bounds, failed), clock)
        except sqlite3.Error as error:
            raise Broken(f"{path} cannot be used as a history: {error}") from error
        failing.pop_all()
    return store


def _prepare(database: sqlite3.Connection, bounds: Bounds, failed: Callable[[bytes], bytes]) -> Book:
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")  # a crash of the process loses nothing; one of the machine the last
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version > len(MIGRATIONS):
        raise Broken(f"the history has version {version}, and this gateway knows {len(MIGRATIONS)}")
    for number, migration in enumerate(MIGRATIONS[version:], version + 1):
        with database:
            database.execute("BEGIN")  # Python begins none for a change of the schema
            database.execute(migration)
            database.execute(f"PRAGMA user_version = {number}")
    with database:
        for id_, answer in database.execute("SELECT id, answer FROM turns WHERE is_open").fetchall():
            database.execute("UPDATE turns SET is_open = 0, answer = ? WHERE id = ?", (failed(answer), id_))
    book = Book(bounds)
    rows = database.execute(_ENTRIES, (OVERHEAD,)).fetchall()
    book.restore(
        [
            Entry(id_, tenant, parent, size, made_at, used_at, bool(is_open), bool(is_hidden))
            for id_, tenant, parent, size, made_at, used_at, is_open, is_hidden in rows
        ]
    )
    return book


_ENTRIES = """SELECT id, tenant, parent, length(given) + length(answer) + ?, made_at, used_at, is_open, is_hidden
    FROM turns"""
_INSERT = """INSERT INTO turns (id, tenant, parent, made_at, given, answer, is_open, used_at)
    VALUES (:id, :tenant, :parent, :made_at, :given, :answer, :is_open, :used_at)"""
_UPDATE = "UPDATE turns SET answer = :answer, is_open = :is_open, used_at = :used_at WHERE id = :id"


def _fields(record: Record, now: float) -> dict[str, object]:
    return {
        "id": record.id,
        "tenant": record.tenant,
        "parent": record.parent,
        "made_at": record.made_at,
        "given": record.given,
        "answer": record.answer,
        "is_open": int(record.is_open),
        "used_at": now,
    }


def _lock(path: Path) -> int:
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise InUse(f"another process has the history {path.with_suffix('')}") from None
    return lock
