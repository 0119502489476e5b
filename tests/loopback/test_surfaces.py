"""What is where: paths, methods, health, models, request ids; and that each refusal has its dialect's shape."""

from __future__ import annotations

import json

import pytest

from tests.helpers import chat
from tests.helpers.gateway import chat_request, connected_to, gateway
from tests.helpers.http import Answer
from tests.helpers.upstream import Accepted, upstream


def openai_error(answer: Answer) -> tuple[int, object]:
    """Status and code of an error in OpenAI's shape; fails if it has not that shape."""
    assert answer.headers["content-type"] == "application/json"
    document = json.loads(answer.body)
    assert document.keys() == {"error"}
    assert document["error"].keys() >= {"message", "type", "param", "code"}
    assert document["error"]["message"]
    return answer.status, document["error"]["code"]


@pytest.mark.parametrize(
    "path", ["/nothing", "/v1/nothing", "/v1/chat", "/v1/conversations", "/v1/completions", "/v1/"]
)
async def test_a_path_that_is_not_there_is_said_in_openais_shape(path: str) -> None:
    async with gateway() as running:
        assert openai_error(await running.ask(f"POST {path} HTTP/1.1", body=b"{}")) == (404, "unknown_url")


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
async def test_a_path_of_anthropics_is_said_in_anthropics_shape(path: str) -> None:
    async with gateway() as running:
        answer = await running.ask(f"POST {path} HTTP/1.1", body=b"{}")
        document = json.loads(answer.body)
        assert (answer.status, document["type"], document["error"]["type"]) == (404, "error", "not_found_error")
        assert document["request_id"] == answer.headers["request-id"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("DELETE", "/v1/chat/completions", "POST"),
        ("POST", "/v1/models", "GET"),
        ("PUT", "/health", "GET"),
    ],
)
async def test_a_method_that_a_path_does_not_take_is_told_which_it_takes(method: str, path: str, allowed: str) -> None:
    async with gateway() as running:
        answer = await running.ask(f"{method} {path} HTTP/1.1")
        assert openai_error(answer) == (405, "method_not_allowed")
        assert allowed in answer.headers["allow"]


@pytest.mark.parametrize("line", ["GET /", "GET /health", "GET /livez", "GET /readyz", "HEAD /", "HEAD /health"])
async def test_health_is_told_to_whoever_asks(line: str) -> None:
    async with gateway() as running:
        answer = await running.ask(f"{line} HTTP/1.1")
        assert (answer.status, answer.headers["cache-control"]) == (200, "no-store")
        assert bool(answer.body) == line.startswith("GET")


@pytest.mark.parametrize("target", ["/health?verbose=1", "http://test/health"])
async def test_a_target_may_have_a_query_or_be_absolute(target: str) -> None:
    async with gateway() as running:
        assert (await running.ask(f"GET {target} HTTP/1.1")).status == 200


async def test_draining_shows_in_readiness_and_not_in_liveness() -> None:
    async with gateway() as running:
        running.gateway.is_draining = True
        assert (await running.ask("GET /readyz HTTP/1.1")).status == 503
        assert (await running.ask("GET /livez HTTP/1.1")).status == 200


# Request ids

PATHS = ["GET /health", "GET /v1/models", "GET /nothing", "GET /v1/chat/completions", "POST /v1/chat/completions"]


@pytest.mark.parametrize("line", PATHS)
async def test_every_answer_has_the_id_that_the_client_gave(line: str) -> None:
    async with gateway() as running:
        answer = await running.ask(f"{line} HTTP/1.1", "X-Request-ID: mine-1.2_3")
        assert answer.headers["x-request-id"] == "mine-1.2_3"


@pytest.mark.parametrize("given", ["", "with blank", "a" * 129, "semi;colon", 'quote"', "\xe9", "a, b"])
async def test_an_id_that_cannot_be_written_anywhere_is_replaced(given: str) -> None:
    async with gateway() as running:
        answers = [await running.ask("GET /health HTTP/1.1", f"X-Request-ID: {given}") for _ in range(2)]
        ids = [answer.headers["x-request-id"] for answer in answers]
        assert all(each.startswith("req_") for each in ids)
        assert ids[0] != ids[1]


async def test_what_cannot_be_read_has_an_id_all_the_same() -> None:
    async with gateway() as running, connected_to(running.port) as client:
        await client.send(b"nonsense\r\n\r\n")
        answer = await client.answer()
        assert (answer.status, answer.headers["x-request-id"][:4]) == (400, "req_")


async def test_an_answer_at_anthropics_path_has_the_id_under_both_names() -> None:
    async with gateway() as running:
        answer = await running.ask("POST /v1/messages HTTP/1.1", body=b"{}")
        assert answer.headers["request-id"] == answer.headers["x-request-id"]


# Turns


async def test_a_stream_says_that_nobody_is_to_keep_or_hold_it() -> None:
    async with gateway() as running:
        answer = await running.chatted("simulated")
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-accel-buffering"] == "no"
        assert answer.headers["transfer-encoding"] == "chunked"
        assert chat.said(answer.body) == "The tide comes in, the tide goes out."
        assert answer.body.endswith(chat.DONE)


async def test_a_whole_answer_is_one_document() -> None:
    async with gateway() as running:
        answer = await running.chatted("simulated", stream=False)
        document = json.loads(answer.body)
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert document["object"] == "chat.completion"
        assert document["choices"][0]["message"]["content"] == "The tide comes in, the tide goes out."
        assert document["choices"][0]["finish_reason"] == "stop"


async def test_one_connection_serves_turns_of_both_kinds() -> None:
    async with gateway() as running, connected_to(running.port) as client:
        for stream in (True, False, True):
            assert (await client.chatted("simulated", stream=stream)).status == 200


async def test_pipelined_turns_are_answered_in_order() -> None:
    async with gateway() as running, connected_to(running.port) as client:
        await client.send(b"".join(chat_request(f"simulated/chunks={number}") for number in (3, 1, 2)))
        texts = [chat.said((await client.answer()).body) for _ in range(3)]
        assert texts == ["The tide comes ", "The ", "The tide "]


BODIES = {
    "no JSON": b"{",
    "no object": b"[]",
    "nothing": b"",
    "no model": b'{"messages": []}',
    "a model that is no text": b'{"model": 1, "messages": []}',
}


@pytest.mark.parametrize("name", BODIES)
async def test_a_body_that_is_no_request_is_a_bad_request(name: str) -> None:
    async with gateway() as running:
        answer = await running.ask("POST /v1/chat/completions HTTP/1.1", body=BODIES[name])
        assert openai_error(answer)[0] == 400
        assert (await running.journal.record())["end"] == "refused"


async def test_a_model_that_is_not_there_is_named() -> None:
    async with gateway() as running:
        answer = await running.chatted("gpt-none")
        assert openai_error(answer) == (404, "model_not_found")
        error = json.loads(answer.body)["error"]
        assert error["param"] == "model"
        assert "gpt-none" in error["message"]


async def test_a_compressed_body_is_refused() -> None:
    async with gateway() as running:
        assert (await running.chatted("simulated", "Content-Encoding: gzip")).status == 415


async def test_a_body_that_is_too_large_is_refused_in_the_dialects_shape() -> None:
    async with gateway("limits.body_bytes=100") as running:
        answer = await running.ask("POST /v1/chat/completions HTTP/1.1", body=b"x" * 101)
        assert openai_error(answer) == (413, "request_too_large")
        assert (await running.journal.record())["fault"]["kind"] == "body_too_large"


# Models


async def test_exact_names_are_listed_as_they_are_configured() -> None:
    models = 'models=[{name="tide",upstreams=["s"]},{name="ebb",upstreams=["s"]},{name="tide-*",upstreams=["s"]}]'
    async with gateway('upstreams={s={url="simulated://"}}', models) as running:
        document = json.loads((await running.ask("GET /v1/models HTTP/1.1")).body)
        assert document["object"] == "list"
        assert [model["id"] for model in document["data"]] == ["tide", "ebb"]


async def test_a_pattern_lists_what_its_upstream_lists_and_fits_it() -> None:
    async def lists(peer: Accepted) -> None:
        request = await peer.request()
        assert request.startswith(b"GET /v1/models HTTP/1.1\r\n")
        await peer.refuse(200, b'{"object":"list","data":[{"id":"gpt-4","object":"model"},{"id":"dall-e"},{"x":1}]}')

    async with upstream(lists) as server:
        models = 'models=[{name="gpt-*",upstreams=["default"]}]'
        async with gateway(server.setting, models) as running:
            document = json.loads((await running.ask("GET /v1/models HTTP/1.1")).body)
            assert [model["id"] for model in document["data"]] == ["gpt-4"]


LISTINGS = [(404, b"{}"), (200, b"<html>"), (200, b"[]"), (200, b'{"data": 1}'), (200, b'{"data": null}')]


@pytest.mark.parametrize(("status", "body"), LISTINGS)
async def test_an_upstream_that_does_not_list_its_models_leaves_the_list_empty(status: int, body: bytes) -> None:
    async def lists(peer: Accepted) -> None:
        await peer.request()
        await peer.refuse(status, body)

    async with upstream(lists) as server, gateway(server.setting) as running:
        answer = await running.ask("GET /v1/models HTTP/1.1")
        assert (answer.status, json.loads(answer.body)["data"]) == (200, [])


async def test_leaving_a_listing_closes_the_upstream() -> None:
    async def silent(peer: Accepted) -> None:
        await peer.request()
        await peer.left()

    async with upstream(silent) as server, gateway(server.setting) as running:
        async with connected_to(running.port) as client:
            await client.send(b"GET /v1/models HTTP/1.1\r\nHost: test\r\n\r\n")
            await (await server.connection()).request_taken()
        await server.accepted[0].left()
