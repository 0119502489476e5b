"""For every ring: a test that leaves something behind fails, and an asynchronous one that never ends fails too."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Generator, Iterator

import pytest
import trio

from tests.helpers import leaks

LIMITS = {"lockstep": 100_000.0, "loopback": 60.0}
"""Seconds on the test's clock, by ring; for ring 2 the clock jumps there as soon as nothing else can happen."""


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    before = leaks.held()
    yield
    left = leaks.left_behind(before)
    assert not left, "the test left behind: " + ", ".join(left)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Asynchronous tests are looked at from inside the run: once it has ended, no task can be left."""
    if isinstance(item, pytest.Function) and item.get_closest_marker("trio") and not hasattr(item.obj, "hypothesis"):
        item.obj = _watched(item.obj, LIMITS.get(item.path.parent.name, float("inf")))
    return (yield)


def _watched(test: Callable[..., Awaitable[None]], limit: float) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def watched(**fixtures: object) -> None:
        before = leaks.tasks()
        with trio.fail_after(limit):
            await test(**fixtures)
        left = leaks.tasks_left(before)
        assert not left, "the test left behind: " + ", ".join(left)

    return watched
