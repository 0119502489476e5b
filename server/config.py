"""The configuration: one TOML file, secrets from the environment, the command line over both; all of it typed.

Every key is here with its type, unit and default. An unknown key is an error that names it and its line.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from engine.deadlines import Deadlines, Seconds

Name = Annotated[str, Meta(min_length=1, max_length=128)]
Bytes = Annotated[int, Meta(ge=1, description="bytes")]
Count = Annotated[int, Meta(ge=1)]
Port = Annotated[int, Meta(ge=0, le=65535, description="0 takes any free port")]
URL_PATTERN = "^(https?://[^/?#@ ]+(/[^?# ]*)?|simulated://)$"
ENV_PATTERN = "^[A-Za-z_][A-Za-z0-9_]*$"
KEY_PATTERN = "^(sha256:[0-9a-f]{64}|env:[A-Za-z_][A-Za-z0-9_]*)$"
FIELD_PATTERN = "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"
PATTERNS = {
    URL_PATTERN: "a base URL: http://HOST[:PORT]/PATH, https://… or simulated://, without user, query or fragment",
    ENV_PATTERN: "the name of an environment variable",
    KEY_PATTERN: "sha256:HEX of a key (`tidegate key` makes one), or env:VARIABLE",
}
"""What each pattern means, for whoever did not match it."""

EnvName = Annotated[str, Meta(pattern=ENV_PATTERN, description="name of an environment variable")]
Url = Annotated[str, Meta(pattern=URL_PATTERN, description="base URL, with /v1 if it has one")]


class ServerConfig(Struct, frozen=True, forbid_unknown_fields=True):
    host: str = "127.0.0.1"
    port: Port = 8080


class AuthConfig(Struct, frozen=True, forbid_unknown_fields=True):
    open: bool = False
    """Without tenants, serve anybody also on an address that is not loopback."""


class TenantConfig(Struct, frozen=True, forbid_unknown_fields=True):
    name: Name
    keys: Annotated[list[Annotated[str, Meta(pattern=KEY_PATTERN)]], Meta(min_length=1)]
    """`sha256:HEX` of a key, or `env:NAME` of a variable that holds the key itself."""
    turns: Count | None = None
    """Concurrent turns of this tenant; without it, limits.turns_per_tenant."""


class LimitsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    turns: Count = 1000
    """Concurrent turns in all; more are refused with 503."""
    turns_per_tenant: Count = 1000
    """Concurrent turns of one tenant; more are refused with 429."""
    connections: Count = 10_000
    """Client connections; more wait in the kernel's backlog."""
    head_bytes: Bytes = 64 * 1024
    body_bytes: Bytes = 32 * 1024 * 1024
    pipelined_bytes: Bytes = 64 * 1024
    """What a client may send ahead of its answer."""
    requests_per_connection: Count = 1000
    idle_connection_seconds: Seconds = 75.0
    line_bytes: Bytes = 4 * 1024 * 1024
    """One event of an upstream's stream."""


class StreamingConfig(Struct, frozen=True, forbid_unknown_fields=True):
    keep_alive: Seconds = 15.0
    """Silence after which a streaming client is sent a comment."""


class HistoryConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept of Responses turns, so that `previous_response_id` can continue them."""

    path: str | None = None
    """A file of SQLite's; without it, turns are kept as long as the process lives."""
    idle_seconds: Seconds = 3600.0
    """Since a turn was last read, continued or written."""
    age_seconds: Seconds = 86_400.0
    """Since it was made; never renewed."""
    turns: Count = 10_000
    bytes: Bytes = 128 * 1024 * 1024
    """Of all turns; one may have a quarter of it."""
    tenant_bytes: Bytes = 256 * 1024
    """What a tenant may hold however many tenants there are."""


class LogConfig(Struct, frozen=True, forbid_unknown_fields=True):
    level: Literal["debug", "info", "warning", "error"] = "info"


class UpstreamConfig(Struct, frozen=True, forbid_unknown_fields=True):
    url: Url
    dialect: Literal["chat"] = "chat"
    key_env: EnvName | None = None
    """Where the operator's key for this upstream is; it is sent as `Authorization: Bearer`."""
    ca_file: str | None = None
    """PEM certificates to trust instead of the system's."""
    reasoning: Literal["fields", "think_tags"] = "fields"
    """How the model's reasoning comes: in fields of its own, or in <think> tags at the start of the text."""
    ask_usage: bool = True
    """Ask for token counts also where the client does not, for the journal. Off for servers that refuse it."""
    max_connections: Count = 1000
    deadlines: dict[Literal["connect", "first_event", "idle"], Seconds] = {}
    """What differs from [deadlines] for this upstream."""
    pass_headers: tuple[str, ...] = (
        "user-agent",
        "openai-beta",
        "traceparent",
        "tracestate",
    )
    """The client's header fields that go up. Credentials and hop-by-hop fields never do."""


class RouteConfig(Struct, frozen=True, forbid_unknown_fields=True):
    upstream: Name
    model: Name | None = None
    """The model's name at this upstream; without it, the name the client said."""


class ModelConfig(Struct, frozen=True, forbid_unknown_fields=True):
    name: Name
    """An exact name, or a pattern with `*` and `?`; the first that fits a request's model serves it."""
    upstreams: Annotated[list[str | RouteConfig], Meta(min_length=1)]
    """Tried in this order until one begins to answer."""

    @property
    def is_pattern(self) -> bool:
        return re.search(r"[*?\[]", self.name) is not None


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    server: ServerConfig = ServerConfig()
    auth: AuthConfig = AuthConfig()
    tenants: list[TenantConfig] = []
    limits: LimitsConfig = LimitsConfig()
    deadlines: Deadlines = Deadlines()
    streaming: StreamingConfig = StreamingConfig()
    history: HistoryConfig = HistoryConfig()
    log: LogConfig = LogConfig()
    upstreams: dict[str, UpstreamConfig] = {}
    models: list[ModelConfig] = []


def json_schema() -> bytes:
    """The JSON Schema of the file, for editors and checkers."""
    return msgspec.json.format(msgspec.json.encode(msgspec.json.schema(Config)), indent=2)
