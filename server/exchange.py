"""One request through the gateway: who asks, what for, and the journal's record of it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from engine.answers import Seen
from engine.dialects.surfaces import Surface, error_document, surface_of
from engine.errors import Fault, Kind, Origin, TurnError
from engine.wire.http1_server import Request
from engine.wire.response import Rendered, Response
from server.auth import ANYBODY
from server.journal import Blame, Ending, Record

if TYPE_CHECKING:
    from server.gateway import Gateway

Route = Callable[["Exchange", Request, Response], Awaitable[None]]

LONGEST_NAME = 256
"""Characters of a model's name in the journal: the client chooses it, up to the size of a body."""
_CLIENTS_OWN_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_LOSSES: dict[Kind, Ending] = {
    Kind.CLIENT_LEFT: "client_left",
    Kind.CLIENT_STALLED: "client_stalled",
    Kind.CLIENT_OVERRAN: "cancelled",
}


class Exchange:
    """See `engine.wire.http1_server.Exchange`."""

    def __init__(self, gateway: Gateway, request: Request | None) -> None:
        self._gateway = gateway
        self._began = time.perf_counter()
        self.surface = surface_of(request.path) if request is not None else Surface.CHAT
        self.id = _request_id(request)
        self.tenant = ANYBODY
        self.refusal: Fault | None = None
        self._route: Route | None = None
        self._fault: Fault | None = None
        self.seen: Seen | None = None
        self.stopped_by: Fault | None = None
        self.record = Record(at=time.time(), id=self.id, dialect=str(self.surface))
        if request is not None:
            try:
                self._route, self.tenant = gateway.admit(request)
            except TurnError as error:
                self.refusal = error.fault
        self._is_turn = request is not None and gateway.is_turn(request)

    def name_model(self, model: str, *, stream: bool) -> None:
        """What the journal is to say of the request."""
        self.record.model, self.record.stream = model[:LONGEST_NAME], stream

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """What every answer has: the request's id; Anthropic's SDKs look for it under a name of their own as well."""
        fields = [(b"x-request-id", self.id.encode())]
        if self.surface is Surface.MESSAGES:
            fields.append((b"request-id", self.id.encode()))
        return fields

    async def respond(self, request: Request, response: Response) -> None:
        """Do what the route does. Raises TurnError. A bug ends here, as a fault of ours."""
        assert self._route is not None
        self.record.bytes_in = len(request.body)
        try:
            await self._route(self, request, response)
        except TurnError:
            raise
        except Exception as bug:
            self._gateway.log_bug(self.id, bug)
            raise TurnError(Fault(Kind.INTERNAL, "The gateway failed; its log says why.")) from bug

    async def send_json(self, response: Response, status: int, value: object) -> None:
        """A whole answer that is not a turn's. A value that is JSON already is given as `msgspec.Raw`."""
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), *self.headers]
        await response.send_whole(Rendered(status, headers, msgspec.json.encode(value)))

    def render(self, fault: Fault) -> Rendered:
        self._fault = fault
        status, body = error_document(self.surface, fault, self.id)
        headers = [(b"content-type", b"application/json"), *self.headers, *fault.headers]
        if fault.retry_after is not None:
            headers.append((b"retry-after", fault.retry_after.encode()))
        return Rendered(status, headers, body)

    def done(self, response: Response, loss: Kind | None) -> None:
        """Write the record, if the request was for a turn."""
        if not self._is_turn:
            return
        record, seen = self.record, self.seen
        record.tenant = self.tenant
        fault = self._fault or (seen.fault if seen is not None else None)
        if seen is not None:
            record.finish, record.usage = seen.finish, seen.usage
        record.end = self._ending(fault, loss)
        if loss is not None:
            fault = Fault(loss, "")
        elif record.end == "cancelled":
            fault = self.stopped_by
        record.fault = Blame(str(fault.origin), str(fault.kind)) if fault is not None else None
        record.status = response.status or (499 if loss is not None else None)
        record.bytes_out = response.bytes_sent
        if response.first_byte_at is not None:
            record.first_byte_ms = _milliseconds(response.first_byte_at - self._began)
        record.ms = _milliseconds(time.perf_counter() - self._began)
        self._gateway.journal.write(record)

    def _ending(self, fault: Fault | None, loss: Kind | None) -> Ending:
        if loss is not None:
            return _LOSSES.get(loss, "failed")
        if fault is not None:
            return "refused" if fault.origin is Origin.CLIENT or fault.kind is Kind.GATEWAY_BUSY else "failed"
        return "completed" if self.seen is not None and self.seen.is_whole else "cancelled"


def _request_id(request: Request | None) -> str:
    """The client's own id, if it sent one that can be written anywhere; else a new one."""
    given = request.headers.get(b"x-request-id") if request is not None else None
    if given is not None and _CLIENTS_OWN_ID.fullmatch(given):
        return given.decode()
    return f"req_{os.urandom(16).hex()}"


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
