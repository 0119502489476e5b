"""Which upstreams a model's name leads to: the first entry that fits, in its order, with its alias."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.errors import Fault, Kind, TurnError
from engine.prompt import Prompt
from engine.turn import Upstream
from engine.wire.http1 import Headers
from engine.wire.pool import Pool
from server.config import ModelConfig
from server.models import ModelTable
from server.upstreams import Fields


class Unreachable:
    """An upstream that notes what it is asked for, and then cannot be reached."""

    def __init__(self, log: list[tuple[str, str]], name: str) -> None:
        self.pool: Pool | None = None
        self.pass_headers: tuple[bytes, ...] = (b"user-agent",)
        self.passed_on: Fields = []
        self._log = log
        self._name = name

    def open(self, prompt: Prompt, model: str, passed_on: Fields) -> Upstream:
        self._log.append((self._name, model))
        self.passed_on = passed_on
        raise TurnError(Fault(Kind.UPSTREAM_UNREACHABLE, f"{prompt.model} is not to be had."))


class Table:
    """A model table over upstreams `a`, `b` and `c`, and what they were asked for."""

    def __init__(self, *models: dict[str, Any]) -> None:
        self.asked: list[tuple[str, str]] = []
        self.openers = {name: Unreachable(self.asked, name) for name in "abc"}
        self._table = ModelTable(msgspec.convert(models, list[ModelConfig]), self.openers)

    async def ask(self, model: str, headers: Headers | None = None) -> TurnError:
        route = self._table.route(Prompt("chat", model, b"{}"), headers or {}, "req_1")
        with pytest.raises(TurnError) as caught:
            await route.__aenter__()
        assert route.tried == [name for name, _ in self.asked]
        return caught.value

    async def names(self) -> list[str]:
        return [entry["id"] for entry in await self._table.listing()]


def model(name: str, *upstreams: object) -> dict[str, Any]:
    return {"name": name, "upstreams": list(upstreams)}


async def test_the_first_entry_that_fits_serves_the_name() -> None:
    table = Table(model("gpt-4", "a"), model("gpt-*", "b"), model("*", "c"))
    for name in ("gpt-4", "gpt-5", "llama", "gpt-4x"):
        await table.ask(name)
        table.asked[:-1] = []
        expected = {"gpt-4": "a", "llama": "c"}.get(name, "b")
        assert table.asked.pop() == (expected, name)


async def test_an_entry_behind_a_wider_one_is_never_asked() -> None:
    table = Table(model("*", "a"), model("gpt-4", "b"))
    await table.ask("gpt-4")
    assert table.asked == [("a", "gpt-4")]


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("gpt-?", "gpt-4", True),
        ("gpt-?", "gpt-45", False),
        ("gpt-4", "GPT-4", False),
        ("gpt-4", "gpt-4\n", False),
        ("gpt-*", "gpt-\n", True),
        ("gpt.4", "gpt-4", False),
        ("org/*", "org/a/b", True),
        ("*", "any thing é", True),
        ("m[1]", "m[1]", True),
        ("m(1)+", "m(1)+", True),
    ],
)
async def test_a_pattern_is_a_shell_s_and_a_name_is_exact(pattern: str, name: str, fits: bool) -> None:
    table = Table(model(pattern, "a"))
    if fits:
        await table.ask(name)
        assert table.asked == [("a", name)]
    else:
        with pytest.raises(TurnError, match="does not exist here"):
            await table.ask(name)


async def test_choices_are_tried_in_their_order_each_with_its_own_alias() -> None:
    table = Table(model("m", "b", {"upstream": "a", "model": "alias"}, {"upstream": "c"}))
    await table.ask("m")
    assert table.asked == [("b", "m"), ("a", "alias"), ("c", "m")]


async def test_an_unknown_name_is_refused_in_words_and_shown_harmlessly() -> None:
    for name in ("nobody", "a\x1b[31m\nb", "x" * 5000):
        with pytest.raises(TurnError) as caught:
            await Table(model("m", "a")).ask(name)
        fault = caught.value.fault
        assert (fault.kind, fault.param, fault.status) == (Kind.UNKNOWN_MODEL, "model", 404)
        assert fault.message.isprintable()
        assert len(fault.message) < 300


async def test_only_the_upstream_s_own_list_of_fields_goes_up_and_the_request_s_id() -> None:
    table = Table(model("m", "a"))
    await table.ask("m", {b"user-agent": b"x", b"authorization": b"Bearer secret", b"cookie": b"y"})
    assert table.openers["a"].passed_on == [(b"user-agent", b"x"), (b"x-request-id", b"req_1")]


async def test_names_are_listed_once_and_patterns_are_not_names() -> None:
    table = Table(model("m1", "a"), model("m2", "b"), model("gpt-*", "c"), model("m1", "b"))
    assert await table.names() == ["m1", "m2"]
