"""Between a client and its upstreams: what goes up, what of an error comes down, and who is asked instead."""

from __future__ import annotations

import json

import pytest
import trio

from tests.helpers import chat
from tests.helpers.gateway import connected_to, gateway
from tests.helpers.http import Answer
from tests.helpers.upstream import Accepted, Script, answering, begins, silent, upstream

RATE = b'{"error":{"message":"slow down","type":"requests","param":null,"code":"rate_limit_exceeded"}}'


def refusing(status: int, body: bytes = b"{}", *fields: str) -> Script:
    async def script(peer: Accepted) -> None:
        while True:
            await peer.request()
            await peer.refuse(status, body, *fields)

    return script


def error_of(answer: Answer) -> dict[str, object]:
    error = json.loads(answer.body)["error"]
    assert isinstance(error, dict)
    return error


def fields_of(request: bytes) -> dict[str, str]:
    """The header fields of a request, lower-case names; a field that came twice is a mistake."""
    _, *lines = request.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    fields = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    assert len(fields) == len(lines)
    return fields


def body_of(request: bytes) -> bytes:
    return request.partition(b"\r\n\r\n")[2]


# What goes up


async def test_a_request_goes_up_as_the_client_wrote_it() -> None:
    """Byte for byte, if the upstream is asked for nothing that the client did not ask for."""
    messages = b'[{"role":"user","content":"\xc3\xa9"}]'
    body = b'{"stream" : true, "model":"m",\n"messages":' + messages + b',"temperature":1.0,"new":{"a":1e2}}'
    async with (
        upstream(answering("a")) as server,
        gateway(server.setting, "upstreams.default.ask_usage=false") as running,
    ):
        await running.ask("POST /v1/chat/completions HTTP/1.1", body=body)
        assert body_of(server.accepted[0].requests[0]) == body


async def test_a_whole_answer_is_asked_for_as_a_stream_with_usage() -> None:
    async with upstream(answering("a", "b")) as server, gateway(server.setting) as running:
        document = json.loads((await running.chatted(stream=False)).body)
        asked = json.loads(body_of(server.accepted[0].requests[0]))
        assert (asked["stream"], asked["stream_options"]) == (True, {"include_usage": True})
        assert document["choices"][0]["message"]["content"] == "ab"


PASSED = {"User-Agent": "openai/1.0", "OpenAI-Beta": "x=1", "traceparent": "00-1-2-03"}
KEPT = {
    "Authorization": "Bearer secret",
    "x-api-key": "secret",
    "Cookie": "secret=1",
    "TE": "trailers",
    "Keep-Alive": "timeout=5",
    "Proxy-Authorization": "Basic secret",
    "X-Forwarded-For": "10.0.0.1",
    "Accept-Encoding": "gzip",
    "Expect": "100-continue",
}


async def test_only_the_named_fields_go_up_and_credentials_never() -> None:
    given = [f"{name}: {value}" for name, value in (PASSED | KEPT).items()]
    async with upstream(answering("a")) as server, gateway(server.setting) as running:
        await running.chatted("m", *given)
        request = server.accepted[0].requests[0]
        fields = fields_of(request)
        assert {name: fields[name.lower()] for name in PASSED} == PASSED
        assert b"secret" not in request
        assert fields["accept-encoding"] == "identity"
        assert not fields.keys() & {"te", "keep-alive", "connection", "x-forwarded-for", "expect"}


async def test_a_field_that_the_client_names_as_the_hops_own_does_not_go_up() -> None:
    async with upstream(answering("a")) as server, gateway(server.setting) as running:
        await running.chatted("m", "Connection: keep-alive, OpenAI-Beta", "OpenAI-Beta: x=1", "User-Agent: me")
        fields = fields_of(server.accepted[0].requests[0])
        assert ("openai-beta" in fields, fields["user-agent"]) == (False, "me")


async def test_the_operators_key_goes_up_in_place_of_the_clients() -> None:
    settings = ['upstreams.default.key_env="UP_KEY"']
    async with (
        upstream(answering("a")) as server,
        gateway(server.setting, *settings, environment={"UP_KEY": "operators"}) as running,
    ):
        await running.chatted("m", "Authorization: Bearer clients")
        assert fields_of(server.accepted[0].requests[0])["authorization"] == "Bearer operators"


async def test_the_host_that_goes_up_is_the_upstreams() -> None:
    async with upstream(answering("a")) as server, gateway(server.setting) as running:
        await running.chatted("m", "Host: gateway.test")
        assert fields_of(server.accepted[0].requests[0])["host"] == f"127.0.0.1:{server.port}"


async def test_an_alias_is_the_models_name_at_that_upstream_alone() -> None:
    async with upstream(refusing(503)) as first, upstream(answering("a")) as second:
        ways = f'upstreams={{a={{url="{first.url}"}},b={{url="{second.url}"}}}}'
        models = 'models=[{name="tide",upstreams=["a",{upstream="b",model="vendor/tide-7b"}]}]'
        async with gateway(ways, models) as running:
            assert (await running.chatted("tide")).status == 200
            asked = [json.loads(body_of(each.accepted[0].requests[0]))["model"] for each in (first, second)]
            assert asked == ["tide", "vendor/tide-7b"]
            assert (await running.journal.record())["model"] == "tide"


async def test_turns_one_after_the_other_share_an_upstream_connection() -> None:
    async with upstream(answering("a")) as server, gateway(server.setting) as running:
        for stream in (True, False, True):
            assert (await running.chatted(stream=stream)).status == 200
        assert len(server.accepted) == 1


# What comes down


@pytest.mark.parametrize("stream", [True, False])
async def test_a_rate_limit_comes_down_with_what_the_client_needs_to_wait(stream: bool) -> None:
    limits = ("retry-after: 7", "x-ratelimit-remaining-requests: 0", "x-ratelimit-reset-tokens: 6m0s", "x-other: 1")
    async with upstream(refusing(429, RATE, *limits)) as server, gateway(server.setting) as running:
        answer = await running.chatted(stream=stream)
        assert (answer.status, error_of(answer)["message"]) == (429, "slow down")
        assert answer.headers["retry-after"] == "7"
        assert answer.headers["x-ratelimit-remaining-requests"] == "0"
        assert answer.headers["x-ratelimit-reset-tokens"] == "6m0s"
        assert "x-other" not in answer.headers
        record = await running.journal.record()
        assert (record["end"], record["status"]) == ("failed", 429)
        assert record["fault"] == {"origin": "upstream", "kind": "upstream_rate_limit"}


STATUSES = [(400, 400), (404, 404), (422, 422), (500, 500), (502, 502), (503, 503), (401, 502), (302, 502)]


@pytest.mark.parametrize(("said", "told"), STATUSES)
async def test_the_status_of_a_refusal_comes_down_unless_it_is_about_the_operators_key(said: int, told: int) -> None:
    body = b'{"error":{"message":"bad key sk-operators-key","type":"x"}}'
    async with upstream(refusing(said, body)) as server, gateway(server.setting) as running:
        answer = await running.chatted()
        assert answer.status == told
        assert isinstance(error_of(answer)["message"], str)
        assert (b"sk-operators-key" in answer.body) == (said not in (401, 302))


async def breaks_off(peer: Accepted) -> None:
    await peer.request()
    await peer.stream(chat.ROLE, chat.text("tide"))


async def says_an_error(peer: Accepted) -> None:
    await peer.request()
    await peer.stream(chat.ROLE, chat.text("tide"), b'data: {"error":{"message":"overheated","code":500}}\n\n')
    await trio.sleep_forever()


async def resets(peer: Accepted) -> None:
    await breaks_off(peer)
    peer.reset()


@pytest.mark.parametrize("script", [breaks_off, says_an_error, resets])
async def test_an_answer_that_breaks_off_ends_with_an_error_event_on_a_connection_that_lives(script: Script) -> None:
    async with upstream(script) as server, gateway(server.setting) as running, connected_to(running.port) as client:
        answer = await client.chatted()
        assert (answer.status, chat.said(answer.body.partition(b'data: {"error"')[0])) == (200, "tide")
        assert b'data: {"error"' in answer.body
        assert b"[DONE]" not in answer.body
        assert (await running.journal.record())["end"] == "failed"
        assert (await client.ask("GET /health HTTP/1.1")).status == 200


@pytest.mark.parametrize("script", [breaks_off, says_an_error, resets])
async def test_half_a_document_is_none(script: Script) -> None:
    async with upstream(script) as server, gateway(server.setting) as running:
        answer = await running.chatted(stream=False)
        assert answer.status in (500, 502)
        assert b"tide" not in answer.body


async def test_an_upstreams_silence_is_told_with_the_deadlines_name() -> None:
    async with upstream(silent) as server, gateway(server.setting, "deadlines.first_event=0.2") as running:
        answer = await running.chatted()
        assert (answer.status, error_of(answer)["code"]) == (504, "first_event_timeout")


async def test_a_silence_in_the_middle_is_told_with_the_deadlines_name() -> None:
    async with upstream(begins) as server, gateway(server.setting, "deadlines.idle=0.2") as running:
        answer = await running.chatted()
        assert b'"code":"idle_timeout"' in answer.body
        assert b"[DONE]" not in answer.body


# Who is asked instead


async def cut(peer: Accepted) -> None:
    await peer.request()


UNUSABLE = {"refusing": refusing(503), "limiting": refusing(429), "cut": cut, "silent": silent, "no key": refusing(401)}


@pytest.mark.parametrize("name", UNUSABLE)
async def test_before_the_first_event_another_upstream_is_asked(name: str) -> None:
    async with upstream(UNUSABLE[name]) as first, upstream(answering("second")) as second:
        ways = f'upstreams={{a={{url="{first.url}",deadlines={{first_event=0.2}}}},b={{url="{second.url}"}}}}'
        async with gateway(ways) as running:
            assert chat.said((await running.chatted()).body) == "second"
            record = await running.journal.record()
            assert (record["upstream"], record["end"], record["fault"]) == (["a", "b"], "completed", None)
            assert len(first.accepted) == 1


async def test_an_upstream_that_cannot_be_reached_is_replaced() -> None:
    async with upstream(answering("second")) as second:
        with trio.socket.socket() as nobody:
            await nobody.bind(("127.0.0.1", 0))
            closed = f"http://127.0.0.1:{nobody.getsockname()[1]}/v1"
            async with gateway(f'upstreams={{a={{url="{closed}"}},b={{url="{second.url}"}}}}') as running:
                assert chat.said((await running.chatted()).body) == "second"


@pytest.mark.parametrize("script", [breaks_off, says_an_error, resets])
@pytest.mark.parametrize("stream", [True, False])
async def test_after_the_first_event_nobody_else_is_asked(script: Script, stream: bool) -> None:
    async with upstream(script) as first, upstream(answering("second")) as second:
        ways = f'upstreams={{a={{url="{first.url}"}},b={{url="{second.url}"}}}}'
        async with gateway(ways) as running:
            answer = await running.chatted(stream=stream)
            assert b"second" not in answer.body
            assert second.accepted == []


async def test_a_request_that_is_wrong_is_wrong_for_all() -> None:
    async with upstream(refusing(400, RATE)) as first, upstream(answering("second")) as second:
        ways = f'upstreams={{a={{url="{first.url}"}},b={{url="{second.url}"}}}}'
        async with gateway(ways) as running:
            assert (await running.chatted()).status == 400
            assert second.accepted == []
