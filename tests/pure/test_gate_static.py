"""The static check: every way in which a spec can be wrong is named, and the project's own specs have none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from evidence.gate.specs import Kind, Mutant, Spec, SpecError, load, load_named
from evidence.gate.static import findings, is_test_file, meaning, occurrences
from tests.helpers.repository import PRODUCT, SPEC, TESTS

TRACKED = {"product.py", "tests/test_product.py", "evidence/mutants/limit.toml"}
ANCHOR = 'anchor = """min(size, limit)"""\nreplacement = """size"""'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "evidence" / "mutants").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    (tmp_path / "product.py").write_text(PRODUCT + "\n\nBOTH = (1, 1, 1)\n")
    (tmp_path / "tests" / "test_product.py").write_text(TESTS)
    return tmp_path


def found(root: Path, spec: str) -> list[str]:
    (root / "evidence" / "mutants" / "limit.toml").write_text(spec)
    return [line.removeprefix("limit.toml: ") for line in findings(root, TRACKED)]


def with_anchor(anchor: str, replacement: str = "2") -> str:
    assert ANCHOR in SPEC
    return SPEC.replace(ANCHOR, f'anchor = """{anchor}"""\nreplacement = """{replacement}"""')


def test_a_spec_that_says_what_it_must_has_no_findings(root: Path) -> None:
    assert found(root, SPEC) == []


WRONG: dict[str, tuple[Callable[[str], str], str]] = {
    "no TOML": (lambda spec: spec + "[[", "Invalid initial character"),
    "unknown key": (lambda spec: "why = 1\n" + spec, "Object contains unknown field `why`"),
    "unknown key of a mutant": (lambda spec: spec + "line = 3\n", "unknown field `line` - at `$.mutants[2]`"),
    "unknown kind": (lambda spec: spec.replace('"half"', '"third"'), "Invalid enum value 'third'"),
    "no promise": (lambda spec: spec.replace("Never more than the limit is taken.", " "), "promise is empty"),
    "no pin": (lambda spec: spec.replace("passes = 2\n", ""), "missing required field `passes`"),
    "a pin of nothing": (lambda spec: spec.replace("passes = 2", "passes = 0"), "passes is 0"),
    "no test": (lambda spec: spec.replace('["tests/test_product.py"]', "[]"), "tests is empty"),
    "no such test": (lambda spec: spec.replace("tests/test_product", "tests/test_x"), "tests/test_x.py does not exist"),
    "a test twice": (
        lambda spec: spec.replace('["tests/test_product.py"]', '["tests/test_product.py", "tests/test_product.py"]'),
        "tests names tests/test_product.py more than once",
    ),
    "a test that is an option": (
        lambda spec: spec.replace('["tests/test_product.py"]', '["--collect-only"]'),
        "--collect-only is not a test file",
    ),
    "no mutant": (lambda spec: spec.partition("[[")[0] + "mutants = []\n", "mutants is empty"),
    "no defect": (lambda spec: spec.replace('"defect"', '"lost"'), "no mutant of kind defect"),
    "no half": (lambda spec: spec.replace('"half"', '"lost"'), "no mutant of kind half"),
    "no over-reach": (lambda spec: spec.replace('"over-reach"', '"lost"'), "no mutant of kind over-reach"),
    "one name twice": (
        lambda spec: spec.replace("the limit is always taken", "everything is taken"),
        "2 mutants are named 'everything is taken'",
    ),
    "no name": (lambda spec: spec.replace("everything is taken", ""), "the name is empty"),
    "a survivor without a reason": (lambda spec: spec + 'survives = " "\n', "survives is empty"),
    "a file that is not tracked": (
        lambda spec: spec.replace('"product.py"', '"products.py"'),
        "file products.py is not a tracked file",
    ),
    "a test as product": (
        lambda spec: spec.replace('"product.py"', '"tests/test_product.py"'),
        "file tests/test_product.py is not a module of the product",
    ),
    "an empty anchor": (lambda _: with_anchor(" "), "the anchor is empty"),
    "an anchor that is gone": (lambda _: with_anchor("max(size, limit)"), "the anchor occurs 0 times in product.py"),
    "an anchor that is there twice": (lambda _: with_anchor("size"), "the anchor occurs 2 times in product.py"),
    "an anchor that overlaps itself": (lambda _: with_anchor("1, 1"), "the anchor occurs 2 times in product.py"),
    "a replacement that changes nothing": (
        lambda _: with_anchor("min(size, limit)", "min(size,  limit)  # or so"),
        "the replacement changes nothing",
    ),
    "a replacement that does not compile": (
        lambda _: with_anchor("min(size, limit)", "min(size"),
        "the replacement does not compile: '(' was never closed",
    ),
    "an approved skip elsewhere": (
        lambda spec: spec + '[[skips]]\ntest = "tests/test_y.py::test_a"\nreason = "no"\nplatform = "linux"\n',
        "skip of 'tests/test_y.py::test_a': it is not in one of the spec's test files",
    ),
    "an approved skip without a reason": (
        lambda spec: spec + '[[skips]]\ntest = "tests/test_product.py::test_a"\nreason = ""\nplatform = "linux"\n',
        "the reason is empty",
    ),
    "an approved skip everywhere": (
        lambda spec: spec + '[[skips]]\ntest = "tests/test_product.py::test_a"\nreason = "no"\nplatform = "*"\n',
        "platform '*' is not one of linux, darwin",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_each_way_of_being_wrong_is_named(name: str, root: Path) -> None:
    edit, complaint = WRONG[name]
    wrong = edit(SPEC)
    assert wrong != SPEC
    assert [said for said in found(root, wrong) if complaint in said]


def test_an_anchor_is_looked_for_in_what_is_there_and_not_in_what_was(root: Path) -> None:
    assert found(root, SPEC) == []
    (root / "product.py").write_text(PRODUCT.replace("min(size, limit)", "min(limit, size)"))
    assert len(found(root, SPEC)) == SPEC.count("[[mutants]]")


def test_a_folder_without_specs_is_a_finding(root: Path) -> None:
    assert list(findings(root, TRACKED)) == ["evidence/mutants: there is no spec"]


def test_a_spec_that_is_not_there_is_not_left_out(root: Path) -> None:
    found(root, SPEC)
    assert load_named(root, []).keys() == {"limit"}
    with pytest.raises(SpecError, match="no spec named limits; there are limit"):
        load_named(root, ["limit", "limits"])


def test_a_file_that_cannot_be_read_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"\xff")
    with pytest.raises(SpecError, match=r"^x\.toml: "):
        load(tmp_path / "x.toml")
    with pytest.raises(SpecError, match=r"^y\.toml: "):
        load(tmp_path / "y.toml")


@pytest.mark.parametrize(
    ("text", "count"), [("", 0), ("ab", 1), ("abab", 2), ("ababa", 2), ("aba", 1), ("xabx\nab", 2)]
)
def test_occurrences_are_counted(text: str, count: int) -> None:
    assert occurrences(text, "ab") == count


def test_comments_spaces_and_docstrings_of_equal_text_mean_nothing() -> None:
    assert meaning("a = 1  # b\n") == meaning("\n\na  =  1\n")
    assert meaning("def f():\n    return 1\n") == meaning("def f():\n\n\n    return (1)\n")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a = 1", "a = 2"),
        ("a = 1", "a = 1.0"),
        ("a = 1", "a = True"),
        ("a = 0.0", "a = -0.0"),
        ("def f():\n    return 1", "def f():\n    return 2"),
        ("def f(a, b): ...", "def f(b, a): ..."),
        ("def f(*, a): ...", "def f(a): ..."),
        ("try:\n    f()\nexcept A: ...", "try:\n    f()\nexcept B: ..."),
        ("async def f(): ...", "def f(): ..."),
    ],
)
def test_what_is_done_differently_means_something_else(one: str, other: str) -> None:
    assert meaning(one) != meaning(other)


@pytest.mark.parametrize(
    "path", ["test.py", "tests/conftest.py", "-test_a.py", "/test_a.py", "../test_a.py", "test_a.sh"]
)
def test_what_is_no_test_file(path: str) -> None:
    assert not is_test_file(path)


def test_a_mutant_is_the_text_with_its_anchor_replaced() -> None:
    mutant = Mutant("m", Kind.DEFECT, "product.py", "min(size, limit)", "size")
    assert mutant.applied_to(PRODUCT) == PRODUCT.replace("min(size, limit)", "size")


def test_skips_are_approved_for_a_platform(root: Path) -> None:
    skips = '[[skips]]\ntest = "tests/test_product.py::test_{}"\nreason = "no"\nplatform = "{}"\n'
    assert found(root, SPEC + skips.format("a", "linux") + skips.format("b", "darwin")) == []
    spec: Spec = load(root / "evidence" / "mutants" / "limit.toml")
    assert [skip.test for skip in spec.skips_on("darwin")] == ["tests/test_product.py::test_b"]
