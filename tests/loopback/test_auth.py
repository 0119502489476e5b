"""Who may ask, and how a stranger is told: keys in either header, and never a word about anybody's key."""

from __future__ import annotations

import json

import pytest

from server.auth import hash_key
from tests.helpers.gateway import connected_to, gateway

KEY_A, KEY_B = "tg-key-of-a", "tg-key-of-b"
TENANTS = f'tenants=[{{name="a",keys=["sha256:{hash_key(KEY_A).hex()}"]}},{{name="b",keys=["env:KEY_B"]}}]'
ENVIRONMENT = {"KEY_B": KEY_B}

GOOD = [
    (f"Authorization: Bearer {KEY_A}", "a"),
    (f"authorization: bearer {KEY_B}", "b"),
    (f"Authorization: Bearer   {KEY_B} ", "b"),
    (f"x-api-key: {KEY_A}", "a"),
    (f"X-API-Key: {KEY_B}", "b"),
]
BAD = [
    "X-Nothing: 1",
    "Authorization: Bearer tg-key-of-c",
    f"Authorization: Basic {KEY_A}",
    f"Authorization: {KEY_A}",
    "Authorization: Bearer ",
    "x-api-key: ",
    f"x-api-key: {KEY_A}x",
    f"Cookie: key={KEY_A}",
]


@pytest.mark.parametrize(("field", "tenant"), GOOD)
async def test_a_key_in_either_header_names_its_tenant(field: str, tenant: str) -> None:
    async with gateway(TENANTS, environment=ENVIRONMENT) as running:
        assert (await running.chatted("simulated", field)).status == 200
        assert (await running.journal.record())["tenant"] == tenant


@pytest.mark.parametrize("field", BAD)
async def test_a_stranger_is_refused_in_openais_words(field: str) -> None:
    async with gateway(TENANTS, environment=ENVIRONMENT) as running:
        answer = await running.chatted("simulated", field)
        error = json.loads(answer.body)["error"]
        assert (answer.status, error["code"], error["param"]) == (401, "invalid_api_key", None)
        assert answer.headers["www-authenticate"] == "Bearer"  # RFC 9110, 15.5.2: a 401 has to say it
        assert isinstance(error["message"], str)
        assert isinstance(error["type"], str)
        assert "tg-key" not in answer.body.decode() + "".join(running.journal.lines)
        record = await running.journal.record()
        assert (record["end"], record["fault"]["kind"]) == ("refused", "unauthenticated")


async def test_a_stranger_at_anthropics_path_is_refused_in_anthropics_words() -> None:
    async with gateway(TENANTS, environment=ENVIRONMENT) as running:
        answer = await running.ask("POST /v1/messages HTTP/1.1", "x-api-key: wrong", body=b"{}")
        document = json.loads(answer.body)
        assert (answer.status, document["type"]) == (401, "error")
        assert document["error"]["type"] == "authentication_error"


@pytest.mark.parametrize("path", ["/v1/models", "/v1/nothing", "/v1"])
async def test_nothing_below_v1_is_shown_to_a_stranger(path: str) -> None:
    async with gateway(TENANTS, environment=ENVIRONMENT) as running:
        assert (await running.ask(f"GET {path} HTTP/1.1")).status == 401


@pytest.mark.parametrize("path", ["/", "/health", "/livez", "/readyz"])
async def test_health_needs_no_key(path: str) -> None:
    async with gateway(TENANTS, environment=ENVIRONMENT) as running:
        assert (await running.ask(f"GET {path} HTTP/1.1")).status == 200


async def test_a_refused_client_keeps_its_connection() -> None:
    async with gateway(TENANTS, environment=ENVIRONMENT) as running, connected_to(running.port) as client:
        assert (await client.chatted("simulated")).status == 401
        assert (await client.chatted("simulated", f"x-api-key: {KEY_A}")).status == 200
