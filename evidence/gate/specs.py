"""A mutation spec as a value, read from its TOML file. Knows no git and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

FOLDER = Path("evidence/mutants")


class Kind(StrEnum):
    """What sort of wrong edit a mutant is."""

    DEFECT = "defect"
    """The original defect itself."""
    HALF = "half"
    """One part of a fix that needs two."""
    OVER_REACH = "over-reach"
    """The fix, applied where it does not belong."""
    OFF_BY_ONE = "off-by-one"
    WRONG_FLAG = "wrong-flag"
    LOST = "lost"
    """Something dropped: a header, a line of a log, a release."""
    ORDER = "order"
    """Two steps the other way round."""


NEEDED = (Kind.DEFECT, Kind.HALF, Kind.OVER_REACH)
"""Without the defect a spec shows nothing; without the other two it does not show that the tests can tell apart."""


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`anchor` occurs exactly once in `file`. `survives` says why no test can catch it; without it, one must."""

    name: str
    kind: Kind
    file: str
    anchor: str
    replacement: str
    survives: str | None = None

    def applied_to(self, text: str) -> str:
        return text.replace(self.anchor, self.replacement)


class ApprovedSkip(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One test that may be skipped on one platform (`sys.platform`), with pytest's own reason, word for word."""

    test: str
    reason: str
    platform: str


class Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`passes` counts the tests of `tests` that pass on the untouched tree, and the approved skips."""

    promise: str
    tests: list[str]
    passes: int
    mutants: list[Mutant]
    skips: list[ApprovedSkip] = []

    def skips_on(self, platform: str) -> list[ApprovedSkip]:
        return [skip for skip in self.skips if skip.platform == platform]


class SpecError(Exception):
    """The file is no spec. The message begins with its name."""


def spec_files(root: Path) -> list[Path]:
    return sorted((root / FOLDER).glob("*.toml"))


def load(path: Path) -> Spec:
    """Raises SpecError."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Spec)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise SpecError(f"{path.name}: {error}") from None


def load_named(root: Path, names: Sequence[str]) -> dict[str, Spec]:
    """The specs by their names (file names without `.toml`), all of them if none is named. Raises SpecError."""
    files = {path.stem: path for path in spec_files(root)}
    if unknown := [name for name in names if name not in files]:
        raise SpecError(f"no spec named {', '.join(unknown)}; there are {', '.join(files) or 'none'}")
    if not files:
        raise SpecError(f"no spec in {FOLDER}")
    return {name: load(files[name]) for name in names or files}
