"""Who is calling: keys to tenants."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from engine.errors import Kind, TurnError
from server import auth
from server.auth import ANYBODY, Doorman, Tenant, hash_key, new_key, presented_key

KEYS = {name: f"key-of-{name}" for name in "abc"}


def doorman() -> Doorman:
    spare = hash_key("spare-key-of-a")
    tenants = [Tenant(name, (hash_key(key), spare) if name == "a" else (hash_key(key),)) for name, key in KEYS.items()]
    return Doorman(tenants)


def refusal(door: Doorman, headers: dict[bytes, bytes]) -> str:
    with pytest.raises(TurnError) as caught:
        door.tenant_of(headers)
    assert caught.value.fault.kind is Kind.UNAUTHENTICATED
    return caught.value.fault.message


@pytest.mark.parametrize("name", KEYS)
def test_a_key_names_its_tenant_in_either_header(name: str) -> None:
    key = KEYS[name].encode()
    for headers in (
        {b"authorization": b"Bearer " + key},
        {b"authorization": b"bearer   " + key + b" "},
        {b"x-api-key": key},
        {b"x-api-key": b" " + key + b" "},
    ):
        assert doorman().tenant_of(headers) == name


def test_a_tenant_may_have_several_keys() -> None:
    assert doorman().tenant_of({b"x-api-key": b"spare-key-of-a"}) == "a"


@pytest.mark.parametrize("key", [b"x", b"key-of-", b"key-of-aa", b"KEY-OF-A", b"\xff\xfe", b"key-of-a, key-of-a"])
def test_a_key_that_nobody_has_is_refused_without_showing_it(key: bytes) -> None:
    for headers in ({b"authorization": b"Bearer " + key}, {b"x-api-key": key}):
        message = refusal(doorman(), headers)
        assert key.decode("latin-1") not in message
        assert not any(name in message for name in KEYS.values())


@pytest.mark.parametrize(
    "headers",
    [{}, {b"authorization": b""}, {b"authorization": b"Bearer"}, {b"authorization": b"Bearer  "}, {b"x-api-key": b" "}],
)
def test_no_key_is_told_how_to_send_one(headers: dict[bytes, bytes]) -> None:
    message = refusal(doorman(), headers)
    assert "Bearer" in message
    assert "x-api-key" in message


def test_a_basic_password_is_no_key() -> None:
    assert presented_key({b"authorization": b"Basic a2V5LW9mLWE="}) is None


def test_a_wrong_bearer_is_not_made_good_by_a_right_x_api_key() -> None:
    refusal(doorman(), {b"authorization": b"Bearer wrong", b"x-api-key": KEYS["a"].encode()})


def test_the_hash_of_a_key_is_no_key() -> None:
    refusal(doorman(), {b"x-api-key": hash_key(KEYS["a"])})
    refusal(doorman(), {b"x-api-key": hash_key(KEYS["a"]).hex().encode()})


def test_without_tenants_everybody_is_one() -> None:
    assert Doorman([]).tenant_of({}) == ANYBODY
    assert Doorman([]).tenant_of({b"x-api-key": b"anything"}) == ANYBODY


def test_a_tenant_without_keys_opens_no_door() -> None:
    """Otherwise the last key to be taken back would let everybody in."""
    refusal(Doorman([Tenant("a", ())]), {})


def test_every_key_is_compared_in_constant_time_whichever_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []

    def compare(known: bytes, shown: bytes) -> bool:
        compared.append(known)
        return hmac.compare_digest(known, shown)

    class Watched:
        compare_digest = staticmethod(compare)

    monkeypatch.setattr(auth, "hmac", Watched)
    for key in (KEYS["a"], KEYS["c"]):
        compared.clear()
        doorman().tenant_of({b"x-api-key": key.encode()})
        assert len(compared) == 4


def test_a_key_is_hashed_by_sha256() -> None:
    assert hash_key("é") == hash_key("é".encode()) == hashlib.sha256("é".encode()).digest()


def test_new_keys_are_long_and_never_the_same() -> None:
    keys = {new_key() for _ in range(50)}
    assert len(keys) == 50
    assert all(key.startswith("tg-") and len(key) > 43 for key in keys)
