"""The real gate on a small disposable repository: what makes it fail, and that it is green again when mended."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from evidence.gate import running
from evidence.gate.repository import Repository
from tests.helpers.repository import SPEC, TESTS, Disposable

SPEC_FILE = "evidence/mutants/limit.toml"
TEST_FILE = "tests/test_product.py"
STEPS = ("static", "baseline", "secrets", "suite", "census", "whitespace")


@pytest.fixture
def repository(tmp_path: Path) -> Disposable:
    return Disposable(tmp_path)


def words(said: str) -> dict[str, str]:
    """The steps of a summary, and what became of each."""
    summary = said.rpartition("\n\n")[2].splitlines()
    return {line.split()[1]: line.split()[0] for line in summary[:-1]}


def test_a_drifted_pin_fails_the_gate_and_a_restored_one_passes(repository: Disposable) -> None:
    ran = repository.runs("gate")
    assert (ran.status, words(ran.said)) == (0, {**dict.fromkeys(STEPS, "PASS"), "mutants": "SKIP"})

    repository.edit(SPEC_FILE, "passes = 2", "passes = 3")
    drifted = (repository.root / SPEC_FILE).read_bytes()
    ran = repository.runs("gate")
    assert (ran.status, words(ran.said)["baseline"]) == (1, "FAIL")
    assert "2 tests pass but the spec expects 3: either the suite changed or the spec is stale" in ran.said
    assert (repository.root / SPEC_FILE).read_bytes() == drifted

    repository.edit(SPEC_FILE, "passes = 3", "passes = 2")
    assert repository.runs("gate").status == 0


def test_every_step_runs_whatever_became_of_the_others(repository: Disposable) -> None:
    key = "sk-" + "proj-" + "a1B2c3D4" * 4
    repository.write(
        {
            "product.py": (repository.root / "product.py").read_text() + f'KEY = "{key}" \n',
            "tests/test_nothing.py": "import pytest\n\n\n@pytest.mark.skip(reason='no ear')\ndef test_it(): ...\n",
        }
    )
    repository.edit(SPEC_FILE, 'anchor = """min(size, limit)"""', 'anchor = """max(size, limit)"""')
    repository.edit(TEST_FILE, "taken(1, 2) == 1", "taken(1, 2) == 2")
    ran = repository.runs("gate")
    assert ran.status == 2
    assert words(ran.said) == {
        "static": "UNTRUSTWORTHY",
        "baseline": "UNTRUSTWORTHY",
        "secrets": "FAIL",
        "suite": "FAIL",
        "census": "FAIL",
        "whitespace": "FAIL",
        "mutants": "SKIP",
    }
    assert "limit.toml: mutant 'everything is taken': the anchor occurs 0 times in product.py" in ran.said
    assert "product.py:7: " in ran.said
    assert key not in ran.said
    assert "tests/test_nothing.py: nothing ran (no ear)" in ran.said


def test_what_is_inert_must_be_declared_for_this_machine(repository: Disposable) -> None:
    repository.write({"tests/test_nothing.py": "import pytest\n\npytest.skip('no ear', allow_module_level=True)\n"})
    assert repository.runs("gate").line("census").startswith("FAIL")
    ran = repository.runs("gate", inert="tests/test_nothing.py\ntests/test_product.py\n")
    assert (ran.status, ran.line("census").split()[0]) == (0, "PASS")
    assert "tests/test_product.py is declared inert, and is not" in ran.said


@pytest.mark.parametrize("command", ["gate", "gate.baseline", "gate.mutation", "gate.static", "gate.secret_scan"])
def test_an_unknown_option_is_untrustworthy_and_runs_nothing(command: str, repository: Disposable) -> None:
    ran = repository.runs(command, "--al")
    assert ran.status == 2
    assert "passed" not in ran.said


@pytest.mark.parametrize("command", ["gate", "gate.baseline"])
def test_an_unknown_base_is_untrustworthy(command: str, repository: Disposable) -> None:
    ran = repository.runs(command, "--base", "nowhere")
    assert (ran.status, ran.said.strip()) == (2, "there is no revision nowhere")


def test_the_baseline_is_of_what_a_branch_touches_or_of_everything(repository: Disposable) -> None:
    other = SPEC.replace("test_product", "test_other")
    repository.write({"tests/test_other.py": TESTS, "evidence/mutants/other.toml": other})
    repository.commit()
    assert repository.runs("gate.baseline").said.endswith("2 specs measured, 0 drift, 0 untrustworthy\n")
    repository.git("checkout", "--quiet", "-b", "branch")
    repository.edit("tests/test_other.py", "taken(1, 2)", "taken(1, 3)")
    repository.commit()
    assert repository.runs("gate.baseline").said.endswith("1 specs measured, 0 drift, 0 untrustworthy\n")
    repository.git("checkout", "--quiet", "main")
    repository.write({"README.md": "x\n"})
    assert repository.runs("gate.baseline").said == "no spec touched by the change\n"
    assert repository.runs("gate.baseline", "--all").said.endswith("2 specs measured, 0 drift, 0 untrustworthy\n")


def test_a_mutant_is_caught_or_survives_and_the_report_says_which(repository: Disposable, tmp_path: Path) -> None:
    harmless = SPEC + '\n[[mutants]]\nname = "words"\nkind = "lost"\nfile = "product.py"\n'
    harmless += 'anchor = "A product."\nreplacement = "The product."\n'
    repository.write({SPEC_FILE: harmless, ".gitignore": "__pycache__/\n*.json\n*.md\n"})
    repository.commit()
    ran = repository.runs("gate.mutation", "--json", "verdicts.json", "--page", "page.md")
    assert ran.status == 1
    assert ran.said.endswith("1 specs, 4 mutants: 3 caught, 1 survived (0 as documented), 0 untrustworthy\n")
    report = json.loads((tmp_path / "verdicts.json").read_bytes())
    assert report["command"] == "python -m evidence.gate.mutation --json verdicts.json --page page.md"
    (spec,) = report["figures"]["specs"]
    assert spec["commit"] == repository.git("rev-parse", "HEAD").strip()
    assert [mutant["verdict"] for mutant in spec["mutants"]] == ["caught", "caught", "caught", "survived"]
    assert spec["mutants"][2]["failed"] == [f"{TEST_FILE}::test_a_small_one_is_taken_whole"]
    assert "| words | lost | `product.py` | SURVIVED: no test noticed |" in (tmp_path / "page.md").read_text()
    assert repository.git("worktree", "list").count("\n") == 1
    assert repository.git("status", "--porcelain") == ""

    repository.write({SPEC_FILE: harmless + 'survives = "It is read by nobody."\n'})
    repository.commit()
    ran = repository.runs("gate.mutation", "--only", "words")
    assert (ran.status, ran.said.endswith("0 caught, 1 survived (1 as documented), 0 untrustworthy\n")) == (0, True)


def test_a_documented_survivor_that_is_caught_is_wrong(repository: Disposable) -> None:
    repository.write({SPEC_FILE: SPEC + 'survives = "Nobody looks."\n'})
    repository.commit()
    ran = repository.runs("gate.mutation", "--only", "always")
    assert ran.status == 1
    assert "the limit is always taken: caught, though the spec says that it survives: by " in ran.said


def test_the_release_gate_executes_the_mutants_of_a_clean_tree_only(repository: Disposable) -> None:
    ran = repository.runs("gate", "--release")
    assert (ran.status, words(ran.said)) == (0, dict.fromkeys((*STEPS, "mutants"), "PASS"))
    assert "3 mutants: 3 caught" in ran.line("mutants")
    repository.write({"untracked": ""})
    ran = repository.runs("gate.mutation")
    assert (ran.status, "the tree is not clean" in ran.said) == (2, True)
    assert "passed" not in ran.said


DOUBTS = {
    "tests that cannot be collected": ("NAME + NAME", "NAME.bit", "tests/test_product.py could not be collected"),
    "other tests than before": ('"none"', '"other"', "2 tests ran only with the mutant or only without"),
    "a file that is left behind": ("0 + size", "open('left', 'w').close() or size", "not the mutated file alone"),
    "a look beyond loopback": (
        "1 * size",
        "__import__('socket').socket().connect_ex(('192.0.2.1', 9)) and size",
        "a process looked beyond loopback: socket.connect '192.0.2.1'",
    ),
    "an end before the last test": ("2 * size", "__import__('os')._exit(0)", "the run broke off"),
}
DOUBTFUL = '''\
"""A product."""

NAME = "none"
TWICE = NAME + NAME


def taken(size, limit):
    assert 0 + size == 1 * size == 2 * size - size
    return min(size, limit)
'''


@pytest.mark.parametrize("name", DOUBTS)
def test_a_verdict_is_given_only_where_it_can_be_believed(name: str, repository: Disposable) -> None:
    anchor, replacement, why = DOUBTS[name]
    tests = TESTS + "\n\n@__import__('pytest').mark.parametrize('name', [__import__('product').NAME])\n"
    mutants = SPEC.partition("[[mutants]]")[2].rpartition("[[mutants]]")[0]
    over = "[[mutants]]\nname = 'doubtful'\nkind = 'over-reach'\nfile = 'product.py'\n"
    repository.write(
        {
            "product.py": DOUBTFUL,
            TEST_FILE: tests + "def test_a_name(name):\n    pass\n",
            SPEC_FILE: SPEC.partition("[[mutants]]")[0].replace("= 2", "= 3")
            + f"[[mutants]]{mutants}{over}anchor = '''{anchor}'''\nreplacement = '''{replacement}'''\n",
        }
    )
    repository.commit()
    ran = repository.runs("gate.mutation", "--only", "doubtful")
    assert ran.status == 2
    assert f"doubtful: UNTRUSTWORTHY: {why}" in ran.said
    assert ran.said.endswith("0 caught, 0 survived (0 as documented), 1 untrustworthy\n")
    assert repository.git("worktree", "list").count("\n") == 1


def test_no_verdict_is_given_where_the_untouched_tree_is_red_or_drifts(repository: Disposable) -> None:
    repository.edit(SPEC_FILE, "passes = 2", "passes = 1")
    repository.commit()
    ran = repository.runs("gate.mutation")
    assert (ran.status, ran.said.endswith("0 caught, 0 survived (0 as documented), 3 untrustworthy\n")) == (2, True)


def test_one_mutation_run_at_a_time(repository: Disposable) -> None:
    with Repository(repository.root).locked():
        ran = repository.runs("gate.mutation")
    assert (ran.status, ran.said) == (2, "another mutation run is under way in this repository\n")
    assert repository.runs("gate.mutation", "--only", "everything").status == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_no_worktree_behind_for_long(number: int, repository: Disposable) -> None:
    slow = TESTS + "\n\ndef test_slow():\n    __import__('time').sleep(2)\n"
    repository.write({TEST_FILE: slow, SPEC_FILE: SPEC.replace("passes = 2", "passes = 3")})
    repository.commit()
    with repository.running("gate.mutation") as process:
        while repository.git("worktree", "list").count("\n") == 1:
            assert process.poll() is None
        process.send_signal(number)
        assert process.wait(20) == (2 if number == signal.SIGTERM else -signal.SIGKILL)
    if number == signal.SIGKILL:
        assert repository.runs("gate.mutation", "--only", "always").status == 0
    assert repository.git("worktree", "list").count("\n") == 1
    assert repository.git("status", "--porcelain") == ""


async def test_a_run_that_takes_too_long_is_ended_with_all_its_processes(repository: Disposable) -> None:
    sleeper = "import subprocess, sys\n\ndef test_it():\n    "
    sleeper += "subprocess.run([sys.executable, '-c', 'open(\"here\", \"w\").close(); import time; time.sleep(99)'])\n"
    repository.write({"tests/test_sleeper.py": sleeper})
    receipt = await running.run_tests(repository.root, ["tests/test_sleeper.py"], limit=3)
    assert receipt.problem == "the run took longer than 3 s"
    assert (repository.root / "here").exists()
    assert not [line for line in processes() if "time.sleep(99)" in line]


def processes() -> Iterator[str]:
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield place.read_text(errors="replace")
        except OSError:
            continue


async def test_a_run_sees_nothing_of_this_process_s_settings(
    repository: Disposable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_SECRET", "x")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--collect-only")
    test = "import os\n\n\ndef test_it():\n    assert 'TIDEGATE_SECRET' not in os.environ\n"
    repository.write({"tests/test_settings.py": test})
    receipt = await running.run_tests(repository.root, ["tests/test_settings.py"], limit=60)
    assert (receipt.problem, receipt.passed) == (None, 1)


async def test_loopback_is_not_beyond_loopback(repository: Disposable) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        test = f"import socket\n\n\ndef test_it():\n    socket.create_connection({server.getsockname()}).close()\n"
        test += "    socket.getaddrinfo('localhost', 1)\n"
        repository.write({"tests/test_near.py": test})
        receipt = await running.run_tests(repository.root, ["tests/test_near.py"], limit=60)
    assert (receipt.problem, receipt.passed) == (None, 1)


def test_the_environment_passed_on_is_a_list_of_names() -> None:
    assert set(running.environment_of(Path("x"))) <= {*running.PASSED_ON, "PYTHONPATH"}
    assert os.environ.keys() - running.environment_of(Path("x")).keys()
