"""The simulated upstream as a server of its own, for tests, benches and trying things out by hand."""

from __future__ import annotations

import msgspec
import trio

from engine.deadlines import Deadlines
from engine.dialects import chat
from engine.dialects.chat.faults import error_body
from engine.dialects.chat.reader import StreamReader
from engine.dialects.chat.writer import WholeWriter
from engine.errors import Fault, Kind, TurnError
from engine.prompt import Prompt
from engine.upstreams.script import CutHere, Script, script_of, simulated_error, steps
from engine.upstreams.simulated import Counters
from engine.wire.http1_server import Limits, Request
from engine.wire.response import Rendered, Response
from server.listen import Listener, open_sockets, watch_signals
from server.serve import say

JSON = [(b"content-type", b"application/json")]
STREAM = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]


class SimulatedServer:
    """Chat Completions without a model (`engine.wire.http1_server.Handler`)."""

    def __init__(self) -> None:
        self.counters = Counters()

    def begin(self, request: Request | None) -> SimulatedExchange:  # noqa: ARG002 — the body says it all
        return SimulatedExchange(self.counters)


class SimulatedExchange:
    """One request."""

    refusal: Fault | None = None

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def render(self, fault: Fault) -> Rendered:
        return Rendered(fault.status, JSON, error_body(fault))

    def done(self, response: Response, loss: Kind | None) -> None:
        """The counters are kept by the stream itself."""

    async def respond(self, request: Request, response: Response) -> None:
        match request.method, request.path:
            case b"POST", "/v1/chat/completions":
                await self._chat(chat.parse(bytes(request.body)), response)
            case b"GET", "/v1/models":
                await _send(response, 200, {"object": "list", "data": [{"id": "simulated", "object": "model"}]})
            case b"GET", "/stats":
                await _send(response, 200, self._counters)
            case b"GET", "/health":
                await _send(response, 200, {"status": "ok"})
            case _:
                raise TurnError(Fault(Kind.NOT_FOUND, "The simulated upstream does not have that."))

    async def _chat(self, prompt: Prompt, response: Response) -> None:
        script = script_of(prompt)
        if script.error is not None and script.error[1] is None:
            await _send(response, script.error[0], {"error": simulated_error(script.error[0])})
            return
        counters = self._counters
        counters.started += 1
        counters.open += 1
        has_ended = False
        try:
            await (self._stream if prompt.wants_stream else self._whole)(prompt, script, response)
            has_ended = True
        finally:
            counters.open -= 1
            counters.finished += has_ended
            counters.left += not has_ended

    async def _stream(self, prompt: Prompt, script: Script, response: Response) -> None:
        response.begin_stream(200, STREAM)
        try:
            for step in steps(script, prompt):
                await trio.sleep(step.pause)
                await response.write(step.data)
                self._counters.chunks += step.chunks
                self._counters.bytes += len(step.data)
        except CutHere as cut:
            response.break_off(reset=cut.reset)
        await response.write(b"", last=True)

    async def _whole(self, prompt: Prompt, script: Script, response: Response) -> None:
        reader, writer = StreamReader(), WholeWriter(prompt)
        try:
            for step in steps(script, msgspec.structs.replace(prompt, wants_usage=True)):
                await trio.sleep(step.pause)
                writer.add(reader.feed(step.data))
        except CutHere as cut:
            response.break_off(reset=cut.reset)
        await response.send_whole(Rendered(200, JSON, writer.result()))


async def _send(response: Response, status: int, value: object) -> None:
    await response.send_whole(Rendered(status, JSON, msgspec.json.encode(value)))


async def simulate(host: str, port: int) -> None:
    """Serve until a signal. Raises OSError if it cannot listen."""
    deadlines = Deadlines(drain=3600.0, grace=0.1)
    listener = Listener(SimulatedServer(), Limits(), deadlines, connections=10_000)
    async with trio.open_nursery() as nursery:
        await nursery.start(watch_signals, listener.cancel, listener.cancel)
        await listener.serve(await open_sockets(host, port, "tidegate simulate", say))
        nursery.cancel_scope.cancel(reason="served")


def run(host: str, port: int) -> int:
    """Serve; the process's exit status."""
    status = 0
    try:
        trio.run(simulate, host, port)
    except* OSError as errors:
        status = 1
        say(f"tidegate simulate: cannot listen on {host} port {port}: {errors.exceptions[0]}")
    return status
