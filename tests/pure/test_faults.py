"""Errors as upstreams say them in an answer of their own, and as each kind of client is told."""

from __future__ import annotations

import json

import msgspec
import pytest

from engine.dialects.chat.faults import LONGEST_MESSAGE, error_body, read_refusal
from engine.dialects.surfaces import Surface, error_document, surface_of
from engine.errors import TABLE, Fault, Kind, Origin
from tests.pure.streams import Json, recording


def refused(status: int, body: object, **headers: str) -> Fault:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {name.replace("_", "-").encode(): value.encode("latin-1") for name, value in headers.items()}
    return read_refusal(status, fields, raw)


@pytest.mark.parametrize(
    ("body", "message", "code", "type_"),
    [
        ({"error": {"message": "no", "type": "t", "code": "c", "param": "p"}}, "no", "c", "t"),
        (
            {"error": {"code": 400, "message": "no", "type": "invalid_request_error"}},
            "no",
            "400",
            "invalid_request_error",
        ),
        ({"object": "error", "message": "no", "type": "BadRequestError", "code": 400}, "no", "400", "BadRequestError"),
        ({"error": "no"}, "no", None, None),
        ({"error": "no", "code": "c"}, "no", "c", None),
        ({"detail": "no"}, "no", None, None),
        ({"detail": [{"loc": ["body"], "msg": "no"}]}, '[{"loc":["body"],"msg":"no"}]', None, None),
        ({"message": "no"}, "no", None, None),
        ({"type": "error", "error": {"type": "t", "message": "no"}}, "no", None, "t"),
    ],
)
def test_each_shape_of_an_error_is_read(body: Json, message: str, code: object, type_: str | None) -> None:
    fault = refused(400, body)
    assert (fault.message, fault.code, fault.type) == (message, code, type_)
    assert (fault.kind, fault.status, fault.origin) == (Kind.UPSTREAM_REFUSED, 400, Origin.UPSTREAM)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"<html><h1>502 Bad Gateway</h1></html>", b"Internal Server Error", b"null", b"[]", b"{", b"{}"),
        *({"error": {}}, {"error": {"message": None}}, {"error": {"message": 5}}, {"error": None}, {"choices": []}),
        b'{"error":{"message":"' + b"x" * 70_000,
    ],
)
def test_an_error_that_says_nothing_readable_is_told_by_its_status(body: object) -> None:
    assert refused(500, body).message == "The upstream answered with status 500."
    assert "html" not in error_body(refused(502, body)).decode()


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, Kind.UPSTREAM_REFUSED, False),
        (404, Kind.UPSTREAM_REFUSED, False),
        (413, Kind.UPSTREAM_REFUSED, False),
        (422, Kind.UPSTREAM_REFUSED, False),
        (429, Kind.UPSTREAM_RATE_LIMIT, True),
        (500, Kind.UPSTREAM_FAILED, True),
        (502, Kind.UPSTREAM_FAILED, True),
        (503, Kind.UPSTREAM_OVERLOADED, True),
        (529, Kind.UPSTREAM_OVERLOADED, True),
    ],
)
def test_the_upstream_s_status_is_passed_on_and_says_whether_to_try_another(
    status: int, kind: Kind, retryable: bool
) -> None:
    fault = refused(status, {"error": {"message": "no"}})
    assert (fault.kind, fault.status, fault.retryable) == (kind, status, retryable)


def test_what_an_upstream_says_of_our_credentials_is_never_shown() -> None:
    said = {
        "message": "Incorrect API key provided: sk-op*3f",
        "code": "invalid_api_key sk-op",
        "type": "sk-op",
        "x": "sk-op",
    }
    fault = refused(401, {"error": said}, retry_after="3", x_ratelimit_limit="1")
    assert fault.kind is Kind.UPSTREAM_CREDENTIALS
    for surface in Surface:
        status, shown = error_document(surface, fault, "req_1")
        assert status == 502, "it is not the client's key that was wrong"
        assert b"sk-op" not in shown


@pytest.mark.parametrize("status", [400, 403, 500])
@pytest.mark.parametrize("word", [{"type": "authentication_error"}, {"code": "invalid_api_key"}])
def test_a_wrong_key_is_known_by_its_word_whatever_the_status(status: int, word: Json) -> None:
    """Gateways before an upstream have statuses of their own for it, and still quote the key."""
    fault = refused(status, {"error": {"message": "Incorrect API key provided: sk-op*3f", **word}})
    assert (fault.kind, fault.status) == (Kind.UPSTREAM_CREDENTIALS, 502)
    assert b"sk-op" not in error_body(fault)


def test_a_refusal_that_is_not_about_credentials_keeps_its_words() -> None:
    fault = refused(403, {"error": {"message": "Country not supported", "code": "unsupported_country"}})
    assert (fault.message, fault.status, fault.code) == ("Country not supported", 403, "unsupported_country")


def test_a_bearer_token_in_an_upstream_s_error_is_never_shown() -> None:
    """Debug pages and proxies show the request that they got, with its headers."""
    said = {"error": {"message": 'bad request: {"authorization": "Bearer sk-operator-1234567890"}'}}
    assert "sk-operator" not in refused(500, said).message


def test_a_long_error_is_cut() -> None:
    fault = refused(400, {"error": {"message": "x" * 30_000}})
    assert fault.message == "x" * LONGEST_MESSAGE + " […]"
    assert len(error_body(fault)) < 5000


@pytest.mark.parametrize("field", ["code", "type", "param", "another"])
def test_no_word_of_an_error_is_without_bound(field: str) -> None:
    fault = refused(400, {"error": {"message": "no", field: "x" * 30_000}})
    assert len(error_body(fault)) < 10_000


def test_further_members_of_an_error_are_passed_on() -> None:
    fault = refused(400, {"error": {"message": "no", "n_ctx": 4096, "x": {"y": [1]}}})
    error = json.loads(error_body(fault))["error"]
    assert (error["n_ctx"], error["x"], error["message"]) == (4096, {"y": [1]}, "no")


def test_odd_types_within_an_error_are_left_out() -> None:
    fault = refused(400, {"error": {"message": "no", "code": True, "type": 5, "param": ["messages"]}})
    assert (fault.code, fault.type, fault.param) == (None, None, None)
    assert refused(400, {"error": {"message": "no", "code": [1]}}).code is None


def test_retry_after_and_rate_limits_are_passed_on_and_no_other_field() -> None:
    fault = refused(
        *(429, {"error": {"message": "slow down"}}),
        retry_after="Wed, 21 Oct 2026 07:28:00 GMT",
        x_ratelimit_remaining_requests="0",
        anthropic_ratelimit_tokens_limit="5",
        set_cookie="a=b",
        server="nginx",
        x_request_id="theirs",
    )
    assert fault.retry_after == "Wed, 21 Oct 2026 07:28:00 GMT"
    assert fault.headers == ((b"x-ratelimit-remaining-requests", b"0"), (b"anthropic-ratelimit-tokens-limit", b"5"))
    assert refused(429, b"").retry_after is None


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("llamacpp-smollm2-err-bad-messages.json", 400, "Expected 'messages' to be an array"),
        ("llamacpp-smollm2-err-context-too-long.json", 400, "exceeds the available context size"),
        ("llamacpp-smollm2-err-404.json", 404, "File Not Found"),
        ("llama-cpp-python-err-404.json", 404, "Not Found"),
        ("llama-cpp-python-err-bad-messages.json", 422, "1 validation error"),
    ],
)
def test_real_servers_errors_are_read(name: str, status: int, words: str) -> None:
    fault = refused(status, recording(name))
    assert words in fault.message
    assert fault.status == status


def test_an_error_body_is_the_object_that_openai_s_clients_read() -> None:
    fault = Fault(Kind.UNKNOWN_MODEL, "There is no model `x`.", param="model")
    assert json.loads(error_body(fault)) == {
        "error": {
            "message": "There is no model `x`.",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }


@pytest.mark.parametrize("code", ["", "c", "400"])
def test_the_upstream_s_own_words_come_before_the_table_s(code: str) -> None:
    fault = Fault(Kind.UPSTREAM_FAILED, "no", code=code, type="their_type")
    error = json.loads(error_body(fault))["error"]
    assert (error["code"], error["type"]) == (code, "their_type")


@pytest.mark.parametrize(
    ("path", "surface"),
    [
        ("/v1/chat/completions", Surface.CHAT),
        ("/v1/models", Surface.CHAT),
        ("/nowhere", Surface.CHAT),
        ("/v1/responses", Surface.RESPONSES),
        ("/v1/responses/resp_1/cancel", Surface.RESPONSES),
        ("/v1/conversations", Surface.RESPONSES),
        ("/v1/messages", Surface.MESSAGES),
        ("/v1/messages/count_tokens", Surface.MESSAGES),
    ],
)
def test_a_path_tells_the_dialect_that_its_client_reads_errors_in(path: str, surface: Surface) -> None:
    assert surface_of(path) is surface


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_can_be_said_in_every_dialect(kind: Kind) -> None:
    fault = Fault(kind, "a sentence")
    for surface in Surface:
        status, body = error_document(surface, fault, "req_1")
        assert 400 <= status <= 599
        document = msgspec.json.decode(body)
        assert document["error"]["message"] == "a sentence"
        assert document["error"]["type"]
        if surface is Surface.MESSAGES:
            assert (document["type"], document["request_id"]) == ("error", "req_1")
            assert document["error"].keys() == {"type", "message"}
        else:
            assert document["error"].keys() == {"message", "type", "param", "code"}
            assert status == TABLE[kind].status


def test_what_anthropic_s_clients_should_try_again_is_529() -> None:
    for kind in (Kind.GATEWAY_BUSY, Kind.UPSTREAM_OVERLOADED, Kind.UPSTREAM_TIMEOUT, Kind.SHUTTING_DOWN):
        status, body = error_document(Surface.MESSAGES, Fault(kind, "x"), "req_1")
        assert (status, json.loads(body)["error"]["type"]) == (529, "overloaded_error")
    assert error_document(Surface.MESSAGES, refused(429, b""), "req_1")[0] == 429
