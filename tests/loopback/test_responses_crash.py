"""kill -9 at any moment: every id that a client has seen resolves afterwards, and no history is torn."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path
from typing import Any

import trio

from tests.helpers.gateway import Client
from tests.helpers.http import Closed, request
from tests.helpers.process import Process, serving, simulated

Json = dict[str, Any]
KILLS, CLIENTS, COMMITS = 5, 4, 500
MODEL = "simulated/chunks=3,size=2"
OVER = ("completed", "incomplete", "failed", "cancelled")


class Talker:
    """A client that goes on with its last whole answer, and notes each id as soon as it has heard of it."""

    def __init__(self) -> None:
        self.last: str | None = None
        self.length = 0
        self.announced: dict[str, str] = {}
        """Ids, and the last status that was heard of each."""
        self.parents: dict[str, str | None] = {}

    async def talk(self, process: Process, most: int) -> None:
        try:
            async with process.client() as client:
                for _ in range(most):
                    await self._turn(client)
        except (Closed, trio.BrokenResourceError, OSError):
            pass  # it was killed: what was heard until then counts

    async def _turn(self, client: Client) -> None:
        body: Json = {"model": MODEL, "input": "go on", "stream": True, "previous_response_id": self.last}
        await client.send(request("POST /v1/responses HTTP/1.1", body=json.dumps(body).encode()))
        await client.head()
        heard = b""
        while piece := await client.chunk():
            heard += piece
            for event in heard.split(b"\n\n")[:-1]:
                self._hear(json.loads(event.partition(b"data: ")[2]))

    def _hear(self, event: Json) -> None:
        if "response" in event:
            response = event["response"]
            self.announced[response["id"]] = response["status"]
            self.parents[response["id"]] = response["previous_response_id"]
            if response["status"] == "completed":
                self.last = response["id"]


async def resolved(process: Process, id_: str) -> Json:
    async with process.client() as client:
        answer = await client.ask(f"GET /v1/responses/{id_} HTTP/1.1")
    assert answer.status == 200, id_
    response: Json = json.loads(answer.body)
    return response


async def test_every_announced_id_resolves_after_kills_at_random_moments(tmp_path: Path) -> None:
    history = [f'history.path="{tmp_path}/history.db"', "history.turns=100000"]
    chance = random.Random(9)
    talkers = [Talker() for _ in range(CLIENTS)]
    for _ in range(KILLS):
        async with serving(*simulated(*history)) as process, trio.open_nursery() as nursery:
            for talker in talkers:
                nursery.start_soon(talker.talk, process, COMMITS)
            due = sum(len(talker.announced) for talker in talkers) + COMMITS // KILLS + chance.randrange(20)
            while sum(len(talker.announced) for talker in talkers) < due:  # noqa: ASYNC110 — at any moment
                await trio.sleep(chance.random() / 100)
            process.signal(signal.SIGKILL)
            await process.exited()
    assert sum(len(talker.announced) for talker in talkers) >= COMMITS
    async with serving(*simulated(*history)) as process:
        for talker in talkers:
            for id_, heard in talker.announced.items():
                response = await resolved(process, id_)
                assert response["status"] in OVER
                assert response["status"] == heard or heard == "in_progress"
                assert response["previous_response_id"] == talker.parents[id_]
            async with process.client() as client:
                body = {"model": MODEL, "input": "and now?", "previous_response_id": talker.last}
                answer = await client.ask("POST /v1/responses HTTP/1.1", body=json.dumps(body).encode())
            assert (answer.status, json.loads(answer.body)["status"]) == (200, "completed")
