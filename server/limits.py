"""How many turns may run at once, for one tenant and in all. A lease is a context manager, so none can be lost."""

from __future__ import annotations

from collections.abc import Mapping

from engine.errors import Fault, Kind, TurnError

RETRY_AFTER = "1"
"""Seconds. Turns end at any moment; a client that waits a second finds a place as likely as one that waits ten."""


class TurnLimits:
    """Counts what is leased, and refuses beyond the limits: nobody waits in here."""

    def __init__(self, in_all: int, per_tenant: int, of_tenants: Mapping[str, int]) -> None:
        self._in_all = in_all
        self._per_tenant = per_tenant
        self._of_tenants = of_tenants
        self._running: dict[str, int] = {}
        self.running = 0

    def lease(self, tenant: str) -> TurnLease:
        """One turn's place, as a context manager.

        Entering it raises TurnError (tenant_busy: 429, gateway_busy: 503), both with Retry-After.
        """
        return TurnLease(self, tenant)

    def take(self, tenant: str) -> None:
        limit = self._of_tenants.get(tenant, self._per_tenant)
        if self._running.get(tenant, 0) >= limit:
            message = f"This key's {limit} concurrent turns are all in use."
            raise TurnError(Fault(Kind.TENANT_BUSY, message, retry_after=RETRY_AFTER))
        if self.running >= self._in_all:
            message = "The gateway has as many turns under way as it takes."
            raise TurnError(Fault(Kind.GATEWAY_BUSY, message, retry_after=RETRY_AFTER))
        self._running[tenant] = self._running.get(tenant, 0) + 1
        self.running += 1

    def give_back(self, tenant: str) -> None:
        self.running -= 1
        self._running[tenant] -= 1
        if not self._running[tenant]:
            del self._running[tenant]


class TurnLease:
    """A place for one turn, from `with` to its end."""

    __slots__ = ("_is_held", "_limits", "_tenant")

    def __init__(self, limits: TurnLimits, tenant: str) -> None:
        self._limits = limits
        self._tenant = tenant
        self._is_held = False

    def __enter__(self) -> TurnLease:
        self._limits.take(self._tenant)
        self._is_held = True
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Give the place back, if that has not been done: at the answer's last byte, or at the latest with the turn."""
        if self._is_held:
            self._is_held = False
            self._limits.give_back(self._tenant)
