"""A case's `config`, in neutral names, as this gateway's own configuration file and environment.

The one place to extend when the gateway learns a setting.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
CLIENT_KEY = "test-client-key"
UPSTREAM_KEY_VARIABLE = "TIDEGATE_CASE_UPSTREAM_KEY"

_SECTION_OF = {
    "upstream_idle_timeout_s": "deadlines.idle",
    "upstream_first_byte_timeout_s": "deadlines.first_event",
    "upstream_first_token_timeout_s": "deadlines.first_event",
    "client_write_timeout_s": "deadlines.drain",
    "drain_timeout_s": "deadlines.grace",
    "sse_keepalive_s": "streaming.keep_alive",
    "max_body_bytes": "limits.body_bytes",
    "keep_alive_max_requests": "limits.requests_per_connection",
    "log_level": "log.level",
    "upstream_max_connections": "upstreams.fake.max_connections",
    "reasoning_parser": "upstreams.fake.reasoning",
}
_HERE = frozenset({"api_keys", "upstream_url", "upstream_key", "upstream_refuses"})
_ONLY_THIS_VALUE: Json = {"retries": 0}


@dataclass(frozen=True)
class Settings:
    """What a gateway process is started with."""

    toml: str
    environment: dict[str, str] = field(default_factory=dict)


def why_unsupported(config: Json) -> str | None:
    """The first setting that the gateway does not have, in words."""
    for name, value in config.items():
        if name in _ONLY_THIS_VALUE and value != _ONLY_THIS_VALUE[name]:
            return f"setting {name} = {value!r} is not there yet"
        if name not in _HERE and name not in _SECTION_OF and name not in _ONLY_THIS_VALUE:
            return f"setting {name} is not there yet"
    return None


def settings_for(config: Json, upstream_port: int, refusing_port: int) -> Settings:
    """One tenant for each key, one upstream called `fake`, every model name routed to it, keep-alives off."""
    tree: dict[str, Json] = {
        "server": {"host": "127.0.0.1", "port": 0},
        "deadlines": {},
        "streaming": {"keep_alive": 0},
        "limits": {},
        "log": {},
        "upstreams.fake": {"url": _upstream_url(config, upstream_port, refusing_port)},
    }
    for name, value in config.items():
        if name in _SECTION_OF:
            section, _, key = _SECTION_OF[name].rpartition(".")
            tree[section][key] = value
    environment = {}
    if "upstream_key" in config:
        tree["upstreams.fake"]["key_env"] = UPSTREAM_KEY_VARIABLE
        environment[UPSTREAM_KEY_VARIABLE] = config["upstream_key"]
    keys = config.get("api_keys", [CLIENT_KEY])
    return Settings(_toml(tree) + _tenants(keys) + _MODELS, environment)


_MODELS = '[[models]]\nname = "*"\nupstreams = ["fake"]\n'


def _upstream_url(config: Json, upstream_port: int, refusing_port: int) -> str:
    port = refusing_port if config.get("upstream_refuses") else upstream_port
    return str(config.get("upstream_url", f"http://127.0.0.1:{port}/v1"))


def _toml(tree: dict[str, Json]) -> str:
    """Numbers, strings and booleans are written in TOML as in JSON."""
    sections = (
        f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in section.items())
        for name, section in tree.items()
    )
    return "\n".join(sections) + "\n"


def _tenants(keys: list[str]) -> str:
    return "".join(
        f'[[tenants]]\nname = "tenant-{number}"\nkeys = ["sha256:{hashlib.sha256(key.encode()).hexdigest()}"]\n\n'
        for number, key in enumerate(keys)
    )
