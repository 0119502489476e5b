"""Every claim in `evidence/` is shown by something that is there: tests, cases, commands, raw files of figures."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from evidence.gate.repository import Repository
from evidence.gate.specs import load, spec_files
from evidence.gate.static import findings
from evidence.gate.verdicts import page

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "evidence"
HEADINGS = ["What was red before", "What is green after", "What is not covered"]
LINK = re.compile(r"\[([^]]*)\]\(([^)#]*)(#[^)]*)?\)")
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
CASE = re.compile(r"\bcases? ((?:\d{3}(?:, | and )?)+)")
COMMAND = re.compile(r"`((?:make|python -m|TIDEGATE_\w+=\S+ python -m) [^`]+)`")
MUTANTS = re.compile(r"(\d+) of (\d+) mutants of `(\w+)`")
DATE = re.compile(r"20\d\d-\d\d-\d\d")


class Claim(NamedTuple):
    promise: str
    shown_by: str
    command: str
    figure: str


def claims() -> list[Claim]:
    text = (EVIDENCE / "README.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]
    assert cells[0] == ["promise", "shown by", "run it again", "last measured"]
    return [Claim(*row) for row in cells[2:]]


def pages() -> list[Path]:
    """The pages of capabilities: those that the table links."""
    names = {name for claim in claims() for _, name, _ in LINK.findall(claim.promise)}
    return [EVIDENCE / name for name in sorted(names)]


def report(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((EVIDENCE / "figures" / name).read_bytes())
    return loaded


@cache
def functions(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_bytes())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def dangling(text: str) -> Iterator[str]:
    """Tests and cases that a text names and that are not there."""
    for file, function in TEST.findall(text):
        if not (ROOT / file).is_file() or (function and function not in functions(file)):
            yield f"{file}::{function}"
    for numbers in CASE.findall(text):
        for number in re.findall(r"\d{3}", numbers):
            if not list((ROOT / "tests" / "cases").glob(f"{number}-*.json")):
                yield f"case {number}"


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.promise[:40])
def test_a_claim_is_shown_by_tests_a_command_and_a_figure_that_are_there(claim: Claim) -> None:
    assert LINK.search(claim.promise), "a promise links the page of its capability"
    assert TEST.search(claim.shown_by), "a claim names at least one test"
    assert list(dangling(claim.shown_by)) == []
    assert COMMAND.search(claim.command), "a claim has a command"
    raw = [name for _, name, _ in LINK.findall(claim.figure)]
    assert raw, "a claim has a figure, and a figure a raw file"
    for name in raw:
        measured = report(Path(name).name)
        assert measured["command"]
        assert measured["machine"]["cpu"]
        assert measured["date"][:10] in claim.figure


def test_no_claim_lacks_a_page_and_no_page_a_claim() -> None:
    others = {"README.md", "bounds.md"}
    assert {path.name for path in EVIDENCE.glob("*.md")} - others == {path.name for path in pages()}


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.stem)
def test_a_page_says_what_was_red_what_is_green_and_what_is_not_covered(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    assert [heading for heading in found if heading in HEADINGS] == HEADINGS
    for heading in HEADINGS:
        section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0].strip()
        assert section, heading
    assert list(dangling(text)) == []


@pytest.mark.parametrize("path", sorted(EVIDENCE.glob("**/*.md")), ids=lambda path: path.relative_to(EVIDENCE).name)
def test_every_link_leads_somewhere(path: Path) -> None:
    for _, target, anchor in LINK.findall(path.read_text(encoding="utf-8")):
        place = path.parent / target if target else path
        assert place.exists(), target
        if anchor:
            assert anchor[1:] in anchors(place), f"{target}{anchor}"


def anchors(path: Path) -> set[str]:
    heads = [line.lstrip("#").strip() for line in path.read_text(encoding="utf-8").splitlines() if line[:1] == "#"]
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def test_the_readme_links_only_evidence_that_is_there() -> None:
    for _, target, anchor in LINK.findall((ROOT / "README.md").read_text(encoding="utf-8")):
        if "://" not in target:
            assert (ROOT / target).exists(), target
            assert not anchor or anchor[1:] in anchors(ROOT / target), target


def test_every_command_is_there() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in [EVIDENCE / "README.md", *pages()]:
        for command in COMMAND.findall(path.read_text(encoding="utf-8")):
            words = command.split()
            if words[0] == "make":
                assert words[1] in targets, command
            else:
                module = words[words.index("-m") + 1]
                place = ROOT.joinpath(*module.split("."))
                assert module == "pytest" or place.with_suffix(".py").exists() or (place / "__main__.py").exists(), (
                    command
                )


def test_every_spec_is_of_a_claim() -> None:
    text = (EVIDENCE / "README.md").read_text(encoding="utf-8")
    assert {name for _, _, name in MUTANTS.findall(text)} == {path.stem for path in spec_files(ROOT)}


def test_the_specs_have_no_findings() -> None:
    repository = Repository.around(ROOT)
    assert list(findings(repository.root, repository.tracked())) == []


def test_the_verdicts_are_of_every_mutant_of_every_spec_and_the_counts_are_theirs() -> None:
    measured = report("mutants.json")
    verdicts = {spec["spec"]: [mutant["mutant"] for mutant in spec["mutants"]] for spec in measured["figures"]["specs"]}
    assert verdicts == {path.stem: [mutant.name for mutant in load(path).mutants] for path in spec_files(ROOT)}
    counts = {
        spec["spec"]: (sum(mutant["verdict"] == "caught" for mutant in spec["mutants"]), len(spec["mutants"]))
        for spec in measured["figures"]["specs"]
    }
    for caught, total, name in MUTANTS.findall((EVIDENCE / "README.md").read_text(encoding="utf-8")):
        assert (int(caught), int(total)) == counts[name], name


def test_the_page_of_mutants_is_made_of_the_raw_file() -> None:
    assert (EVIDENCE / "mutants" / "README.md").read_text(encoding="utf-8") == page(report("mutants.json"))


def test_what_is_dangling_is_seen() -> None:
    text = "`tests/pure/test_evidence.py::dangling`, `tests/pure/test_evidence.py::gone`, `tests/pure/test_gone.py`"
    assert list(dangling(text)) == ["tests/pure/test_evidence.py::gone", "tests/pure/test_gone.py::"]
    assert list(dangling("cases 002, 999 and 003; case 998")) == ["case 999", "case 998"]
