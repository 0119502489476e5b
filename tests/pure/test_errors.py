"""The one table of what can go wrong: it has everything, and every entry of it makes sense."""

from __future__ import annotations

import pytest

from engine.errors import TABLE, Fault, Kind, Origin, TurnError, client_error

# https://docs.anthropic.com/en/api/errors, as of 2026-11
ANTHROPIC = {
    "invalid_request_error": {400, 404, 405, 408, 415, 431, 499},
    "authentication_error": {401},
    "not_found_error": {404},
    "request_too_large": {413},
    "rate_limit_error": {429},
    "api_error": {500, 502, 504},
    "overloaded_error": {529},
}


def test_every_kind_has_its_row_and_there_is_no_other() -> None:
    assert set(TABLE) == set(Kind)


@pytest.mark.parametrize("kind", Kind)
def test_a_status_is_of_the_class_that_its_origin_calls_for(kind: Kind) -> None:
    row = TABLE[kind]
    assert 400 <= row.status <= 599
    if row.origin is Origin.CLIENT:
        assert row.status < 500
    if row.origin is Origin.GATEWAY:
        assert row.status >= 500


@pytest.mark.parametrize("kind", Kind)
def test_every_dialect_has_words_for_a_kind(kind: Kind) -> None:
    row = TABLE[kind]
    assert row.openai_type.endswith("_error")
    assert row.openai_code is None or row.openai_code
    assert (row.anthropic_status or row.status) in ANTHROPIC[row.anthropic_type]


@pytest.mark.parametrize("kind", Kind)
def test_a_kind_s_name_says_whose_fault_it_is(kind: Kind) -> None:
    if kind.value.startswith("upstream_"):
        assert TABLE[kind].origin is Origin.UPSTREAM
    if kind.value.startswith("client_"):
        assert TABLE[kind].origin is Origin.CLIENT


def test_codes_tell_kinds_apart_where_clients_look_at_them() -> None:
    codes = [row.openai_code for row in TABLE.values() if row.openai_code is not None]
    shared = {code for code in codes if codes.count(code) > 1}
    assert shared == {"rate_limit_exceeded"}


def test_another_upstream_is_tried_only_for_what_is_the_upstream_s_or_time_s() -> None:
    assert not any(TABLE[kind].retryable for kind in (Kind.BAD_REQUEST, Kind.UPSTREAM_REFUSED, Kind.INTERNAL))
    assert all(TABLE[kind].retryable for kind in (Kind.UPSTREAM_FAILED, Kind.UPSTREAM_UNREACHABLE, Kind.TENANT_BUSY))


def test_a_fault_says_the_table_s_status_unless_the_upstream_said_one() -> None:
    assert Fault(Kind.UPSTREAM_REFUSED, "x").status == 400
    assert Fault(Kind.UPSTREAM_REFUSED, "x", status_said=422).status == 422


def test_an_error_carries_its_fault_and_shows_it() -> None:
    error = client_error(Kind.BAD_REQUEST, "`n` is not right.", "n")
    assert isinstance(error, TurnError)
    assert (error.fault.kind, error.fault.param) == (Kind.BAD_REQUEST, "n")
    assert str(error) == "bad_request: `n` is not right."
