"""How many turns may run at once, for one tenant and in all. A lease is a context manager, so none can be lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from engine.errors import Fault, Kind, TurnError

RETRY_AFTER = "1"
"""Seconds. Turns end at any moment; a client that waits a second finds a place as likely as one that waits ten."""


class TurnLimits:
    """Counts what is leased, and refuses beyond the limits: nobody waits in here."""

    def __init__(self, in_all: int, per_tenant: int, of_tenants: Mapping[str, int]) -> None:
        self._in_all = in_all
        self._per_tenant = per_tenant
        self._of_tenants = of_tenants
        self._running: Counter[str] = Counter()

    @property
    def running(self) -> int:
        return self._running.total()

    @contextmanager
    def lease(self, tenant: str) -> Iterator[None]:
        """One turn's place. Raises TurnError (tenant_busy: 429, gateway_busy: 503), both with Retry-After."""
        limit = self._of_tenants.get(tenant, self._per_tenant)
        if self._running[tenant] >= limit:
            message = f"This key's {limit} concurrent turns are all in use."
            raise TurnError(Fault(Kind.TENANT_BUSY, message, retry_after=RETRY_AFTER))
        if self.running >= self._in_all:
            message = "The gateway has as many turns under way as it takes."
            raise TurnError(Fault(Kind.GATEWAY_BUSY, message, retry_after=RETRY_AFTER))
        self._running[tenant] += 1
        try:
            yield
        finally:
            self._running[tenant] -= 1
            if not self._running[tenant]:
                del self._running[tenant]
