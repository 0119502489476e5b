"""The configuration's JSON Schema, as editors and checkers use it: it agrees with what the gateway takes."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import jsonschema
import msgspec
import pytest

from server.config import Config, json_schema
from tests.pure.test_config import EXAMPLE

SCHEMA: dict[str, Any] = json.loads(json_schema())


def complaints(text: str) -> list[str]:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    return [error.message for error in validator.iter_errors(tomllib.loads(text))]


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_the_default_and_the_example_are_valid() -> None:
    assert complaints("") == []
    assert complaints(EXAMPLE) == []
    assert list(jsonschema.Draft202012Validator(SCHEMA).iter_errors(json.loads(msgspec.json.encode(Config())))) == []


@pytest.mark.parametrize(
    "wrong",
    [
        "[server]\nport = 'x'",
        "[server]\nport = 70000",
        "[sever]",
        "[limits]\nturns = 0",
        "[streaming]\nkeep_alive = -1",
        "[deadlines]\nidel = 5",
        "[deadlines]\nidle = -5",
        "[log]\nlevel = 'loud'",
        "[[tenants]]\nname = 'a'\nkeys = ['plain']",
        "[[tenants]]\nname = 'a'\nkeys = []",
        "[[tenants]]\nkeys = []",
        "[upstreams.x]\nurl = 'ftp://x'",
        "[upstreams.x]\ndialect = 'chat'",
        "[upstreams.x]\nurl = 'http://x'\ndeadlines = {total = 5}",
        "[[models]]\nname = 'm'\nupstreams = []",
        "[[models]]\nname = ''\nupstreams = ['a']",
    ],
)
def test_a_wrong_configuration_is_not_valid(wrong: str) -> None:
    assert complaints(wrong)


def test_every_key_has_its_place_and_bytes_and_seconds_say_so() -> None:
    limits = SCHEMA["$defs"]["LimitsConfig"]["properties"]
    assert limits["body_bytes"]["description"] == "bytes"
    assert limits["idle_connection_seconds"]["description"].startswith("seconds")
    assert SCHEMA["$defs"]["Config"]["properties"].keys() == {field.name for field in msgspec.structs.fields(Config)}
    assert all(entry["additionalProperties"] is False for entry in SCHEMA["$defs"].values() if "properties" in entry)
