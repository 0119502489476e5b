"""The Responses API on real sockets, with each store: turns that are kept, continued, read, deleted and never torn."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engine.dialects import responses
from engine.events import Burst, Frame, TextDelta, ToolArgumentsDelta, ToolCallStarted
from engine.history.book import Bounds
from engine.history.memory import MemoryStore
from engine.history.sqlite import SqliteStore
from engine.history.store import Broken, Record, Store
from server.keeping import Keeper, bounds_of, failed, open_history
from server.load import load
from tests.cases.observation.responses import derive_responses
from tests.cases.observation.sse import parse_sse
from tests.helpers import chat
from tests.helpers.gateway import Client, Running, connected_to, gateway
from tests.helpers.http import Answer, request
from tests.helpers.upstream import Accepted, upstream

Json = dict[str, Any]
A, B = "Authorization: Bearer key-of-a", "Authorization: Bearer key-of-b"
TENANTS = 'tenants=[{name="a", keys=["env:KEY_A"]}, {name="b", keys=["env:KEY_B"]}]'
KEYS = {"KEY_A": "key-of-a", "KEY_B": "key-of-b"}


@asynccontextmanager
async def running(*sets: str, path: Path | None = None) -> AsyncIterator[Running]:
    """A gateway whose history is in memory, or in a file."""
    if path is not None:
        sets = (*sets, f'history.path="{path}"')
    config = load(None, list(sets), KEYS)
    store = open_history(config)
    async with gateway(*sets, environment=KEYS, history=store) as inner:
        yield inner
    await store.close()


@pytest.fixture(params=["memory", "sqlite"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "history.db" if request.param == "sqlite" else None


def create(*fields: str, **body: object) -> bytes:
    said = json.dumps({"model": "m", "input": "hi", **body}).encode()
    return request("POST /v1/responses HTTP/1.1", "Content-Type: application/json", *fields, body=said)


async def asked(gateway: Running, *fields: str, **body: object) -> Answer:
    async with connected_to(gateway.port) as client:
        await client.send(create(*fields, **body))
        return await client.answer()


async def made(gateway: Running, *fields: str, **body: object) -> Json:
    """A response that was asked for whole."""
    answer = await asked(gateway, *fields, **body)
    assert answer.status == 200, answer.body
    response: Json = json.loads(answer.body)
    return response


async def streamed(gateway: Running, *fields: str, **body: object) -> Json:
    """What a strict client makes of a stream."""
    answer = await asked(gateway, *fields, stream=True, **body)
    assert answer.status == 200, answer.body
    return derive_responses(parse_sse(answer.body), None)


async def got(gateway: Running, path: str, *fields: str, method: str = "GET") -> tuple[int, Json]:
    answer = await gateway.ask(f"{method} /v1/responses/{path} HTTP/1.1", *fields)
    return answer.status, json.loads(answer.body)


def says(*texts: str) -> Callable[[Accepted], Awaitable[None]]:
    async def script(peer: Accepted) -> None:
        requests.append(json.loads((await peer.request()).partition(b"\r\n\r\n")[2]))
        await peer.stream(*map(chat.text, texts))
        await peer.finish()

    requests: list[Json] = []
    script.requests = requests  # type: ignore[attr-defined]
    return script


async def test_what_was_streamed_is_what_is_kept(path: Path | None) -> None:
    async with upstream(says("hel", "lo")) as server, running(server.setting, path=path) as gateway:
        seen = await streamed(gateway, metadata={"a": "1"})
        assert (seen["lifecycle"], seen["text"]) == ([], "hello")
        assert await got(gateway, seen["final"]["id"]) == (200, seen["final"])
        status, page = await got(gateway, f"{seen['final']['id']}/input_items")
        assert (status, page["data"][0]["content"]) == (200, [{"type": "input_text", "text": "hi"}])
        assert "metadata" not in "".join(gateway.journal.lines)


async def test_a_turn_goes_on_from_the_one_before_it(path: Path | None) -> None:
    script = says("hello")
    async with upstream(script) as server, running(server.setting, path=path) as gateway:
        first = await made(gateway, instructions="once")
        second = await streamed(gateway, input="and?", previous_response_id=first["id"])
        third = await made(gateway, input="so", previous_response_id=second["final"]["id"])
        assert third["previous_response_id"] == second["final"]["id"]
    said = [[(m["role"], m["content"]) for m in request["messages"]] for request in script.requests]  # type: ignore[attr-defined]
    turn = [("user", "hi"), ("assistant", "hello")]
    assert said[0] == [("system", "once"), ("user", "hi")]
    assert said[1] == [*turn, ("user", "and?")]
    assert said[2] == [*turn, ("user", "and?"), ("assistant", "hello"), ("user", "so")]


async def test_what_is_stored_grows_with_the_turns_and_not_with_their_square(path: Path | None) -> None:
    async with upstream(says("x" * 100)) as server, running(server.setting, path=path) as gateway:
        previous, sizes = None, []
        for _ in range(12):
            previous = (await made(gateway, input="y" * 100, previous_response_id=previous))["id"]
            sizes.append(gateway.gateway.history.statistics.bytes)
        steps = [after - before for before, after in pairwise(sizes[1:])]
        assert max(steps) - min(steps) < 100


async def test_a_stranger_s_response_is_as_unknown_as_none(path: Path | None) -> None:
    async with upstream(says("secret")) as server, running(server.setting, TENANTS, path=path) as gateway:
        id_ = (await made(gateway, A))["id"]
        for name, method in ((id_, "GET"), (id_, "DELETE"), (f"{id_}/input_items", "GET"), (f"{id_}/cancel", "POST")):
            status, body = await got(gateway, name, B, method=method)
            unknown = await got(gateway, name.replace(id_, "resp_0"), B, method=method)
            assert (status, body["error"]["code"], body["error"]["param"]) == (404, "response_not_found", "response_id")
            assert unknown[0] == 404
        answer = await asked(gateway, B, previous_response_id=id_)
        error = json.loads(answer.body)["error"]
        assert (answer.status, error["code"], error["param"]) == (
            404,
            "previous_response_not_found",
            "previous_response_id",
        )
        assert (await got(gateway, id_, A))[0] == 200
        assert len(server.accepted) == 1


async def test_what_is_not_to_be_stored_is_not(path: Path | None) -> None:
    async with upstream(says("hello")) as server, running(server.setting, path=path) as gateway:
        seen = await streamed(gateway, store=False)
        assert seen["final"]["store"] is False
        assert (await got(gateway, seen["final"]["id"]))[0] == 404
        assert gateway.gateway.history.statistics.turns == 0


async def test_deleting_a_parent_does_not_break_its_child(path: Path | None) -> None:
    script = says("hello")
    async with upstream(script) as server, running(server.setting, path=path) as gateway:
        first = await made(gateway)
        second = await made(gateway, input="two", previous_response_id=first["id"])
        status, body = await got(gateway, first["id"], method="DELETE")
        assert (status, body) == (200, {"id": first["id"], "object": "response.deleted", "deleted": True})
        assert (await got(gateway, first["id"]))[0] == 404
        assert (await got(gateway, first["id"], method="DELETE"))[0] == 404
        await made(gateway, input="three", previous_response_id=second["id"])
    assert [m["content"] for m in script.requests[2]["messages"]] == ["hi", "hello", "two", "hello", "three"]  # type: ignore[attr-defined]


async def test_an_answer_that_breaks_off_is_kept_as_failed_and_is_not_continued(path: Path | None) -> None:
    async def breaks_off(peer: Accepted) -> None:
        await peer.request()
        await peer.stream(chat.text("he"))
        peer.close()

    async with upstream(breaks_off) as server, running(server.setting, path=path) as gateway:
        seen = await streamed(gateway)
        assert (seen["status"], seen["final"]["error"]["code"]) == ("failed", "upstream_truncated")
        assert await got(gateway, seen["final"]["id"]) == (200, seen["final"])
        answer = await asked(gateway, previous_response_id=seen["final"]["id"])
        assert (answer.status, json.loads(answer.body)["error"]["param"]) == (400, "previous_response_id")


async def test_what_failed_before_it_was_announced_has_a_status_of_its_own_and_is_not_kept(path: Path | None) -> None:
    async def refuses(peer: Accepted) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 400 No\r\nContent-Length: 27\r\n\r\n" + b'{"error":{"message":"no"}}\n')

    async with upstream(refuses) as server, running(server.setting, path=path) as gateway:
        for stream in (False, True):
            answer = await asked(gateway, stream=stream)
            assert (answer.status, json.loads(answer.body)["error"]["message"]) == (400, "no")
        assert gateway.gateway.history.statistics.turns == 0


async def begins(peer: Accepted) -> None:
    await peer.request()
    await peer.stream(chat.text("he"))
    await peer.left()


async def announced(client: Client) -> str:
    """The id that a stream's first event says."""
    await client.head()
    first = await client.chunk()
    return str(json.loads(first.partition(b"data: ")[2].partition(b"\n")[0])["response"]["id"])


async def test_a_client_that_leaves_has_seen_an_id_that_resolves_to_cancelled(path: Path | None) -> None:
    async with upstream(begins) as server, running(server.setting, path=path) as gateway:
        async with connected_to(gateway.port) as client:
            await client.send(create(stream=True))
            id_ = await announced(client)
            status, response = await got(gateway, id_)
            assert (status, response["status"]) == (200, "in_progress")
        await gateway.journal.record()
        _, response = await got(gateway, id_)
        assert (response["status"], response["output"]) == ("cancelled", [])


async def test_a_turn_that_a_hard_stop_cuts_is_cancelled_and_not_under_way_for_ever(path: Path | None) -> None:
    async with upstream(begins) as server, running(server.setting, path=path) as gateway:
        async with connected_to(gateway.port) as client:
            await client.send(create(stream=True))
            id_ = await announced(client)
            gateway.listener.cancel()
            await gateway.journal.record()
        record = await gateway.gateway.history.get("anybody", id_)
        assert record is not None
        assert (record.is_open, json.loads(record.answer)["status"]) == (False, "cancelled")


async def test_what_was_under_way_when_the_process_died_is_failed_when_it_is_back(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    async with upstream(says("hello")) as server, running(server.setting, path=path) as gateway:
        whole = await made(gateway)
        open_ = Record("resp_open", "anybody", whole["id"], whole["created_at"], b"[]", json.dumps(whole).encode())
        await gateway.gateway.history.begin(open_)
    async with upstream(says("hello")) as server, running(server.setting, path=path) as gateway:
        assert await got(gateway, whole["id"]) == (200, whole)
        status, response = await got(gateway, "resp_open")
        assert (status, response["status"]) == (200, "failed")
        assert response["error"]["code"] == "server_error"
        again = await made(gateway, input="more", previous_response_id=whole["id"])
        assert again["status"] == "completed"


class Failing(MemoryStore):
    """Fails where it is told to."""

    where = "finish"

    async def begin(self, record: Record) -> None:
        if self.where == "begin":
            raise Broken("the disk is full")
        await super().begin(record)

    async def finish(self, record: Record) -> None:
        if self.where == "finish" and b'"completed"' in record.answer:
            raise Broken("the disk is full")
        await super().finish(record)


@pytest.mark.parametrize("where", ["begin", "finish"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_hears_that_its_response_could_not_be_kept(where: str, stream: bool) -> None:
    store: Store = Failing(bounds_of(load(None, [], {})))
    store.where = where  # type: ignore[attr-defined]
    async with upstream(says("hello")) as server, gateway(server.setting, history=store) as inner:
        answer = await asked(inner, stream=stream)
        if stream and where == "finish":
            seen = derive_responses(parse_sse(answer.body), None)
            assert (seen["status"], seen["final"]["error"]["code"]) == ("failed", "history_failed")
            assert (await got(inner, seen["final"]["id"]))[1]["status"] == "failed"
        else:
            assert (answer.status, json.loads(answer.body)["error"]["code"]) == (503, "history_failed")


async def test_what_is_too_large_to_be_kept_is_refused_before_an_upstream_is_asked(path: Path | None) -> None:
    async with upstream(says("hello")) as server, running(server.setting, "history.bytes=1000", path=path) as gateway:
        answer = await asked(gateway, input="x" * 70_000, stream=True)
        error = json.loads(answer.body)["error"]
        assert (answer.status, error["param"]) == (413, "store")
        assert "send `store: false`" in error["message"]
        assert server.accepted == []
        assert (await streamed(gateway, input="x" * 70_000, store=False))["status"] == "completed"


async def test_pages_of_items(path: Path | None) -> None:
    items = [{"role": "user", "content": str(number), "id": f"i{number}"} for number in range(5)]
    async with upstream(says("hello")) as server, running(server.setting, path=path) as gateway:
        id_ = (await made(gateway, input=items))["id"]

        async def page(query: str) -> tuple[list[str], bool]:
            _, body = await got(gateway, f"{id_}/input_items{query}")
            return [item["id"] for item in body["data"]], body["has_more"]

        assert await page("") == (["i4", "i3", "i2", "i1", "i0"], False)
        assert await page("?order=asc&limit=2") == (["i0", "i1"], True)
        assert await page("?order=asc&limit=2&after=i1") == (["i2", "i3"], True)
        assert await page("?order=asc&after=i3") == (["i4"], False)
        for query, param in (("limit=0", "limit"), ("limit=x", "limit"), ("order=up", "order"), ("after=z", "after")):
            status, body = await got(gateway, f"{id_}/input_items?{query}")
            assert (status, body["error"]["param"]) == (400, param)


async def test_what_cannot_be_asked_of_a_response_is_refused_by_name() -> None:
    async with upstream(says("hello")) as server, running(server.setting) as gateway:
        id_ = (await made(gateway))["id"]
        status, body = await got(gateway, f"{id_}/cancel", method="POST")
        assert (status, body["error"]["param"]) == (400, "response_id")
        status, body = await got(gateway, f"{id_}?stream=true")
        assert (status, body["error"]["param"]) == (400, "stream")
        answer = await gateway.ask(f"PUT /v1/responses/{id_} HTTP/1.1")
        assert (answer.status, answer.headers["allow"]) == (405, "GET, DELETE")
        assert (await gateway.ask("GET /v1/responses/a%20b HTTP/1.1")).status == 404


async def test_what_was_left_out_is_in_a_header_field() -> None:
    async with upstream(says("hello")) as server, running(server.setting) as gateway:
        answer = await asked(gateway, tools=[{"type": "web_search"}], client_metadata={})
        assert answer.headers["x-tidegate-dropped"] == "client_metadata, tools[0] (web_search)"
        assert "x-tidegate-dropped" not in (await asked(gateway)).headers


async def test_a_file_is_one_process_s(tmp_path: Path) -> None:
    config = load(None, [f'history.path="{tmp_path}/deep/history.db"'], {})
    first = open_history(config)
    assert isinstance(first, SqliteStore)
    with pytest.raises(OSError, match="another process has the history"):
        open_history(config)
    await first.close()
    await open_history(config).close()


def test_a_file_that_is_no_history_is_refused(tmp_path: Path) -> None:
    (tmp_path / "history.db").write_bytes(b"something else" * 100)
    config = load(None, [f'history.path="{tmp_path}/history.db"'], {})
    with pytest.raises(Broken, match=r"history\.db cannot be used as a history"):
        open_history(config)


async def test_what_a_failing_file_did_not_take_is_not_in_the_way_afterwards(tmp_path: Path) -> None:
    """Otherwise each failure would leave a turn that is under way for ever, and that nothing may evict."""
    async with upstream(says("hello")) as server, running(server.setting, path=tmp_path / "history.db") as gateway:
        store = gateway.gateway.history
        assert isinstance(store, SqliteStore)
        store._database.execute("PRAGMA query_only = ON")
        for stream in (False, True):
            answer = await asked(gateway, stream=stream)
            assert (answer.status, json.loads(answer.body)["error"]["code"]) == (503, "history_failed")
        assert (store.statistics.turns, store.statistics.bytes) == (0, 0)
        store._database.execute("PRAGMA query_only = OFF")
        assert (await made(gateway))["status"] == "completed"


async def test_what_is_too_large_to_be_kept_of_a_cancelled_turn_is_left_out_of_it() -> None:
    asked = responses.parse(json.dumps({"model": "m", "input": "hi"}).encode())
    store = MemoryStore(Bounds(bytes=1))
    writer = responses.Writer(asked, {})
    keeper = Keeper(store, "a", asked, writer)
    await keeper.begin()
    events = (TextDelta(0, "x" * 70_000), ToolCallStarted(0, 0, "call_a", "f"), ToolArgumentsDelta(0, 0, "{"))
    writer.encode(Burst((Frame(b"{}", events),)))
    assert len(writer.done_items()) == 1
    await keeper.abandon("cancelled")
    record = await store.get("a", writer.made.id)
    assert record is not None
    answer = json.loads(record.answer)
    assert (record.is_open, answer["status"], answer["output"]) == (False, "cancelled", [])


def test_a_file_of_a_later_version_is_refused_and_let_go(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "history.db")) as database:
        database.execute("PRAGMA user_version = 99")
    config = load(None, [f'history.path="{tmp_path}/history.db"'], {})
    for _ in range(2):
        with pytest.raises(Broken, match="has version 99, and this gateway knows 1"):
            open_history(config)


async def test_a_missing_ancestor_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    async with upstream(says("hello")) as server, running(server.setting, path=path) as gateway:
        first = await made(gateway)
        second = await made(gateway, previous_response_id=first["id"])
        store = gateway.gateway.history
        assert isinstance(store, SqliteStore)
        store._database.execute("DELETE FROM turns WHERE id = ?", (first["id"],))
        answer = await asked(gateway, previous_response_id=second["id"])
        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (503, "history_failed")
        assert first["id"] in json.loads(answer.body)["error"]["message"]


def test_an_answer_of_a_process_that_died_keeps_all_but_its_status() -> None:
    response = {"id": "resp_1", "status": "in_progress", "error": None, "metadata": {"a": "1"}}
    after = json.loads(failed(json.dumps(response).encode()))
    assert (after["id"], after["status"], after["metadata"]) == ("resp_1", "failed", {"a": "1"})
