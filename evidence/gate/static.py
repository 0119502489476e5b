"""The static check: whether every spec says what it must, and every anchor still stands once. Runs no test."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

from evidence.gate import Exit
from evidence.gate.repository import GitError, Repository
from evidence.gate.specs import FOLDER, NEEDED, ApprovedSkip, Mutant, Spec, SpecError, load, spec_files

PLATFORMS = ("linux", "darwin")


class Sources:
    """The files that mutants are made of: read once, compiled once."""

    def __init__(self, root: Path, tracked: set[str]) -> None:
        self.root = root
        self.tracked = tracked
        self._known: dict[str, tuple[str, object]] = {}

    def read(self, file: str) -> tuple[str, object]:
        """The text, and what it means. Raises OSError, UnicodeDecodeError, SyntaxError."""
        if file not in self._known:
            text = (self.root / file).read_text(encoding="utf-8")
            self._known[file] = (text, meaning(text))
        return self._known[file]


def findings(root: Path, tracked: set[str]) -> Iterator[str]:
    """Everything that is wrong with the specs, a line each, beginning with the spec's file."""
    files = spec_files(root)
    if not files:
        yield f"{FOLDER}: there is no spec"
    sources = Sources(root, tracked)
    for path in files:
        try:
            spec = load(path)
        except SpecError as error:
            yield str(error)
            continue
        for complaint in _of_spec(spec, sources):
            yield f"{path.name}: {complaint}"


def _of_spec(spec: Spec, sources: Sources) -> Iterator[str]:
    if not spec.promise.strip():
        yield "promise is empty; say in one sentence what is promised"
    if spec.passes < 1:
        yield f"passes is {spec.passes}; it is the measured number of passing tests, at least 1"
    yield from _of_tests(spec.tests, sources)
    if not spec.mutants:
        yield "mutants is empty; a spec without a mutant shows nothing"
    for name, count in Counter(mutant.name for mutant in spec.mutants).items():
        if count > 1:
            yield f"{count} mutants are named {name!r}"
    if lacking := [kind for kind in NEEDED if kind not in {mutant.kind for mutant in spec.mutants}]:
        yield f"no mutant of kind {', '.join(lacking)}"
    for mutant in spec.mutants:
        if complaint := _of_mutant(mutant, sources):
            yield f"mutant {mutant.name!r}: {complaint}"
    for skip in spec.skips:
        if complaint := _of_skip(skip, spec.tests):
            yield f"skip of {skip.test!r}: {complaint}"


def _of_tests(tests: list[str], sources: Sources) -> Iterator[str]:
    if not tests:
        yield "tests is empty; name the test files that must catch the mutants"
    for test in tests:
        if tests.count(test) > 1:
            yield f"tests names {test} more than once"
        if not is_test_file(test):
            yield f"tests: {test} is not a test file (test_*.py)"
        elif not (sources.root / test).is_file():
            yield f"tests: {test} does not exist"


def _of_mutant(mutant: Mutant, sources: Sources) -> str | None:
    if not mutant.name.strip():
        return "the name is empty; say what is wrong in it"
    if mutant.survives is not None and not mutant.survives.strip():
        return "survives is empty; say why no test can catch it"
    if mutant.file not in sources.tracked:
        return f"file {mutant.file} is not a tracked file"
    if not mutant.file.endswith(".py") or mutant.file.startswith("tests/") or (sources.root / mutant.file).is_symlink():
        return f"file {mutant.file} is not a module of the product"
    try:
        text, before = sources.read(mutant.file)
    except (OSError, UnicodeDecodeError, SyntaxError) as error:
        return f"file {mutant.file} cannot be read: {error}"
    if not mutant.anchor.strip():
        return "the anchor is empty"
    if (found := occurrences(text, mutant.anchor)) != 1:
        return f"the anchor occurs {found} times in {mutant.file}; it must occur exactly once"
    try:
        after = meaning(mutant.applied_to(text))
    except SyntaxError as error:
        return f"the replacement does not compile: {error.msg}"
    return "the replacement changes nothing" if after == before else None


def _of_skip(skip: ApprovedSkip, tests: list[str]) -> str | None:
    if skip.test.partition("::")[0] not in tests:
        return "it is not in one of the spec's test files"
    if not skip.reason.strip():
        return "the reason is empty"
    if skip.platform not in PLATFORMS:
        return f"platform {skip.platform!r} is not one of {', '.join(PLATFORMS)}"
    return None


def is_test_file(path: str) -> bool:
    name = Path(path).name
    return name.startswith("test_") and name.endswith(".py") and not path.startswith(("-", "/")) and ".." not in path


def occurrences(text: str, anchor: str) -> int:
    """Also those that overlap, which `str.count` leaves out."""
    count, place = 0, text.find(anchor)
    while place >= 0:
        count, place = count + 1, text.find(anchor, place + 1)
    return count


def meaning(text: str) -> object:
    """What a module compiles to, but for the lines that it stands on. Raises SyntaxError."""
    return _shape(compile(text, "<source>", "exec", dont_inherit=True))


def _shape(code: CodeType) -> object:
    constants = tuple(
        _shape(each) if isinstance(each, CodeType) else (type(each).__name__, repr(each)) for each in code.co_consts
    )
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    arguments = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
    return code.co_code, code.co_exceptiontable, code.co_flags, arguments, names, constants


def summary(root: Path) -> str:
    """Of specs in which nothing was found. Raises SpecError."""
    specs = [load(path) for path in spec_files(root)]
    return f"{len(specs)} specs, {sum(len(spec.mutants) for spec in specs)} mutants, every anchor stands once"


def main() -> Exit:
    argparse.ArgumentParser("python -m evidence.gate.static", description=__doc__).parse_args()
    try:
        repository = Repository.around(Path.cwd())
        found = list(findings(repository.root, repository.tracked()))
    except GitError as error:
        found = [str(error)]
    for complaint in found:
        print(complaint)
    if found:
        return Exit.UNTRUSTWORTHY
    print(summary(repository.root))
    return Exit.OK


if __name__ == "__main__":
    sys.exit(main())
