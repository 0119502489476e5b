"""The Responses API: a turn that is kept, and what can be asked of those that are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import msgspec

from engine.dialects import responses
from engine.dialects.responses.items import Json
from engine.errors import Fault, Kind, TurnError, client_error, shown
from engine.history.store import Broken, Record, Store
from engine.prompt import Prompt
from engine.wire.http1_server import Request
from engine.wire.response import Response
from server.keeping import Keeper, KeptStream, KeptWhole, conversation

if TYPE_CHECKING:
    from server.exchange import Exchange
    from server.gateway import Gateway

PATH = re.compile(r"/v1/responses/(?P<id>[A-Za-z0-9_-]{1,128})(?P<rest>/input_items|/cancel)?")
LONGEST_LISTED = 1024
"""Characters of the header field that names what was left out."""
MOST_LISTED = 100
"""Items of one page."""


class Responses:
    """The routes of one gateway."""

    def __init__(self, gateway: Gateway, store: Store) -> None:
        self._gateway = gateway
        self._store = store

    async def create(self, exchange: Exchange, request: Request, response: Response) -> None:
        body = bytes(request.body)
        request.body.clear()  # what was asked has it now
        asked = responses.parse(body)
        exchange.name_model(asked.request.model, stream=bool(asked.request.stream))
        previous = asked.request.previous_response_id
        earlier = await conversation(self._store, exchange.tenant, previous) if previous is not None else []
        out = responses.outgoing(asked, earlier)
        prompt = Prompt(
            dialect="responses",
            model=asked.request.model,
            body=out.body,
            wants_stream=True,
            wants_usage=True,
            token_limit=asked.request.max_output_tokens,
            last_words=asked.request.input if isinstance(asked.request.input, str) else None,
        )
        writer = responses.Writer(asked, out.tools)
        keeper = Keeper(self._store if asked.is_stored else None, exchange.tenant, asked, writer)
        keeper.refuse_what_is_too_large()
        headers = [*exchange.headers, *_left_out(out.dropped)]
        stream = bool(asked.request.stream)
        answer = (KeptStream if stream else KeptWhole)(response, writer, keeper, headers)
        exchange.seen = answer.seen
        try:
            await self._gateway.run_turn(exchange, request, response, prompt, answer, stream=stream)
        finally:
            await keeper.abandon("cancelled")  # noqa: ASYNC102 — it shields itself, for a bounded time

    async def retrieve(self, exchange: Exchange, request: Request, response: Response) -> None:
        if _query(request).get("stream", ["false"])[-1] == "true":
            message = "`stream` is not supported here: the events of a response are not kept, the response is."
            raise client_error(Kind.UNSUPPORTED_FIELD, message, "stream")
        record = await self._record(exchange, request)
        await exchange.send_json(response, 200, msgspec.Raw(record.answer))

    async def delete(self, exchange: Exchange, request: Request, response: Response) -> None:
        id_ = _id_of(request)
        try:
            was_there = await self._store.delete(exchange.tenant, id_)
        except (Broken, OSError) as error:
            raise TurnError(Fault(Kind.HISTORY_FAILED, "The response could not be deleted.")) from error
        if not was_there:
            raise _unknown(id_)
        await exchange.send_json(response, 200, {"id": id_, "object": "response.deleted", "deleted": True})

    async def input_items(self, exchange: Exchange, request: Request, response: Response) -> None:
        """This turn's own items, the newest first unless asked otherwise."""
        record = await self._record(exchange, request)
        items = [_listed(item) for item in msgspec.json.decode(record.given)]
        await exchange.send_json(response, 200, _page(items, _query(request)))

    async def cancel(self, exchange: Exchange, request: Request, response: Response) -> None:  # noqa: ARG002
        await self._record(exchange, request)
        message = "Only a response that was made with `background: true` can be cancelled, and there are none here."
        raise client_error(Kind.BAD_REQUEST, message, "response_id")

    async def _record(self, exchange: Exchange, request: Request) -> Record:
        id_ = _id_of(request)
        try:
            record = await self._store.get(exchange.tenant, id_)
        except (Broken, OSError) as error:
            raise TurnError(Fault(Kind.HISTORY_FAILED, f"The response cannot be read: {error}.")) from error
        if record is None:
            raise _unknown(id_)
        return record


def _id_of(request: Request) -> str:
    match = PATH.fullmatch(request.path)
    assert match is not None
    return match["id"]


def _unknown(id_: str) -> TurnError:
    return client_error(Kind.UNKNOWN_RESPONSE, f"There is no response `{shown(id_, 64)}`.", "response_id")


def _query(request: Request) -> dict[str, list[str]]:
    return parse_qs(request.target.partition(b"?")[2].decode("ascii", "replace"), keep_blank_values=True)


def _left_out(dropped: list[str]) -> list[tuple[bytes, bytes]]:
    """What of the request has no place at this upstream, for whoever wants to know."""
    said = ", ".join(name for name in dropped if name.isascii() and name.isprintable())[:LONGEST_LISTED]
    return [(b"x-tidegate-dropped", said.encode())] if said else []


def _listed(item: Json) -> Json:
    """An item as the API shows it: text alone as a part, and with a status."""
    shown_item = dict(item)
    if item["type"] == "message" and isinstance(item["content"], str):
        kind = "output_text" if item["role"] == "assistant" else "input_text"
        shown_item["content"] = [{"type": kind, "text": item["content"]}]
    if item["type"] in ("message", "function_call", "function_call_output"):
        shown_item.setdefault("status", "completed")
    return shown_item


def _page(items: list[Json], query: dict[str, list[str]]) -> Json:
    """Raises TurnError naming the parameter."""
    order = query.get("order", ["desc"])[-1]
    if order not in ("asc", "desc"):
        raise client_error(Kind.BAD_REQUEST, "`order` is not `asc` or `desc`.", "order")
    said = query.get("limit", ["20"])[-1]
    if not said.isdecimal() or not 1 <= int(said) <= MOST_LISTED:
        raise client_error(Kind.BAD_REQUEST, f"`limit` is not a number from 1 to {MOST_LISTED}.", "limit")
    ordered: list[Json] = items if order == "asc" else items[::-1]
    if "after" in query:
        ids = [item["id"] for item in ordered]
        if query["after"][-1] not in ids:
            raise client_error(Kind.BAD_REQUEST, "`after` is not the id of one of the items.", "after")
        ordered = ordered[ids.index(query["after"][-1]) + 1 :]
    page = ordered[: int(said)]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(ordered) > len(page),
    }
