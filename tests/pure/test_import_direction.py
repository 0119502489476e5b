"""Who may import whom: evidence → bench → server → engine, and inside the engine only towards the neutral words."""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OWN = ("engine", "server", "bench", "evidence", "tests")


def modules(package: str) -> dict[str, Path]:
    """The modules of a package or a single module, by their dotted names."""
    place = ROOT.joinpath(*package.split("."))
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    return {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_bytes())


def imports(file: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file names in an import, also where only for types, with its line."""
    package = file.relative_to(ROOT).parent.parts
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) - node.level + 1]] if node.level else []
            start = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            yield start, node.lineno
            yield from ((f"{start}.{alias.name}", node.lineno) for alias in node.names)


def is_within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def breaches(package: str, forbidden: tuple[str, ...]) -> list[str]:
    return [
        f"{module}:{line} imports {name}"
        for module, file in modules(package).items()
        for name, line in imports(file)
        if is_within(name, forbidden) and not is_within(name, (module,))
    ]


NO_IO = ("trio", "socket", "ssl", "asyncio", "threading", "subprocess", "select", "httptools", "anyio", "outcome")
DIRECTION = [
    ("engine", ("server", "bench", "evidence", "tests")),
    ("server", ("bench", "evidence", "tests")),
    ("bench", ("evidence", "tests")),
    ("evidence", ("engine", "server", "tests")),
    ("evidence.gate.specs", ("subprocess", "trio", "evidence")),
    ("evidence.gate.receipts", ("subprocess", "trio", "evidence")),
    ("engine.turn", ("engine.dialects", "engine.wire", "engine.framing", "engine.upstreams", "engine.answers")),
    ("engine.turn", ("socket", "ssl", "json", "msgspec", "httptools", "engine.prompt")),
    ("engine.events", ("engine.dialects", "engine.wire", "engine.framing", "engine.upstreams", "engine.turn", *NO_IO)),
    ("engine.errors", ("engine", *NO_IO)),
    ("engine.deadlines", ("engine", *NO_IO)),
    ("engine.prompt", ("engine", *NO_IO)),
    ("engine.framing", ("engine.dialects", "engine.wire", "engine.upstreams", "engine.events", "engine.turn", *NO_IO)),
    ("engine.dialects", ("engine.wire", "engine.upstreams", "engine.turn", "engine.answers", *NO_IO)),
    ("engine.wire", ("engine.dialects", "engine.framing", "engine.upstreams", "engine.events", "engine.turn")),
    ("engine.upstreams", ("engine.answers", "engine.wire.http1_server", "engine.wire.response")),
    ("engine.upstreams.script", NO_IO),
    ("engine.answers", ("engine.upstreams", "engine.wire.pool", "engine.wire.http1_client")),
    ("server.lines", OWN),
    ("server.limits", ("engine.dialects", "engine.wire", *NO_IO)),
    ("server.auth", ("engine.dialects", "engine.wire", *NO_IO)),
]


@pytest.mark.parametrize(("package", "forbidden"), DIRECTION, ids=[f"{a}: not {b[0]}…" for a, b in DIRECTION])
def test_imports_go_one_way(package: str, forbidden: tuple[str, ...]) -> None:
    forbidden = tuple(name for name in forbidden if name != package)
    assert breaches(package, forbidden) == []


def test_the_dialect_of_the_answer_is_not_the_upstream_s_business() -> None:
    """Which dialect an upstream speaks is said by who makes it: `http.py` and `simulated.py` name none."""
    assert breaches("engine.upstreams", ("engine.dialects",)) == []


def test_the_engine_has_no_configuration_and_no_environment() -> None:
    for module, file in modules("engine").items():
        named = {node.attr for node in ast.walk(parsed(file)) if isinstance(node, ast.Attribute)}
        assert not named & {"environ", "getenv", "argv"}, module
    assert breaches("engine", ("tomllib", "argparse", "configparser", "os.environ")) == []


def test_nothing_imports_the_tests_and_packages_end_at_the_project() -> None:
    known = {*sys.stdlib_module_names, "trio", "msgspec", "httptools", "engine", "server", "__future__"}
    for package in ("engine", "server"):
        for module, file in modules(package).items():
            strange = {name for name, _ in imports(file) if name.partition(".")[0] not in known}
            assert not strange, f"{module} needs {strange}, which is not among the dependencies"


def test_no_module_is_imported_in_a_circle() -> None:
    """But for types: those are named while nothing runs."""
    files = modules("engine") | modules("server")
    edges = {module: set(_at_run_time(file, files)) for module, file in files.items()}
    done: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, " → ".join([*way[way.index(module) :], module])
        if module not in done:
            for other in edges[module] & edges.keys() - {module}:
                visit(other, (*way, module))
            done.add(module)

    for module in edges:
        visit(module, ())


def _at_run_time(file: Path, known: Collection[str]) -> Iterator[str]:
    for node in parsed(file).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            submodules = [f"{node.module}.{alias.name}" for alias in node.names]
            own = [name for name in submodules if name in known]
            yield from own or [node.module]


def test_the_reader_of_imports_sees_every_kind_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "engine" / "dialects"
    package.mkdir(parents=True)
    (package / "x.py").write_text(
        "import trio.socket\nfrom engine import wire\nfrom ..wire import pool\nfrom . import y\n"
        "def f():\n    import socket as s\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    found = breaches("engine.dialects", ("trio", "engine.wire", "socket"))
    assert found == [
        "engine.dialects.x:1 imports trio.socket",
        "engine.dialects.x:2 imports engine.wire",
        "engine.dialects.x:3 imports engine.wire",
        "engine.dialects.x:3 imports engine.wire.pool",
        "engine.dialects.x:6 imports socket",
    ]
