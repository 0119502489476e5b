"""The raw half of an observation: what was seen and logged, in the words that the checks use. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tests.cases.client import Seen
from tests.cases.observation import derive
from tests.cases.upstream import Served

Json = dict[str, Any]
_MIB = 1024 * 1024


def client_facts(seen: Seen) -> Json:
    main = seen.main
    return {
        "status": main.status,
        "headers": main.head.headers if main.head else {},
        "headers_text": main.head.text if main.head else "",
        "body": bytes(main.body),
        "ended": main.ended,
        "framing_ok": main.framing_ok,
        "t_first_byte_ms": ms_between(seen.started_at, main.first_byte_at),
        "t_end_ms": ms_between(seen.started_at, main.ended_at),
        "got_100": seen.got_100,
        "responses_on_connection": sum(bool(answer.head) for answer in seen.answers + seen.further),
        "connection_closed": seen.connection_closed,
        "all_complete": seen.all_as_wanted and all(answer.ended == "clean" for answer in seen.further),
        "resets": seen.resets,
    }


def upstream_facts(served: Sequence[Served], trigger: float | None, bytes_while_stalled: int | None) -> Json:
    """`trigger`: the moment from which the upstream's release is timed; None if it never came."""
    bytes_sent = sum(one.bytes_sent for one in served) if bytes_while_stalled is None else bytes_while_stalled
    closings = [one.closed_at for one in served]
    last_closing = None if None in closings else max((at for at in closings if at), default=None)
    return {
        "n": len(served),
        "requests": [one.as_json() for one in served],
        "finished": any(one.finished for one in served),
        "bytes_sent_mib": bytes_sent / _MIB,
        "closed_ms": None if trigger is None else ms_between(trigger, last_closing),
    }


def timing_facts(seen: Seen, served: Sequence[Served], dialect: str) -> Json:
    moments = [seen.started_at, *(at for at, _ in seen.main.arrivals)]
    if seen.main.ended_at is not None:
        moments.append(seen.main.ended_at)
    pause_over = served[0].pause_over_at if served else None
    body = seen.main.body_by(pause_over) if pause_over is not None else b""
    return {
        "text_before_pause": _text_so_far(body, dialect),
        "max_gap_ms": max(((b - a) * 1000 for a, b in pairwise(moments)), default=0.0),
    }


def ms_between(start: float, end: float | None) -> float | None:
    return None if end is None else (end - start) * 1000


def _text_so_far(body: bytes, dialect: str) -> str:
    """The answer's text in an unfinished stream."""
    seen = derive(dialect, {"client": {"headers": {"content-type": "text/event-stream"}, "body": body}})
    if dialect != "openai-responses":
        return "".join(seen[key]["text"] for key in ("chat", "anthropic") if key in seen)
    events = (event["json"] for event in seen["sse"]["events"] if isinstance(event["json"], dict))
    return "".join(it.get("delta", "") for it in events if it.get("type") == "response.output_text.delta")
