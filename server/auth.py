"""Who is calling: an API key to a tenant's name. Keys are kept as hashes and compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping

from msgspec import Struct

from engine.errors import Fault, Kind, TurnError

ANYBODY = "anybody"
"""The tenant of an open gateway."""
NO_KEY = "An API key is required, as `Authorization: Bearer KEY` or `x-api-key: KEY`."
WRONG_KEY = "The API key is not known to this gateway."


class Tenant(Struct, frozen=True):
    """A name, the SHA-256 hashes of its keys, and the turns it may have at once (None: the general limit)."""

    name: str
    hashes: tuple[bytes, ...]
    turns: int | None = None


def hash_key(key: str | bytes) -> bytes:
    """A key's SHA-256. Keys are long and random, so a slow password hash would add nothing but time."""
    return hashlib.sha256(key if isinstance(key, bytes) else key.encode()).digest()


def new_key() -> str:
    """A key with 256 random bits."""
    return f"tg-{secrets.token_urlsafe(32)}"


class Doorman:
    """Names the tenant of a request. Without tenants the gateway is open, and everybody is one tenant."""

    def __init__(self, tenants: Iterable[Tenant]) -> None:
        known = list(tenants)
        self._is_open = not known
        self._hashes = [(hash_, tenant.name) for tenant in known for hash_ in tenant.hashes]

    def tenant_of(self, headers: Mapping[bytes, bytes]) -> str:
        """The tenant's name. Raises TurnError (unauthenticated)."""
        if self._is_open:
            return ANYBODY
        key = presented_key(headers)
        if key is None:
            raise _refused(NO_KEY)
        shown = hash_key(key)
        found: str | None = None
        for known, name in self._hashes:  # all of them, whichever fits: the time tells nothing
            if hmac.compare_digest(known, shown):
                found = name
        if found is None:
            raise _refused(WRONG_KEY)
        return found


def presented_key(headers: Mapping[bytes, bytes]) -> bytes | None:
    """The key as OpenAI's clients send it, or as Anthropic's do."""
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer" and token.strip():
        return token.strip()
    return headers.get(b"x-api-key", b"").strip() or None


def _refused(message: str) -> TurnError:
    return TurnError(Fault(Kind.UNAUTHENTICATED, message, headers=((b"www-authenticate", b"Bearer"),)))
