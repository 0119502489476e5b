"""A Responses turn that is kept: written down before the client hears of its id, and again before it hears of the end.

So an id that a client has seen resolves, whatever became of the turn: completed, incomplete, failed or cancelled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import trio

from engine.answers import MOST_WHOLE_BYTES, TOO_LONG, Headers, Seen, StreamAnswer
from engine.deadlines import seconds
from engine.dialects.responses import Asked, Writer
from engine.errors import Fault, Kind, TurnError, shown
from engine.events import Burst, Failed
from engine.history.book import Bounds, TooLarge
from engine.history.memory import MemoryStore
from engine.history.sqlite import open_store
from engine.history.store import Broken, Record, Store
from engine.wire.response import Rendered, Response
from server.config import Config

Json = dict[str, Any]
LAST_WRITE = 2.0
"""Seconds for writing down that a turn was cancelled: its client is gone, and nobody else waits for it."""
NOT_KEPT = "The response could not be kept, and its id would not resolve. Ask again, or send `store: false`."


class Keeper:
    """Writes one turn down, or nothing where the client does not want it kept (`store` is None)."""

    def __init__(self, store: Store | None, tenant: str, asked: Asked, writer: Writer) -> None:
        self._store = store
        self._writer = writer
        self._record = Record(
            id=writer.made.id,
            tenant=tenant,
            parent=asked.request.previous_response_id,
            made_at=float(writer.made.created_at),
            given=msgspec.json.encode(asked.items),
            answer=bytes(writer.announced),
        )
        self._is_open = False

    def refuse_what_is_too_large(self) -> None:
        """Before an upstream is asked. Raises TurnError."""
        if self._store is not None and (size := self._record.size) > self._store.largest:
            message = f"The request has {size} bytes, and {self._store.largest} are kept of one: send `store: false`."
            raise TurnError(Fault(Kind.BODY_TOO_LARGE, message, param="store"))

    async def begin(self) -> None:
        """Raises TurnError if it cannot be kept."""
        if self._store is not None:
            with _as_turn_errors():
                await self._store.begin(self._record)
            self._is_open = True

    async def finish(self, answer: msgspec.Raw | None) -> None:
        """Raises TurnError if it cannot be kept; it is still open then."""
        assert answer is not None
        if self._store is not None and self._is_open:
            with _as_turn_errors():
                await self._store.finish(msgspec.structs.replace(self._record, answer=bytes(answer), is_open=False))
            self._is_open = False

    async def abandon(self, status: str) -> None:
        """Whatever ended the turn without an end of its own: what was announced is failed or cancelled. What cannot be
        written now stays under way until the process ends, and is failed then."""
        if self._is_open:
            with trio.move_on_after(LAST_WRITE, shield=True), suppress(TurnError):
                await self._finish_with_what_fits(status)

    async def _finish_with_what_fits(self, status: str) -> None:
        try:
            await self.finish(self._writer.response(status, self._writer.done_items()))
        except TurnError:  # it may have been too large
            await self.finish(self._writer.response(status, []))


@contextmanager
def _as_turn_errors() -> Iterator[None]:
    try:
        yield
    except (TooLarge, Broken, OSError) as error:
        raise TurnError(Fault(Kind.HISTORY_FAILED, NOT_KEPT)) from error


class KeptStream(StreamAnswer):
    """A stream whose id is written down before it is said, and whose end is before it is heard."""

    def __init__(self, response: Response, writer: Writer, keeper: Keeper, headers: Headers) -> None:
        super().__init__(response, writer, headers)
        self._events = writer
        self._keeper = keeper
        self._has_begun = False

    async def deliver(self, burst: Burst) -> None:
        """A failure that is the first thing to say is raised, for a status of its own; nothing was announced then."""
        self._look_at(burst)
        if not self._has_begun:
            self._has_begun = True
            await self._keeper.begin()
        self._begin()
        data = self._events.encode(burst)
        if burst.end is not None:
            await self._end()
            data += self._events.terminal()
        await self._response.write(data, last=burst.end is not None)

    async def _end(self) -> None:
        """Write down what the terminal event says; where that fails, it says so."""
        try:
            await self._keeper.finish(self._events.final)
        except TurnError as error:
            self._events.fail(error.fault)
            self.seen.fault, self.seen.is_whole = error.fault, False
            await self._keeper.abandon("failed")


class KeptWhole:
    """One document (`engine.turn.Answer`). Nothing is announced before it, and so nothing is written down before it."""

    def __init__(self, response: Response, writer: Writer, keeper: Keeper, headers: Headers) -> None:
        self._response = response
        self._events = writer
        self._keeper = keeper
        self._headers = [(b"content-type", b"application/json"), *headers]
        self._held = 0
        self.seen = Seen()

    async def deliver(self, burst: Burst) -> None:
        """A failure is raised, for a status of its own: half a document is none."""
        self.seen.look_at(burst)
        if isinstance(burst.end, Failed):
            raise TurnError(burst.end.fault)
        self._held += len(self._events.encode(burst))
        if self._held > MOST_WHOLE_BYTES:
            raise TurnError(TOO_LONG)
        if burst.end is not None:
            assert self._events.final is not None
            await self._keeper.begin()
            await self._keeper.finish(self._events.final)
            await self._response.send_whole(Rendered(200, self._headers, bytes(self._events.final)))

    async def keep_alive(self) -> None:
        """There is nothing to show before the document."""


async def conversation(store: Store, tenant: str, id_: str) -> list[Json]:
    """The items of a turn and of those before it. Raises TurnError naming what is missing."""
    chain = await chain_of(store, tenant, id_)
    items: list[Json] = []
    status = ""
    for record in chain:
        answer = msgspec.json.decode(record.answer)
        items += msgspec.json.decode(record.given)
        items += answer["output"]
        status = answer["status"]
    if status not in ("completed", "incomplete"):
        message = f"`previous_response_id` names a response that is {status}: only a whole one can be continued."
        raise TurnError(Fault(Kind.BAD_REQUEST, message, param="previous_response_id"))
    return items


async def chain_of(store: Store, tenant: str, id_: str) -> Sequence[Record]:
    try:
        chain = await store.chain(tenant, id_)
    except (Broken, OSError) as error:
        raise TurnError(Fault(Kind.HISTORY_FAILED, f"The conversation cannot be read: {error}.")) from error
    if chain is None:
        message = f"There is no response `{shown(id_, 64)}`; send the whole conversation in `input`."
        code = "previous_response_not_found"
        raise TurnError(Fault(Kind.UNKNOWN_RESPONSE, message, param="previous_response_id", code=code))
    return chain


def bounds_of(config: Config) -> Bounds:
    history = config.history
    return Bounds(
        idle=seconds(history.idle_seconds),
        age=seconds(history.age_seconds),
        turns=history.turns,
        bytes=history.bytes,
        least_share=history.tenant_bytes,
    )


def open_history(config: Config) -> Store:
    """Raises OSError, InUse, Broken."""
    if config.history.path is None:
        return MemoryStore(bounds_of(config))
    return open_store(Path(config.history.path), bounds_of(config), failed)


def failed(answer: bytes) -> bytes:
    """The response object of a turn that was under way when its process died."""
    response = msgspec.json.decode(answer)
    error = {"code": "server_error", "message": "The gateway ended before the response was complete."}
    return msgspec.json.encode({**response, "status": "failed", "error": error})
