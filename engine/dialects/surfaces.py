"""Which dialect a client speaks, by the path it asks for, and how an error is said in it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from engine.dialects.chat.faults import error_body
from engine.errors import Fault


class Surface(StrEnum):
    """The dialects' names, as the journal has them."""

    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"


def surface_of(path: str) -> Surface:
    """The dialect that a client of this path expects errors in."""
    if path.startswith("/v1/messages"):
        return Surface.MESSAGES
    if path.startswith(("/v1/responses", "/v1/conversations")):
        return Surface.RESPONSES
    return Surface.CHAT


def error_document(surface: Surface, fault: Fault, request_id: str) -> tuple[int, bytes]:
    """Status and body of an error answer. Anthropic's clients know fewer kinds, and 529 for what is transient."""
    if surface is not Surface.MESSAGES:
        return fault.status, error_body(fault)
    row = fault.row
    error = {"type": row.anthropic_type, "message": fault.message}
    body = {"type": "error", "error": error, "request_id": request_id}
    return row.anthropic_status or fault.status, msgspec.json.encode(body)
