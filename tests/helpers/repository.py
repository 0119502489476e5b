"""A disposable repository with a product of one function, its tests and a spec: for the gate to be run on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
ENDS = 120.0
"""Seconds for one run of a command of the gate."""

PRODUCT = '''\
"""A product."""


def taken(size: int, limit: int) -> int:
    """How much is taken of so much."""
    return min(size, limit)
'''
TESTS = """\
from product import taken


def test_a_small_one_is_taken_whole():
    assert taken(1, 2) == 1


def test_a_large_one_is_taken_to_the_limit():
    assert taken(3, 2) == 2
"""
SPEC = '''\
promise = "Never more than the limit is taken."
tests = ["tests/test_product.py"]
passes = 2

[[mutants]]
name = "everything is taken"
kind = "defect"
file = "product.py"
anchor = """min(size, limit)"""
replacement = """size"""

[[mutants]]
name = "the limit is taken where it is one"
kind = "half"
file = "product.py"
anchor = """min(size, limit)"""
replacement = """size if size > 100 else min(size, limit - (size > limit))"""

[[mutants]]
name = "the limit is always taken"
kind = "over-reach"
file = "product.py"
anchor = """min(size, limit)"""
replacement = """limit"""
'''


class Ran(NamedTuple):
    status: int
    said: str

    def line(self, step: str) -> str:
        """The word and the rest of a step's line in the gate's summary."""
        (line,) = (line for line in self.said.splitlines() if line.split()[1:2] == [step] and line[0].isupper())
        return line


class Disposable:
    """Everything in it is committed, until a test writes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write(
            {
                "product.py": PRODUCT,
                "tests/test_product.py": TESTS,
                "evidence/mutants/limit.toml": SPEC,
                "pyproject.toml": '[tool.pytest.ini_options]\ntestpaths = ["tests"]\naddopts = "-p no:cacheprovider"\n',
                ".gitignore": "__pycache__/\n",
            }
        )
        self.git("init", "--quiet", "--initial-branch", "main")
        self.commit()

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            place = self.root / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")

    def edit(self, file: str, old: str, new: str) -> None:
        text = (self.root / file).read_text(encoding="utf-8")
        assert old in text
        self.write({file: text.replace(old, new)})

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "--quiet", "--message", "m")

    def git(self, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=self.root, capture_output=True, text=True, check=True)
        return done.stdout

    def running(self, command: str, *options: str, inert: str = "") -> subprocess.Popen[str]:
        """`python -m evidence.…`, here, with the gate of the project that these tests are part of."""
        return subprocess.Popen(
            [sys.executable, "-m", f"evidence.{command}", *options],
            cwd=self.root,
            env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "TIDEGATE_INERT": inert, "HOME": str(self.root)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def runs(self, command: str, *options: str, inert: str = "") -> Ran:
        """The same, to its end."""
        with self.running(command, *options, inert=inert) as process:
            said, _ = process.communicate(timeout=ENDS)
        return Ran(process.returncode, said)
