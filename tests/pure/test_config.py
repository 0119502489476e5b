"""The configuration: what is right passes, and what is wrong is named with its key and its line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from server.auth import hash_key
from server.config import Config
from server.load import ConfigError, is_loopback, load

HASH = "sha256:" + hash_key("secret").hex()

EXAMPLE = f"""\
[server]
host = "0.0.0.0"
port = 9000

[[tenants]]
name = "a"
keys = ["{HASH}", "env:KEY_OF_A"]
turns = 5

[deadlines]
first_event = 60

[upstreams.local]
url = "http://127.0.0.1:8081/v1"

[upstreams.far]
url = "https://example.com/v1"
key_env = "FAR_KEY"
deadlines = {{ first_event = 10, idle = 0 }}

[[models]]
name = "gpt-*"
upstreams = ["local", {{ upstream = "far", model = "alias" }}]
"""
ENVIRONMENT = {"KEY_OF_A": "x", "FAR_KEY": "sk-operator"}


def loaded(path: Path, text: str, *sets: str, environment: Mapping[str, str] = ENVIRONMENT) -> Config:
    file = path / "gate.toml"
    file.write_text(text, encoding="utf-8")
    return load(file, list(sets), environment)


def complaint(path: Path, text: str, *sets: str, environment: Mapping[str, str] = ENVIRONMENT) -> str:
    """What the operator is told; the file's folder is left out."""
    with pytest.raises(ConfigError) as caught:
        loaded(path, text, *sets, environment=environment)
    return str(caught.value).replace(f"{path}/", "")


def set_by(*sets: str) -> Config:
    return load(None, list(sets), {})


def wrong_set(*sets: str) -> str:
    with pytest.raises(ConfigError) as caught:
        set_by(*sets)
    return str(caught.value)


def test_an_example_of_everything_is_right(tmp_path: Path) -> None:
    config = loaded(tmp_path, EXAMPLE)
    assert (config.server.host, config.server.port) == ("0.0.0.0", 9000)
    assert config.tenants[0].turns == 5
    assert config.deadlines.first_event == 60
    assert config.upstreams["far"].deadlines == {"first_event": 10, "idle": 0}
    assert config.deadlines.idle == Config().deadlines.idle


def test_nothing_at_all_is_the_simulated_upstream() -> None:
    config = set_by()
    assert config.upstreams["simulated"].url == "simulated://"
    assert [model.name for model in config.models] == ["simulated", "simulated/*"]
    assert (config.server.host, config.server.port) == ("127.0.0.1", 8080)


def test_upstreams_without_models_serve_every_name_in_their_order(tmp_path: Path) -> None:
    text = '[upstreams.b]\nurl="http://b/v1"\n[upstreams.a]\nurl="http://a/v1"\n'
    (model,) = loaded(tmp_path, text).models
    assert (model.name, model.upstreams) == ("*", ["b", "a"])


@pytest.mark.parametrize(
    ("wrong", "line", "place", "what"),
    [
        ("[server]\nport = 'x'", 2, "server.port", "Expected `int`, got `str`"),
        ("[server]\n\nport = 70000", 3, "server.port", "65535"),
        ("[server]\nhots = 'x'", 2, "server.hots", "unknown field"),
        ("\n[sever]\nhost = 'x'", 2, "sever", "unknown field"),
        ("[limits]\nturns = 0", 2, "limits.turns", ">= 1"),
        ("[limits]\nturns = 1.5", 2, "limits.turns", "Expected `int`"),
        ("[streaming]\nkeep_alive = -1", 2, "streaming.keep_alive", ">= 0"),
        ("[log]\nlevel = 'loud'", 2, "log.level", "loud"),
        ("[[tenants]]\nname='a'\nkeys=['plain']", 3, "tenants.0.keys.0", "is not sha256:HEX of a key"),
        (
            "[[tenants]]\nname='a'\nkeys=['env:X']\n[[tenants]]\nkeys=['env:X']",
            4,
            "tenants.1.name",
            "missing",
        ),
        ("[upstreams.x]\nurl = 'ftp://x'", 2, "upstreams.x.url", "is not a base URL"),
        # pragma: allowlist nextline secret
        ("[upstreams.x]\nurl = 'http://user:key@host/v1'", 2, "upstreams.x.url", "is not a base URL"),
        ("[upstreams.x]\nurl = 'http://x'\nkeys = 'y'", 3, "upstreams.x.keys", "unknown field"),
        ("[upstreams.x]\ndialect = 'chat'", 1, "upstreams.x.url", "missing"),
        ("upstreams.x.url = 'nonsense'", 1, "upstreams.x.url", "is not a base URL"),
        ("[[models]]\nname = 'm'\nupstreams = []", 3, "models.0.upstreams", "length >= 1"),
        ("[[models]]\nname = 'm'\nupstreams = [5]", 3, "models.0.upstreams.0", "got `int`"),
        ("[deadlines]\nidel = 5", 2, "deadlines.idel", "unknown field"),
        ("[deadlines]\nidle = 'x'", 2, "deadlines.idle", "Expected `float`"),
    ],
)
def test_what_is_wrong_is_named_with_its_key_and_its_line(
    tmp_path: Path, wrong: str, line: int, place: str, what: str
) -> None:
    message = complaint(tmp_path, wrong)
    assert message.startswith(f"gate.toml:{line}: {place}: ")
    assert what in message


@pytest.mark.parametrize(
    ("second", "line", "place"),
    [
        ("url = 'http://y'\nkey = 'z'", 5, "upstreams.y.key"),
        ("url = 'nonsense'", 4, "upstreams.y.url"),
        ("max_connections = 5", 3, "upstreams.y.url"),
        ("url = 'http://y'\nmax_connections = 0", 5, "upstreams.y.max_connections"),
        ("url = 'http://y'\ndeadlines = {idle = -1}", 5, "upstreams.y.deadlines"),
    ],
)
def test_the_upstream_that_is_wrong_is_named_and_not_another(
    tmp_path: Path, second: str, line: int, place: str
) -> None:
    text = f"[upstreams.x]\nurl = 'http://x'\n[upstreams.y]\n{second}\n"
    assert complaint(tmp_path, text).startswith(f"gate.toml:{line}: {place}")


def test_every_name_that_does_not_exist_is_told_in_one_go(tmp_path: Path) -> None:
    message = complaint(tmp_path, EXAMPLE.replace('"local", {', '"lokal", {').replace('"far", model', '"fra", model'))
    assert message.split("\n") == [
        "gate.toml:23: models.0.upstreams.0: there is no upstream `lokal` (there are: local, far)",
        "gate.toml:23: models.0.upstreams.1: there is no upstream `fra` (there are: local, far)",
    ]


def test_a_variable_that_is_not_set_is_named(tmp_path: Path) -> None:
    for environment in ({}, {"KEY_OF_A": "", "FAR_KEY": ""}):
        lines = complaint(tmp_path, EXAMPLE, environment=environment).split("\n")
        assert lines == [
            "gate.toml:7: tenants.0.keys.1: the environment variable KEY_OF_A is not set",
            "gate.toml:18: upstreams.far.key_env: the environment variable FAR_KEY is not set",
        ]


def test_a_tenant_s_name_is_there_once(tmp_path: Path) -> None:
    two = f"[[tenants]]\nname='a'\nkeys=['{HASH}']\n" * 2
    assert complaint(tmp_path, two) == "gate.toml:5: tenants.1.name: `a` is there twice"


def test_a_tenant_without_keys_is_refused(tmp_path: Path) -> None:
    """It would make the gateway look closed and be open: nobody can have its key."""
    assert "tenants.0.keys" in complaint(tmp_path, "[server]\nhost='0.0.0.0'\n[[tenants]]\nname='a'\nkeys=[]\n")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.com", ""])
def test_nobody_listens_openly_beyond_this_machine_by_accident(tmp_path: Path, host: str) -> None:
    text = f"\n[server]\nhost = '{host}'\n"
    assert complaint(tmp_path, text).startswith(f"gate.toml:3: server.host: `{host}` is not loopback")
    assert loaded(tmp_path, text, "auth.open=true").auth.open
    assert loaded(tmp_path, text + f"[[tenants]]\nname='a'\nkeys=['{HASH}']\n").tenants


@pytest.mark.parametrize(
    ("host", "is_one"),
    [
        *(("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("localhost", True)),
        *(("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("localhost.example.com", False), ("", False)),
    ],
)
def test_loopback_is_told_by_the_address(host: str, is_one: bool) -> None:
    assert is_loopback(host) is is_one


@pytest.mark.parametrize("header", ["Authorization", "x-api-key", "Cookie", "Proxy-Authorization"])
def test_a_client_s_credentials_cannot_be_configured_to_go_up(tmp_path: Path, header: str) -> None:
    text = f"[upstreams.x]\nurl='http://x'\npass_headers = ['user-agent', '{header}']\n"
    assert f"gate.toml:3: upstreams.x.pass_headers: `{header}`" in complaint(tmp_path, text)


@pytest.mark.parametrize("header", ["Connection", "te", "transfer-encoding", "upgrade", "keep-alive"])
def test_a_field_of_the_hop_cannot_be_configured_to_go_up(tmp_path: Path, header: str) -> None:
    text = f"[upstreams.x]\nurl='http://x'\npass_headers = ['{header}']\n"
    assert f"`{header}`" in complaint(tmp_path, text)


@pytest.mark.parametrize("header", ["content-length", "Host", "content-type", "accept-encoding", "expect", "a b", "a:"])
def test_a_field_that_frames_the_gateway_s_own_request_cannot_be_configured_to_go_up(
    tmp_path: Path, header: str
) -> None:
    text = f"[upstreams.x]\nurl='http://x'\npass_headers = ['{header}']\n"
    assert complaint(tmp_path, text).startswith("gate.toml:3: upstreams.x.pass_headers")


@pytest.mark.parametrize("url", ["http://x:99999/v1", "http://x:port/v1", "http://[::1/v1", "http://:80/v1"])
def test_an_address_that_cannot_be_used_is_found_when_the_file_is_checked(tmp_path: Path, url: str) -> None:
    assert "upstreams.x.url" in complaint(tmp_path, f"[upstreams.x]\nurl = '{url}'\n")


@pytest.mark.parametrize("name", ["head", "connect", "first_event", "idle", "total", "drain", "grace"])
def test_a_deadline_is_never_negative(tmp_path: Path, name: str) -> None:
    assert f"deadlines.{name}" in complaint(tmp_path, f"[deadlines]\n{name} = -1\n")


def test_certificates_that_are_not_there_are_found_when_the_file_is_checked(tmp_path: Path) -> None:
    text = "[upstreams.x]\nurl = 'https://x'\nca_file = '/no/such/file.pem'\n"
    assert complaint(tmp_path, text) == "gate.toml:3: upstreams.x.ca_file: there is no file /no/such/file.pem"


def test_a_file_that_is_no_toml_or_no_file_is_told(tmp_path: Path) -> None:
    assert "gate.toml: not valid TOML: " in complaint(tmp_path, "[server\n")
    assert "line 1" in complaint(tmp_path, "[server\n")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.toml", [], {})
    (tmp_path / "latin").write_bytes(b"# \xe9")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "latin", [], {})


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("server.port=9", 9),
        ("server.port=0", 0),
        ('server.host="::1"', "::1"),
        ("server.host=::1", "::1"),
        ("server.host=localhost", "localhost"),
        ("deadlines.drain=0.5", 0.5),
        ("deadlines.drain=10", 10.0),
        ("auth.open=true", True),
        ("upstreams.simulated.url=http://x/v1", "http://x/v1"),
        (" server.port =9", 9),
    ],
)
def test_any_key_can_be_set_on_the_command_line(setting: str, value: object) -> None:
    place: object = set_by(setting)
    for part in setting.partition("=")[0].strip().split("."):
        place = place[part] if isinstance(place, dict) else getattr(place, part)
    assert place == value


def test_the_command_line_comes_after_the_file_and_its_last_word_counts(tmp_path: Path) -> None:
    assert loaded(tmp_path, EXAMPLE, "server.port=1", "server.port=2").server.port == 2
    assert loaded(tmp_path, EXAMPLE, "server.port=1").server.host == "0.0.0.0"
    assert loaded(tmp_path, EXAMPLE, "models.0.name=other").models[0].name == "other"


@pytest.mark.parametrize("setting", ["server.port", "=5", "models.7.name=x", "server.port.x=1", "models.x=1"])
def test_a_setting_that_has_no_place_is_named(tmp_path: Path, setting: str) -> None:
    assert complaint(tmp_path, EXAMPLE, setting).startswith(f"--set {setting}: ")


@pytest.mark.parametrize("setting", ["server.prot=1", "server.port=x", "deadlines.idle=soon", "nonsense=1"])
def test_a_setting_that_is_wrong_is_named(setting: str) -> None:
    message = wrong_set(setting)
    assert setting.partition("=")[0] in message
    assert f"--set {setting}" in message


def test_a_secret_is_never_in_a_complaint(tmp_path: Path) -> None:
    for wrong in (EXAMPLE.replace("turns = 5", "turns = 'x'"), EXAMPLE.replace('"local", {', '"lokal", {')):
        assert "sk-operator" not in complaint(tmp_path, wrong)
    plain = "[[tenants]]\nname = 'a'\nkeys = ['sk-in-plain-text']\n"
    assert "sk-in-plain-text" not in complaint(tmp_path, plain)
