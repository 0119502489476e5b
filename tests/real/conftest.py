"""Ring 4's cast: a real model server, the gateway before it, the gateway alone, and the SDK's client of each.

`TIDEGATE_REAL_DIRECT=1` takes the gateway out: the same tests then talk to the model server itself. What fails then
too is not the gateway's doing, and what fails only then (whole turns left, fields named) is what the gateway is for.
"""

import os
import re
import sys
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest
from openai import AsyncOpenAI, OpenAI

from tests.real import install
from tests.real.processes import running
from tests.real.slots import ModelServer

SERVER_STARTS = 170.0  # seconds: the first time with 130 MB of downloads
GATEWAY_STARTS = 15.0
ANSWERS = 60.0  # seconds the SDK waits for anything; several times what the slowest test needs
LOG_TAIL = 3_000  # characters of a child's log that a failed test shows

LOGS = pytest.StashKey[dict[str, Path]]()


@pytest.fixture(scope="session")
def model_server(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[ModelServer]:
    if reason := install.why_it_cannot_run_here():
        pytest.skip(reason)
    command = [sys.executable, "-m", "tests.real.model_server", "--until-eof"]
    log = _log("model server", tmp_path_factory, pytestconfig)
    # Not anchored: llama.cpp writes its own lines in fragments, and ours may land between two of them.
    with running(command, re.compile(r"model server: listening on (http\S+)"), log, SERVER_STARTS) as url:
        yield ModelServer(url)


@pytest.fixture(scope="session")
def gateway(
    model_server: ModelServer, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[str]:
    """The base URL (with `/v1`) of a gateway whose one upstream is the model server."""
    upstream = f"{model_server.url}/v1"
    if os.environ.get("TIDEGATE_REAL_DIRECT"):
        yield upstream
        return
    log = _log("gateway", tmp_path_factory, pytestconfig)
    with running(_serve("--upstream", upstream), _LISTENS, log, GATEWAY_STARTS) as url:
        yield f"{url}/v1"


@pytest.fixture(scope="session")
def lone_gateway(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[str]:
    """The base URL of a gateway as `serve` starts it when told nothing: with the simulated upstream inside."""
    log = _log("lone gateway", tmp_path_factory, pytestconfig)
    with running(_serve(), _LISTENS, log, GATEWAY_STARTS) as url:
        yield f"{url}/v1"


@pytest.fixture
def client(gateway: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=gateway, api_key="unused", max_retries=0, timeout=ANSWERS) as client:
        yield client


@pytest.fixture
async def trio_client(gateway: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=gateway, api_key="unused", max_retries=0, timeout=ANSWERS) as client:
        yield client


@pytest.fixture
def server_client(model_server: ModelServer) -> Iterator[OpenAI]:
    """Past the gateway: what the server itself says."""
    url = f"{model_server.url}/v1"
    with OpenAI(base_url=url, api_key="unused", max_retries=0, timeout=ANSWERS) as client:
        yield client


@pytest.fixture
def simulated(lone_gateway: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=lone_gateway, api_key="unused", max_retries=0, timeout=ANSWERS) as client:
        yield client


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows how the logs of the processes around it end."""
    report = yield
    if report.failed:
        for name, log in item.config.stash.get(LOGS, {}).items():
            report.sections.append((f"log of the {name}", log.read_text(errors="replace")[-LOG_TAIL:]))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What ring 4's tests measured, by `record_property`: figures for a human, in a run that passes too."""
    reports = [r for r in terminalreporter.getreports("passed") if r.nodeid.startswith("tests/real/")]
    lines = [f"{name}: {value}" for report in reports for name, value in report.user_properties]
    if lines:
        terminalreporter.section("ring 4 measured")
        terminalreporter.write_line("\n".join(lines))


_LISTENS = re.compile(r"^tidegate: listening on (http\S+)")


def _serve(*options: str) -> list[str]:
    return [sys.executable, "-m", "server.cli", "serve", "--port", "0", *options]


def _log(name: str, tmp_path_factory: pytest.TempPathFactory, config: pytest.Config) -> Path:
    log = tmp_path_factory.mktemp("logs") / f"{name.replace(' ', '_')}.log"
    log.touch()  # a child that cannot even be started has an empty one
    config.stash.setdefault(LOGS, {})[name] = log
    return log
