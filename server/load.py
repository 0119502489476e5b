"""Reading the configuration: file, then `--set`, then what the command line's own options say; checked as a whole.

Every complaint names the key, and the line where the file has one.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from engine.wire.http1 import HOP_BY_HOP
from engine.wire.tls import client_context
from server.config import FIELD_PATTERN, PATTERNS, Config, ModelConfig, UpstreamConfig
from server.lines import line_of

Tree = dict[str, Any]
OURS = ("host", "content-length", "content-type", "accept", "accept-encoding", "expect", "x-request-id")
CREDENTIALS = ("authorization", "x-api-key", "proxy-authorization", "cookie")


class ConfigError(Exception):
    """The configuration cannot be used. The message is for the operator, one line a complaint."""


def load(path: Path | None, sets: list[str], environment: Mapping[str, str]) -> Config:
    """The configuration in force. Raises ConfigError."""
    text = _read(path) if path is not None else ""
    tree = _parse(text, path)
    for setting in sets:
        _apply(tree, setting)
    config = _convert(_with_default_route(tree), text, path, sets)
    complaints = [_say(path, text, place, what) for place, what in _complaints(config, environment)]
    if complaints:
        raise ConfigError("\n".join(complaints))
    return config


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None


def _parse(text: str, path: Path | None) -> Tree:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def _apply(tree: Tree, setting: str) -> None:
    """One `--set a.b.c=VALUE`: a TOML value, or else a plain string."""
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set {setting}: is not KEY=VALUE")
    try:
        value: Any = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *way, last = key.strip().split(".")
    place: Any = tree
    try:
        for part in way:
            place = place[int(part)] if isinstance(place, list) else place.setdefault(part, {})
        place[int(last) if isinstance(place, list) else last] = value
    except (IndexError, ValueError, TypeError, AttributeError):
        raise ConfigError(f"--set {setting}: there is no place `{key}`") from None


def _with_default_route(tree: Tree) -> Tree:
    """Upstreams without models serve every name; nothing at all is the simulated upstream."""
    if not tree.get("upstreams"):
        tree["upstreams"] = {"simulated": {"url": "simulated://"}}
        tree.setdefault("models", [{"name": name, "upstreams": ["simulated"]} for name in ("simulated", "simulated/*")])
    elif "models" not in tree and isinstance(tree["upstreams"], dict):
        tree["models"] = [{"name": "*", "upstreams": list(tree["upstreams"])}]
    return tree


_PLACE = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<place>.*)`)?$", re.DOTALL)
_FIELD = re.compile(r"(unknown|missing required) field `(?P<field>[^`]+)`")


def _convert(tree: Tree, text: str, path: Path | None, sets: list[str]) -> Config:
    try:
        return msgspec.convert(tree, Config)
    except msgspec.ValidationError as error:
        match = _PLACE.match(str(error))
        assert match is not None
        place = _indexed(match["place"] or "", tree)
        if field := _FIELD.search(match["what"]):
            place = f"{place}.{field['field']}".lstrip(".")
        what = next(
            (f"is not {words}" for pattern, words in PATTERNS.items() if pattern in match["what"]), match["what"]
        )
        by_option = "".join(f" (by --set {setting})" for setting in sets if setting.partition("=")[0] == place)
        raise ConfigError(_say(path, text, place, what + by_option)) from None


def _indexed(place: str, tree: Tree) -> str:
    """msgspec writes `[0]` for a list's place, and `[...]` for any entry of a table: we look for the wrong one."""
    dotted = re.sub(r"\[(\d+)\]", r".\1", place)
    head, gap, tail = dotted.partition("[...]")
    if gap and head == "upstreams":
        head = next((f"{head}.{name}" for name, entry in tree[head].items() if not _is_upstream(entry)), head)
    return (head + tail).replace("[...]", "")


def _is_upstream(entry: object) -> bool:
    try:
        msgspec.convert(entry, UpstreamConfig)
    except msgspec.ValidationError:
        return False
    return True


def _say(path: Path | None, text: str, place: str, what: str) -> str:
    line = line_of(text, place) if text else None
    where = f"{path}:{line}" if path is not None and line is not None else str(path or "configuration")
    return f"{where}: {place}: {what}" if place else f"{where}: {what}"


def _complaints(config: Config, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What types cannot say: names that must exist, and what must not be open."""
    names: set[str] = set()
    for at, tenant in enumerate(config.tenants):
        if tenant.name in names:
            yield f"tenants.{at}.name", f"`{tenant.name}` is there twice"
        names.add(tenant.name)
        for number, key in enumerate(tenant.keys):
            if key.startswith("env:") and not environment.get(key[4:]):
                yield f"tenants.{at}.keys.{number}", f"the environment variable {key[4:]} is not set"
    for name, upstream in config.upstreams.items():
        yield from _upstream_complaints(name, upstream, environment)
    for at, model in enumerate(config.models):
        yield from _model_complaints(at, model, config)
    if not config.tenants and not config.auth.open and not is_loopback(config.server.host):
        what = f"`{config.server.host}` is not loopback: configure tenants, or set auth.open to serve anybody"
        yield "server.host", what


def _upstream_complaints(
    name: str, upstream: UpstreamConfig, environment: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    place = f"upstreams.{name}"
    try:
        url = urlsplit(upstream.url)
        if url.scheme != "simulated" and (not url.hostname or url.port == 0):
            yield f"{place}.url", "has no host, or no port that can be connected to"
    except ValueError as error:
        yield f"{place}.url", str(error)
    if upstream.key_env is not None and not environment.get(upstream.key_env):
        yield f"{place}.key_env", f"the environment variable {upstream.key_env} is not set"
    if upstream.ca_file is not None and not Path(upstream.ca_file).is_file():
        yield f"{place}.ca_file", f"there is no file {upstream.ca_file}"
    elif upstream.ca_file is not None:
        try:
            client_context(Path(upstream.ca_file))
        except OSError as error:  # ssl.SSLError is one, too
            yield f"{place}.ca_file", f"{upstream.ca_file} cannot be used: {error}"
    for header in upstream.pass_headers:
        if header.lower() in CREDENTIALS:
            yield f"{place}.pass_headers", f"`{header}` is the client's credential and never goes up"
        if not re.fullmatch(FIELD_PATTERN, header):
            yield f"{place}.pass_headers", f"`{header}` is not the name of a header field"
        if header.lower() in OURS:
            yield f"{place}.pass_headers", f"`{header}` is a field of the gateway's own request"
        if header.lower().encode() in HOP_BY_HOP:
            yield f"{place}.pass_headers", f"`{header}` is of one connection only and never goes further"


def _model_complaints(at: int, model: ModelConfig, config: Config) -> Iterator[tuple[str, str]]:
    for number, route in enumerate(model.upstreams):
        upstream = route if isinstance(route, str) else route.upstream
        if upstream not in config.upstreams:
            known = ", ".join(config.upstreams)
            yield f"models.{at}.upstreams.{number}", f"there is no upstream `{upstream}` (there are: {known})"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address; a name counts only if it is `localhost`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
