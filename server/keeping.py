"""A Responses turn that is kept: written down before the client hears of its id, and again before it hears of the end.

So an id that a client has seen resolves, whatever became of the turn: completed, incomplete, failed or cancelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import trio

from engine.answers import MOST_WHOLE_BYTES, STREAM_HEADERS, TOO_LONG, Headers, Seen
from engine.deadlines import seconds
from engine.dialects.responses import Asked, Writer
from engine.errors import Fault, Kind, TurnError
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

    def __init__(self, store: Store | None, tenant: str, asked: Asked) -> None:
        self._store = store
        self._tenant = tenant
        self._parent = asked.request.previous_response_id
        self._given = msgspec.json.encode(asked.items)
        self._open: Record | None = None

    def refuse_what_is_too_large(self, response: Json) -> None:
        """Before an upstream is asked. Raises TurnError."""
        if self._store is not None and (size := self._record(response).size) > self._store.largest:
            message = f"The request has {size} bytes, and {self._store.largest} are kept of one: send `store: false`."
            raise TurnError(Fault(Kind.BODY_TOO_LARGE, message, param="store"))

    async def begin(self, response: Json) -> None:
        """Raises TurnError if it cannot be kept."""
        if self._store is None:
            return
        record = self._record(response)
        try:
            await self._store.begin(record)
        except (TooLarge, Broken, OSError) as error:
            raise TurnError(Fault(Kind.HISTORY_FAILED, NOT_KEPT)) from error
        self._open = record

    async def finish(self, response: Json) -> None:
        """Raises TurnError if it cannot be kept; it is still open then."""
        if self._store is None or self._open is None:
            return
        record = msgspec.structs.replace(self._open, answer=msgspec.json.encode(response), is_open=False)
        try:
            await self._store.finish(record)
        except (TooLarge, Broken, OSError) as error:
            raise TurnError(Fault(Kind.HISTORY_FAILED, NOT_KEPT)) from error
        self._open = None

    async def abandon(self, response: Json) -> None:
        """Whatever ended the turn without an end of its own: what was announced is cancelled. What cannot be written
        now stays under way until the process ends, and is failed then."""
        if self._open is not None:
            with trio.move_on_after(LAST_WRITE, shield=True), suppress(TurnError):
                await self.finish(response)

    def _record(self, response: Json) -> Record:
        return Record(
            id=response["id"],
            tenant=self._tenant,
            parent=self._parent,
            made_at=float(response["created_at"]),
            given=self._given,
            answer=msgspec.json.encode(response),
        )


class KeptAnswer:
    """Where a Responses turn's bursts go (`engine.turn.Answer`): as a stream, or whole."""

    def __init__(self, response: Response, writer: Writer, keeper: Keeper, headers: Headers, *, stream: bool) -> None:
        self._response = response
        self._writer = writer
        self._keeper = keeper
        self._stream = stream
        kind = writer.content_type if stream else b"application/json"
        self._headers = [(b"content-type", kind), *(STREAM_HEADERS if stream else ()), *headers]
        self._has_begun = False
        self._held = 0
        self.seen = Seen()

    async def deliver(self, burst: Burst) -> None:
        """A failure that is the first thing to say is raised, for a status of its own; nothing was announced then."""
        self.seen.look_at(burst)
        is_first = not self._response.has_started and not (self._stream and burst.has_events())
        if isinstance(burst.end, Failed) and is_first:
            raise TurnError(burst.end.fault)
        if self._stream:
            await self._deliver_piece(burst)
        else:
            await self._hold(burst)

    async def _deliver_piece(self, burst: Burst) -> None:
        if not self._has_begun:
            self._has_begun = True
            await self._keeper.begin(self._writer.made.as_object("in_progress", output=[]))
            if not self._response.has_started:
                self._response.begin_stream(200, self._headers)
        data = self._writer.encode(burst)
        if burst.end is not None:
            data += await self._end()
        await self._response.write(data, last=burst.end is not None)

    async def _hold(self, burst: Burst) -> None:
        """Nothing is announced before the document, and so nothing is written down before it."""
        self._held += len(self._writer.encode(burst))
        if self._held > MOST_WHOLE_BYTES:
            raise TurnError(TOO_LONG)
        if burst.end is not None:
            await self._keeper.begin(self._writer.made.as_object("in_progress", output=[]))
            assert self._writer.final is not None
            await self._keeper.finish(self._writer.final)
            body = msgspec.json.encode(self._writer.final)
            await self._response.send_whole(Rendered(200, self._headers, body))

    async def keep_alive(self) -> None:
        """A comment; before the document of a whole answer there is nothing to show."""
        if self._stream:
            if not self._response.has_started:
                self._response.begin_stream(200, self._headers)
            await self._response.write(self._writer.keep_alive)

    async def _end(self) -> bytes:
        """The terminal event, once what it says is written down."""
        assert self._writer.final is not None
        try:
            await self._keeper.finish(self._writer.final)
        except TurnError as error:
            self._writer.fail(error.fault)
            self.seen.fault, self.seen.is_whole = error.fault, False
            await self._keeper.abandon(
                self._writer.made.as_object("failed", output=[], error=self._writer.final["error"])
            )
        return self._writer.terminal()

    async def leave(self) -> None:
        """After the turn, however it ended."""
        await self._keeper.abandon(self._writer.made.as_object("cancelled", output=self._writer.done_items()))


async def conversation(store: Store, tenant: str, id_: str) -> list[Json]:
    """The items of a turn and of those before it. Raises TurnError naming what is missing."""
    chain = await chain_of(store, tenant, id_)
    items: list[Json] = []
    for record in chain:
        answer = msgspec.json.decode(record.answer)
        items += msgspec.json.decode(record.given)
        items += answer["output"]
    status = msgspec.json.decode(chain[-1].answer)["status"]
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
        message = f"There is no response `{shown(id_)}`; send the whole conversation in `input`."
        code = "previous_response_not_found"
        raise TurnError(Fault(Kind.UNKNOWN_RESPONSE, message, param="previous_response_id", code=code))
    return chain


def shown(id_: str) -> str:
    """An id that can be shown to the one who sent it."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in id_[:64])


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
