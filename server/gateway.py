"""The data plane: what each path does, for whom, and within which limits. It holds everything that turns share."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import trio

from engine.answers import StreamAnswer, WholeAnswer
from engine.dialects import chat
from engine.errors import Fault, Kind, TurnError, shown
from engine.history.memory import MemoryStore
from engine.history.store import Store
from engine.prompt import Prompt
from engine.turn import Answer, Turn
from engine.wire.http1_server import Request, gone
from engine.wire.response import Response
from server.auth import ANYBODY, Doorman, Tenant, hash_key
from server.config import Config
from server.exchange import Exchange, Route
from server.journal import Journal
from server.keeping import bounds_of
from server.limits import TurnLimits
from server.models import ModelTable
from server.responses import PATH, Responses
from server.upstreams import open_upstreams

log = logging.getLogger(__name__)

TURN_PATHS = frozenset(("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"))
"""What a client asks a model through; also where a route is still missing, a refusal is in the journal."""


class Gateway:
    """Serves exchanges (`engine.wire.http1_server.Handler`). One for a process; it starts no task."""

    def __init__(
        self, config: Config, environment: Mapping[str, str], journal: Journal, history: Store | None = None
    ) -> None:
        tenants = _tenants(config, environment)
        self.config = config
        self.journal = journal
        self.is_draining = False
        self._doorman = Doorman(tenants)
        self._limits = TurnLimits(
            config.limits.turns,
            config.limits.turns_per_tenant,
            {tenant.name: tenant.turns for tenant in tenants if tenant.turns is not None},
        )
        self._openers = open_upstreams(config, environment)
        self._models = ModelTable(config.models, self._openers)
        self._turns: set[Turn] = set()
        self._stopped: Fault | None = None
        """What every turn is ended with, once they are: one that was pipelined behind another is not begun then."""
        self.history: Store = history if history is not None else MemoryStore(bounds_of(config))
        kept = Responses(self, self.history)
        self._routes: dict[str, dict[bytes, Route]] = {
            "/v1/chat/completions": {b"POST": self._chat},
            "/v1/responses": {b"POST": kept.create},
            "/v1/models": {b"GET": self._list_models},
            "/": {b"GET": self._health},
            "/health": {b"GET": self._health},
            "/livez": {b"GET": self._health},
            "/readyz": {b"GET": self._ready},
        }
        self._response_routes: dict[str | None, dict[bytes, Route]] = {
            None: {b"GET": kept.retrieve, b"DELETE": kept.delete},
            "/input_items": {b"GET": kept.input_items},
            "/cancel": {b"POST": kept.cancel},
        }

    @property
    def turns(self) -> int:
        """Turns under way."""
        return len(self._turns)

    def begin(self, request: Request | None) -> Exchange:
        return Exchange(self, request)

    def is_turn(self, request: Request) -> bool:
        """Whether a request is one that the journal keeps."""
        return request.method == b"POST" and request.path in TURN_PATHS

    def admit(self, request: Request) -> tuple[Route, str]:
        """The route and the tenant, by the head alone. Raises TurnError."""
        path = request.path
        tenant = self._doorman.tenant_of(request.headers) if path.startswith("/v1") else ANYBODY
        methods = self._routes.get(path) or self._of_one_response(path)
        if methods is None:
            raise TurnError(Fault(Kind.NOT_FOUND, f"There is nothing at {shown(path)}."))
        route = methods.get(b"GET" if request.method == b"HEAD" else request.method)
        if route is None:
            allowed = b", ".join(methods)
            message = f"{shown(path)} takes {allowed.decode()}."
            raise TurnError(Fault(Kind.METHOD_NOT_ALLOWED, message, headers=((b"allow", allowed),)))
        coding = request.headers.get(b"content-encoding", b"identity").lower()
        if coding != b"identity":
            raise TurnError(Fault(Kind.UNSUPPORTED_MEDIA, "Send the request body without a content encoding."))
        return route, tenant

    def _of_one_response(self, path: str) -> dict[bytes, Route] | None:
        match = PATH.fullmatch(path)
        return self._response_routes[match["rest"]] if match is not None else None

    def stop_turns(self, fault: Fault) -> None:
        """End every turn with `fault`, each as soon as its client can be told; none begins after it."""
        self._stopped = fault
        for turn in list(self._turns):
            turn.stop(fault)

    def expire_connections(self) -> None:
        """Close upstream connections that nobody has used for a while."""
        for opener in self._openers.values():
            if opener.pool is not None:
                opener.pool.expire()

    def close(self) -> None:
        """Close what is kept between turns."""
        for opener in self._openers.values():
            if opener.pool is not None:
                opener.pool.close()

    def log_bug(self, request_id: str, bug: Exception) -> None:
        log.error("a turn failed by a fault of the gateway's own (%s)", request_id, exc_info=bug)

    async def _chat(self, exchange: Exchange, request: Request, response: Response) -> None:
        body = bytes(request.body)
        request.body.clear()  # the prompt has it now; a turn holds its request once
        prompt = chat.parse(body)
        exchange.name_model(prompt.model, stream=prompt.wants_stream)
        answer: StreamAnswer | WholeAnswer
        if prompt.wants_stream:
            answer = StreamAnswer(response, chat.StreamWriter(prompt), exchange.headers)
        else:
            answer = WholeAnswer(response, chat.WholeWriter(prompt), exchange.headers)
        exchange.seen = answer.seen
        await self.run_turn(exchange, request, response, prompt, answer, stream=prompt.wants_stream)

    async def run_turn(
        self, exchange: Exchange, request: Request, response: Response, prompt: Prompt, answer: Answer, *, stream: bool
    ) -> None:
        """Find the prompt's upstreams and run its turn, within the limits. Raises TurnError."""
        keep_alive = self.config.streaming.keep_alive if stream else 0.0
        turn = Turn(keep_alive=keep_alive, total=self.config.deadlines.total)
        response.when_client_leaves = lambda kind: turn.leave(gone(kind))
        if self._stopped is not None:
            raise TurnError(self._stopped)
        record = exchange.record
        route = self._models.route(prompt, request.headers, exchange.id)
        record.upstream = route.tried
        with self._limits.lease(exchange.tenant) as place:
            response.when_finished = place.release
            self._turns.add(turn)
            try:
                await turn.run(route, answer)
            finally:
                self._turns.discard(turn)
                record.bursts = turn.bursts
                exchange.stopped_by = turn.stopped_by

    async def _list_models(self, exchange: Exchange, request: Request, response: Response) -> None:  # noqa: ARG002
        with trio.CancelScope() as asking:
            response.when_client_leaves = lambda _: asking.cancel(reason="the client left")
            models = await self._models.listing()
            await exchange.send_json(response, 200, {"object": "list", "data": models})

    async def _health(self, exchange: Exchange, request: Request, response: Response) -> None:  # noqa: ARG002
        """Alive: the loop turns. It stays true while draining, so that nobody kills a drain."""
        await exchange.send_json(response, 200, {"status": "draining" if self.is_draining else "ok"})

    async def _ready(self, exchange: Exchange, request: Request, response: Response) -> None:  # noqa: ARG002
        """Ready for new turns: what a load balancer asks."""
        if self.is_draining:
            await exchange.send_json(response, 503, {"status": "draining", "turns": self.turns})
        else:
            await exchange.send_json(response, 200, {"status": "ready", "turns": self.turns})


def _tenants(config: Config, environment: Mapping[str, str]) -> list[Tenant]:
    return [
        Tenant(entry.name, tuple(_hash(key, environment) for key in entry.keys), entry.turns)
        for entry in config.tenants
    ]


def _hash(key: str, environment: Mapping[str, str]) -> bytes:
    scheme, _, value = key.partition(":")
    return bytes.fromhex(value) if scheme == "sha256" else hash_key(environment[value])
