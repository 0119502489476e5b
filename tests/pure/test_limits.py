"""Leases of concurrent turns: for each tenant, and in all."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import Kind, TurnError
from server.limits import TurnLease, TurnLimits


def leases(stack: ExitStack, limits: TurnLimits, *tenants: str) -> None:
    for tenant in tenants:
        stack.enter_context(limits.lease(tenant))


def refusal(lease: TurnLease) -> tuple[Kind, int, str | None]:
    with pytest.raises(TurnError) as caught, lease:
        pass
    fault = caught.value.fault
    return fault.kind, fault.status, fault.retry_after


def test_a_tenant_beyond_its_limit_is_told_429_and_when_to_come_again() -> None:
    limits = TurnLimits(10, 2, {})
    with ExitStack() as stack:
        leases(stack, limits, "a", "a")
        assert refusal(limits.lease("a")) == (Kind.TENANT_BUSY, 429, "1")
        leases(stack, limits, "b")


def test_a_full_gateway_says_503_and_when_to_come_again() -> None:
    limits = TurnLimits(2, 2, {})
    with ExitStack() as stack:
        leases(stack, limits, "a", "b")
        assert refusal(limits.lease("c")) == (Kind.GATEWAY_BUSY, 503, "1")


def test_a_tenant_that_has_used_its_turns_up_is_told_so_by_a_full_gateway_too() -> None:
    """It can do something about its own turns; a gateway that is full it would ask again at once, or elsewhere."""
    limits = TurnLimits(1, 1, {})
    with ExitStack() as stack:
        leases(stack, limits, "a")
        assert refusal(limits.lease("a"))[0] is Kind.TENANT_BUSY


def test_a_tenant_s_own_limit_comes_before_the_general_one() -> None:
    limits = TurnLimits(10, 2, {"small": 1, "large": 3})
    with ExitStack() as stack:
        leases(stack, limits, "small", "large", "large", "large")
        assert refusal(limits.lease("small"))[0] is Kind.TENANT_BUSY
        assert refusal(limits.lease("large"))[0] is Kind.TENANT_BUSY


def test_a_refused_lease_takes_no_place() -> None:
    limits = TurnLimits(2, 1, {})
    with ExitStack() as stack:
        leases(stack, limits, "a")
        for _ in range(5):
            refusal(limits.lease("a"))
        leases(stack, limits, "b")
    assert limits.running == 0


def test_what_a_full_gateway_refused_is_not_held_against_its_tenant() -> None:
    limits = TurnLimits(1, 1, {})
    with ExitStack() as stack:
        leases(stack, limits, "a")
        for _ in range(2):
            assert refusal(limits.lease("b"))[0] is Kind.GATEWAY_BUSY
    with limits.lease("b"):
        assert limits.running == 1


def test_a_place_is_free_again_however_it_was_left() -> None:
    limits = TurnLimits(1, 1, {})
    with pytest.raises(KeyError), limits.lease("a"):
        raise KeyError
    with limits.lease("a"):
        assert limits.running == 1
    assert limits.running == 0


def test_a_lease_counts_only_while_it_is_held() -> None:
    limits = TurnLimits(1, 1, {})
    never_entered = limits.lease("a")
    with limits.lease("a"):
        pass
    with never_entered:
        assert limits.running == 1


def test_a_place_can_be_given_back_early_and_only_once() -> None:
    limits = TurnLimits(2, 2, {})
    with limits.lease("a"), limits.lease("a") as lease:
        lease.release()
        lease.release()
        assert limits.running == 1
        with limits.lease("a"):
            assert limits.running == 2
    assert limits.running == 0


def test_nothing_is_kept_of_tenants_that_have_no_turn() -> None:
    limits = TurnLimits(1, 1, {})
    for number in range(100):
        with limits.lease(f"tenant-{number}"):
            pass
    assert len(limits._running) == 0


@given(st.lists(st.sampled_from("abc"), max_size=30))
def test_no_order_of_coming_and_going_exceeds_a_limit(tenants: list[str]) -> None:
    limits = TurnLimits(4, 2, {"c": 1})
    held: dict[str, list[ExitStack]] = {tenant: [] for tenant in "abc"}
    for tenant in tenants:
        stack = ExitStack()
        try:
            leases(stack, limits, tenant)
        except TurnError:
            for given_back in held[tenant]:
                given_back.close()
            held[tenant].clear()
            continue
        held[tenant].append(stack)
        assert len(held[tenant]) <= (1 if tenant == "c" else 2)
        assert sum(map(len, held.values())) == limits.running <= 4
    for stacks in held.values():
        for stack in stacks:
            stack.close()
    assert limits.running == 0
