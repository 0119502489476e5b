"""Healthy requests on the side: is the gateway still well, during a case and after it?"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import trio

from tests.cases.client import converse
from tests.cases.requests import Request
from tests.cases.upstream import PROBE_MODEL

POOL_PROBES = 50
POOL_AT_ONCE = 10
PROBE_PATIENCE_S = 5.0
PROBE_EVERY_S = 0.1


@dataclass
class Watch:
    """What probes beside an exchange saw: whether all were well, and the longest that one took."""

    all_ok: bool = True
    delays_ms: list[float] = field(default_factory=list)


async def probe(port: int, key: str) -> int | None:
    """The status of a healthy chat request; None unless it was answered whole and in time."""
    try:
        with trio.fail_after(PROBE_PATIENCE_S):
            answer = (await converse(port, [_request(key)])).main
    except trio.TooSlowError:
        return None
    is_whole = answer.ended == "clean" and (answer.status != 200 or b'"ok"' in answer.body)
    return answer.status if is_whole else None


async def probe_pool(port: int, key: str) -> int:
    """How many of 50 quick requests, ten at a time, succeed."""
    statuses: list[int | None] = []
    limit = trio.CapacityLimiter(POOL_AT_ONCE)

    async def one() -> None:
        async with limit:
            statuses.append(await probe(port, key))

    async with trio.open_nursery() as nursery:
        for _ in range(POOL_PROBES):
            nursery.start_soon(one)
    return statuses.count(200)


async def keep_probing(port: int, key: str, watch: Watch, over: trio.Event) -> None:
    """Until `over`. The probe that is under way then is still waited for: it may be the one that was held up."""
    while not over.is_set():
        began = trio.current_time()
        status = await probe(port, key)
        watch.delays_ms.append((trio.current_time() - began) * 1000)
        watch.all_ok &= status == 200
        await trio.sleep(PROBE_EVERY_S)


async def is_refused(port: int, key: str) -> bool:
    """Whether a new connection gets no service: not accepted, or answered with 503."""
    try:
        with trio.fail_after(PROBE_PATIENCE_S):
            seen = await converse(port, [_request(key)])
    except trio.TooSlowError:
        return False
    return seen.main.status in (None, 503)


def _request(key: str) -> Request:
    messages = [{"role": "user", "content": "are you well?"}]
    body = json.dumps({"model": PROBE_MODEL, "messages": messages, "stream": True}).encode()
    lines = [
        "POST /v1/chat/completions HTTP/1.1",
        "host: 127.0.0.1",
        f"authorization: Bearer {key}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        "connection: close",
    ]
    return Request(("\r\n".join(lines) + "\r\n\r\n").encode(), body)
