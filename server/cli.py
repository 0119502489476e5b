"""The command line: `tidegate serve`, `check`, `config`, `key`, `simulate`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from server import serve, simulate
from server.auth import hash_key, new_key
from server.config import Config, json_schema
from server.load import ConfigError, load


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status: 0 well, 1 it could not, 2 the command line or configuration is wrong."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except ConfigError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tidegate", description="A streaming gateway for language models.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    serving = commands.add_parser("serve", help="start the gateway")
    _configured(serving)
    serving.add_argument("--host", help="address to listen on (server.host)")
    serving.add_argument("--port", type=int, help="port to listen on, 0 for any (server.port)")
    serving.add_argument("--upstream", metavar="URL", help="send every model to this OpenAI-compatible server")
    serving.set_defaults(command=_serve)

    checking = commands.add_parser("check", help="check a configuration, and say what is wrong and where")
    _configured(checking)
    checking.set_defaults(command=_check)

    config = commands.add_parser("config", help="about the configuration").add_subparsers(required=True)
    schema = config.add_parser("schema", help="print the JSON Schema of the configuration file")
    schema.set_defaults(command=lambda _: _print(json_schema().decode()))

    key = commands.add_parser("key", help="make an API key, and its hash for the configuration")
    key.set_defaults(command=lambda _: _new_key())

    simulating = commands.add_parser("simulate", help="start the simulated upstream as a server of its own")
    simulating.add_argument("--host", default="127.0.0.1")
    simulating.add_argument("--port", type=int, default=8081)
    simulating.set_defaults(command=lambda options: simulate.run(options.host, options.port))
    return parser


def _configured(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="the configuration, in TOML")
    parser.add_argument(
        "--set", action="append", default=[], dest="sets", metavar="KEY=VALUE", help="override a key of the file"
    )


def _loaded(options: argparse.Namespace) -> Config:
    sets: list[str] = []
    if getattr(options, "upstream", None):
        sets += [f'upstreams={{default={{url="{options.upstream}"}}}}', 'models=[{name="*",upstreams=["default"]}]']
    sets += options.sets
    for name in ("host", "port"):
        if (value := getattr(options, name, None)) is not None:
            sets.append(f"server.{name}={value}")
    return load(options.config, sets, os.environ)


def _serve(options: argparse.Namespace) -> int:
    return serve.run(_loaded(options))


def _check(options: argparse.Namespace) -> int:
    _loaded(options)
    return _print(f"{options.config or 'the built-in configuration'} is right")


def _new_key() -> int:
    key = new_key()
    return _print(f'key:    {key}\nconfig: keys = ["sha256:{hash_key(key).hex()}"]')


def _print(text: str) -> int:
    print(text)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
