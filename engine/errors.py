"""What can go wrong in a turn, whose fault it is, and what each dialect calls it. One table; nothing is decided twice.

A `Fault` is a value (it can be an event of a stream); a `TurnError` is the exception that carries one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct


class Origin(StrEnum):
    """Whose fault it is: what decides whether an upstream is blamed, retried or left alone."""

    CLIENT = "client"
    UPSTREAM = "upstream"
    GATEWAY = "gateway"


class Kind(StrEnum):
    """What went wrong. The names are the journal's and the `code` of errors that have no better one."""

    BAD_REQUEST = "bad_request"
    UNSUPPORTED_FIELD = "unsupported_field"
    UNKNOWN_RESPONSE = "unknown_response"
    UNAUTHENTICATED = "unauthenticated"
    NOT_FOUND = "not_found"
    UNKNOWN_MODEL = "unknown_model"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    UNSUPPORTED_MEDIA = "unsupported_media"
    REQUEST_TIMEOUT = "request_timeout"
    BODY_TOO_LARGE = "body_too_large"
    HEAD_TOO_LARGE = "head_too_large"
    TENANT_BUSY = "tenant_busy"
    CLIENT_LEFT = "client_left"
    CLIENT_STALLED = "client_stalled"
    CLIENT_OVERRAN = "client_overran"
    UPSTREAM_REFUSED = "upstream_refused"
    UPSTREAM_CREDENTIALS = "upstream_credentials"
    UPSTREAM_RATE_LIMIT = "upstream_rate_limit"
    UPSTREAM_OVERLOADED = "upstream_overloaded"
    UPSTREAM_FAILED = "upstream_failed"
    UPSTREAM_UNREACHABLE = "upstream_unreachable"
    UPSTREAM_TIMEOUT = "upstream_timeout"
    UPSTREAM_TRUNCATED = "upstream_truncated"
    UPSTREAM_PROTOCOL = "upstream_protocol"
    GATEWAY_BUSY = "gateway_busy"
    SHUTTING_DOWN = "shutting_down"
    TOTAL_TIMEOUT = "total_timeout"
    HISTORY_FAILED = "history_failed"
    INTERNAL = "internal"


class Row(NamedTuple):
    """One kind: status, whether the same request may succeed elsewhere or later, and the dialects' words for it.

    OpenAI's words are those of its error objects (platform.openai.com/docs/guides/error-codes), Anthropic's those of
    docs.anthropic.com/en/api/errors; there every transient fault is 529 `overloaded_error`, which its clients retry.
    """

    origin: Origin
    status: int
    retryable: bool
    openai_type: str
    openai_code: str | None
    anthropic_type: str
    anthropic_status: int | None = None


_C, _U, _G = Origin.CLIENT, Origin.UPSTREAM, Origin.GATEWAY
_BAD = "invalid_request_error"
_BUSY = ("overloaded_error", 529)

TABLE: dict[Kind, Row] = {
    Kind.BAD_REQUEST: Row(_C, 400, False, _BAD, None, _BAD),
    Kind.UNSUPPORTED_FIELD: Row(_C, 400, False, _BAD, "unsupported_parameter", _BAD),
    Kind.UNKNOWN_RESPONSE: Row(_C, 404, False, _BAD, "response_not_found", "not_found_error"),
    Kind.UNAUTHENTICATED: Row(_C, 401, False, _BAD, "invalid_api_key", "authentication_error"),
    Kind.NOT_FOUND: Row(_C, 404, False, _BAD, "unknown_url", "not_found_error"),
    Kind.UNKNOWN_MODEL: Row(_C, 404, False, _BAD, "model_not_found", "not_found_error"),
    Kind.METHOD_NOT_ALLOWED: Row(_C, 405, False, _BAD, "method_not_allowed", _BAD),
    Kind.UNSUPPORTED_MEDIA: Row(_C, 415, False, _BAD, "unsupported_media_type", _BAD),
    Kind.REQUEST_TIMEOUT: Row(_C, 408, True, _BAD, "request_timeout", _BAD),
    Kind.BODY_TOO_LARGE: Row(_C, 413, False, _BAD, "request_too_large", "request_too_large"),
    Kind.HEAD_TOO_LARGE: Row(_C, 431, False, _BAD, "request_header_fields_too_large", _BAD),
    Kind.TENANT_BUSY: Row(_C, 429, True, "rate_limit_error", "rate_limit_exceeded", "rate_limit_error"),
    Kind.CLIENT_LEFT: Row(_C, 499, False, _BAD, "client_disconnect", _BAD),
    Kind.CLIENT_STALLED: Row(_C, 499, False, _BAD, "client_stalled", _BAD),
    Kind.CLIENT_OVERRAN: Row(_C, 499, False, _BAD, "client_overran", _BAD),
    Kind.UPSTREAM_REFUSED: Row(_U, 400, False, _BAD, None, _BAD),
    Kind.UPSTREAM_CREDENTIALS: Row(_U, 502, True, "api_error", "upstream_credentials", "api_error"),
    Kind.UPSTREAM_RATE_LIMIT: Row(_U, 429, True, "rate_limit_error", "rate_limit_exceeded", "rate_limit_error"),
    Kind.UPSTREAM_OVERLOADED: Row(_U, 503, True, "server_error", "upstream_overloaded", *_BUSY),
    Kind.UPSTREAM_FAILED: Row(_U, 502, True, "server_error", "upstream_failed", "api_error"),
    Kind.UPSTREAM_UNREACHABLE: Row(_U, 502, True, "server_error", "upstream_unreachable", *_BUSY),
    Kind.UPSTREAM_TIMEOUT: Row(_U, 504, True, "server_error", "upstream_timeout", *_BUSY),
    Kind.UPSTREAM_TRUNCATED: Row(_U, 502, True, "server_error", "upstream_truncated", *_BUSY),
    Kind.UPSTREAM_PROTOCOL: Row(_U, 502, True, "server_error", "upstream_protocol", "api_error"),
    Kind.GATEWAY_BUSY: Row(_G, 503, True, "server_error", "server_busy", *_BUSY),
    Kind.SHUTTING_DOWN: Row(_G, 503, True, "server_error", "server_shutdown", *_BUSY),
    Kind.TOTAL_TIMEOUT: Row(_G, 504, False, "server_error", "total_timeout", "api_error"),
    Kind.HISTORY_FAILED: Row(_G, 503, True, "server_error", "history_failed", *_BUSY),
    Kind.INTERNAL: Row(_G, 500, False, "server_error", "internal_error", "api_error"),
}


class Fault(Struct, frozen=True):
    """One thing that went wrong, as a value.

    `message` is for the client's eyes: a sentence that names the field and says what would be right, without any
    address, path or key. The other fields override the table where the upstream said something more exact.
    """

    kind: Kind
    message: str
    param: str | None = None
    code: str | None = None
    type: str | None = None
    status_said: int | None = None
    more: dict[str, Any] = {}
    """Further members of an upstream's error object (`n_ctx`, …), passed on where the dialect is the same."""
    retry_after: str | None = None
    """The value of a Retry-After header (RFC 9110, 10.2.3), passed on as it was given."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Header fields for an answer with this fault: the upstream's rate limits, or the methods that are allowed."""

    @property
    def row(self) -> Row:
        return TABLE[self.kind]

    @property
    def origin(self) -> Origin:
        return self.row.origin

    @property
    def status(self) -> int:
        return self.status_said or self.row.status

    @property
    def retryable(self) -> bool:
        """Whether another upstream, or the same one later, may do better."""
        return self.row.retryable


class TurnError(Exception):
    """Ends a turn, or what it was about to do, with a fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"{fault.kind}: {fault.message}")
        self.fault = fault


def client_error(kind: Kind, message: str, param: str | None = None) -> TurnError:
    """A refusal that the client can mend."""
    return TurnError(Fault(kind, message, param=param))


def bad_field(param: str, what: str, kind: Kind = Kind.BAD_REQUEST) -> TurnError:
    """A refusal of one field: its name, and what of it is not right."""
    return client_error(kind, f"`{param}` {what}.", param)


def shown(said: str, most: int = 128) -> str:
    """What a client sent, as it can be shown to it: at most so many characters, and none that is not printable."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in said[:most])
