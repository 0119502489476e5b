"""A closed-loop load: N keep-alive connections that ask again as soon as they have a whole answer.

Every answer is checked: 200, framing whole, and for streams [DONE] last and as many events as the first had.
"""

import argparse
import dataclasses
import json
import time
from collections import Counter
from dataclasses import dataclass, field

from bench.client import Client
from bench.http1 import chat_request
from bench.loop import Loop
from bench.script import Script

DONE = b"data: [DONE]\n\n"
PATIENCE = 30.0  # seconds for the last answers after the time is over


@dataclass
class Tally:
    """What a load got. `seconds` runs to the end of the last answer."""

    requests: int = 0
    events: int = 0
    size: int = 0
    seconds: float = 0.0
    slowest: float = 0.0  # seconds that the slowest answer took
    faults: Counter[str] = field(default_factory=Counter)


class Load:
    """Runs in the caller's process and, where one is given, in the caller's loop beside other things."""

    def __init__(
        self, port: int, script: Script, *, stream: bool, connections: int = 16, loop: Loop | None = None
    ) -> None:
        self.tally = Tally()
        self._loop = loop or Loop()
        self._port = port
        self._stream = stream
        self._request = chat_request(script.model, stream=stream)
        self._events: int | None = None
        self._asking = 0
        self._ends_at = 0.0
        self._most: int | None = None
        self._clients = {Client(self._loop, port, self._answered) for _ in range(connections)}

    def run(self, seconds: float, most: int | None = None) -> Tally:
        """Asks for so long, or `most` requests; returns when every answer is in. It can be run again."""
        start = time.perf_counter()
        self.start(seconds, most)
        self._loop.run(seconds, until=lambda: self.is_over)
        self.stop()
        self.tally.seconds = time.perf_counter() - start
        return self.tally

    def start(self, seconds: float, most: int | None = None) -> None:
        """Asks the first; the rest happens while the loop runs."""
        self.tally = Tally()
        self._ends_at, self._most = time.perf_counter() + seconds, most
        for client in tuple(self._clients):
            self._ask(client)

    def stop(self) -> Tally:
        """Asks no more; returns when the answers that are due are in."""
        self._ends_at = 0.0
        if not self._loop.run(PATIENCE, until=lambda: self.is_over):
            self.tally.faults["no answer in time"] += self._asking
        return self.tally

    @property
    def is_over(self) -> bool:
        return not self._asking

    def close(self) -> None:
        for client in self._clients:
            client.leave()

    def _ask(self, client: Client) -> None:
        self._asking += 1
        client.ask(self._request)

    def _answered(self, client: Client) -> None:
        self._asking -= 1
        fault = client.fault or self._fault_in(client)
        if fault:
            self.tally.faults[fault] += 1
        else:
            self.tally.requests += 1
            self.tally.slowest = max(self.tally.slowest, time.perf_counter() - client.asked_at)
            self.tally.size += len(client.received)
        if client.fault or not (client.head and client.head.stays_open):
            client = self._replace(client)
        if self._has_time():
            self._ask(client)

    def _fault_in(self, client: Client) -> str | None:
        body = client.body or b""
        if client.head and client.head.status != 200:
            return f"status {client.head.status}: {body[:120]!r}"
        if not self._stream:
            return None if body.endswith(b"}") else "not a JSON object"
        events = body.count(b"data: ")
        self._events = self._events or events
        self.tally.events += events
        if not body.endswith(DONE):
            return "no [DONE]"
        return None if events == self._events else f"{events} events, not {self._events}"

    def _has_time(self) -> bool:
        asked = self.tally.requests + self.tally.faults.total() + self._asking
        return time.perf_counter() < self._ends_at and (self._most is None or asked < self._most)

    def _replace(self, client: Client) -> Client:
        self._clients.discard(client)
        client.leave()
        fresh = Client(self._loop, self._port, self._answered)
        self._clients.add(fresh)
        return fresh


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.load", description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--whole", action="store_true", help="ask for the whole answer instead of a stream")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--chunks", type=int, default=64)
    parser.add_argument("--burst", type=int, default=64)
    parser.add_argument("--pace", type=float, default=0)
    args = parser.parse_args()
    script = Script(chunks=args.chunks, burst=args.burst, pace=args.pace)
    load = Load(args.port, script, stream=not args.whole, connections=args.connections)
    tally = load.run(args.seconds)
    load.close()
    print(json.dumps(dataclasses.asdict(tally) | {"per_second": round(tally.requests / tally.seconds)}))


if __name__ == "__main__":
    main()
