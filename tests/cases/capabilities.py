"""What can be played today, in one table. Later work extends the table, not the runner.

An entry that needs more is not run, and says why; nothing is skipped in silence.
"""

from __future__ import annotations

from typing import Any

from tests.cases.actions import action_of
from tests.cases.plan import Entry, Exchange
from tests.cases.requests import UnknownRequest, requests_of
from tests.cases.script import Script, UnknownField
from tests.cases.settings import CLIENT_KEY, why_unsupported

Json = dict[str, Any]

CLIENT_DIALECTS = frozenset({"openai-chat", "openai-responses"})
UPSTREAM_DIALECTS = frozenset({"openai-chat", "none"})
FEATURES: frozenset[str] = frozenset()
# A request with a wrong key is refused before its dialect matters, in the shape of its surface.
DIALECTS_REFUSED_IN_SHAPE = frozenset({"openai-chat", "openai-responses", "anthropic-messages"})

_OBSERVED: dict[str, str] = {
    "client": "status headers headers_text text utf8 json ended t_first_byte_ms t_end_ms got_100 framing_ok "
    "responses_on_connection connection_closed all_complete resets",
    "upstream": "n requests closed_ms finished bytes_sent_mib",
    "timing": "text_before_pause max_gap_ms",
    "gateway": "alive log rss_growth_mib cpu_ms cpu_ratio upstream_sockets exit_code exit_after_last_ms "
    "exit_after_signal_ms",
    "probe": "status pool_ok during_ok max_delay_ms new_refused",
    "canary": "hits",
}
_DERIVED = frozenset({"sse", "chat", "anthropic", "responses", "anthropic_tools", "upstream_roles", "captured"})


def why_not(entry: Entry) -> str | None:
    """Why the entry cannot be run, in one line; None if it can."""
    if entry.unreadable:
        return entry.unreadable
    missing = sorted(set(entry.requires) - FEATURES)
    if missing:
        return f"{missing[0]} is not there yet"
    for exchange in entry.exchanges:
        reason = _why_not_exchange(exchange, entry.config)
        if reason:
            return reason
    if not any(one.check for exchange in entry.exchanges for one in exchange.expect):
        return "no sentence of it has a check"
    return why_unsupported(entry.config)


def _why_not_exchange(exchange: Exchange, config: Json) -> str | None:
    if not _is_served(exchange, config):
        return f"client dialect {exchange.client_dialect} is not served yet"
    if exchange.upstream_dialect not in UPSTREAM_DIALECTS:
        return f"upstream dialect {exchange.upstream_dialect} is not spoken yet"
    return _why_not_understood(exchange) or _why_not_observed(exchange)


def _is_served(exchange: Exchange, config: Json) -> bool:
    if exchange.client_dialect in CLIENT_DIALECTS or "raw_b64" in exchange.request:
        return exchange.client_dialect in CLIENT_DIALECTS
    keys = config.get("api_keys", [CLIENT_KEY])
    headers: dict[str, str] = exchange.request.get("headers", {})
    offered = headers.get("x-api-key", headers.get("authorization", "").removeprefix("Bearer "))
    return offered not in keys and exchange.client_dialect in DIALECTS_REFUSED_IN_SHAPE


def _why_not_understood(exchange: Exchange) -> str | None:
    try:
        requests_of(exchange.request)
        action_of(exchange.action)
        if exchange.script:
            Script.of(exchange.script)
    except (UnknownField, UnknownRequest) as unknown:
        return f"the runner does not understand: {unknown}"
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return f"the runner does not understand: {type(error).__name__} {error}"
    return None


def _why_not_observed(exchange: Exchange) -> str | None:
    """A path that nobody fills would satisfy every check for absence."""
    for path in sorted(exchange.paths):
        root, *rest = path.split(".")
        if root not in _DERIVED and (not rest or rest[0] not in _OBSERVED.get(root, "").split()):
            return f"the runner does not observe {path}"
    return None
