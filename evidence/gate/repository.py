"""What git knows of a checkout: what is tracked, what differs, and disposable worktrees. Runs git, nothing else."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BASES = ("origin/main", "main")
LOCK = "tidegate-mutation.lock"
WORKTREES = "tidegate-mutation-"


class GitError(Exception):
    """git refused. The message is git's own."""


class Repository:
    """The checkout whose top is `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def around(cls, place: Path) -> Repository:
        """The one that `place` lies in. Raises GitError."""
        return cls(Path(_git(place, "rev-parse", "--show-toplevel").strip()))

    def git(self, *words: str) -> str:
        """What git prints. Raises GitError."""
        return _git(self.root, *words)

    def tracked(self) -> set[str]:
        return _paths(self.git("ls-files", "-z"))

    def files(self) -> set[str]:
        """Tracked, or not yet and not ignored either; only what is there."""
        listed = _paths(self.git("ls-files", "-z", "--cached", "--others", "--exclude-standard"))
        return {path for path in listed if (self.root / path).is_file()}

    def with_attribute(self, name: str) -> set[str]:
        """The files for which `.gitattributes` sets it, tracked or not."""
        return _paths(self.git("ls-files", "-z", "--cached", "--others", "--exclude-standard", f":(attr:{name})"))

    def status(self) -> list[str]:
        """`git status --porcelain`: two letters, a space and a path each; empty in a clean tree."""
        return [line for line in self.git("status", "--porcelain", "--untracked-files=all").splitlines() if line]

    def base(self, named: str | None = None) -> str | None:
        """What a branch is compared with: what is named, else `BASES`. Raises GitError if there is no such revision."""
        if named is not None and not self._knows(named):
            raise GitError(f"there is no revision {named}")
        return named or next((base for base in BASES if self._knows(base)), None)

    def _knows(self, revision: str) -> bool:
        return _run(self.root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").returncode == 0

    def changed(self, base: str | None) -> set[str]:
        """Every path that differs: HEAD from where it left `base`, the tree from HEAD, and what is untracked."""
        paths = _paths(self.git("diff", "--name-only", "-z", "HEAD"))
        paths |= _paths(self.git("ls-files", "-z", "--others", "--exclude-standard"))
        if base is not None:
            paths |= _paths(self.git("diff", "--name-only", "-z", f"{base}...HEAD"))
        return paths

    def whitespace(self, base: str | None) -> list[str]:
        """What `git diff --check` says of what differs from HEAD, and of HEAD since it left `base`."""
        said = [_run(self.root, "diff", "--check", "HEAD")]
        if base is not None:
            said.append(_run(self.root, "diff", "--check", f"{base}...HEAD"))
        for done in said:
            if done.returncode not in (0, 2):
                raise GitError(done.stderr.strip())
        return [line for done in said for line in done.stdout.splitlines() if line and line[0] not in "+- "]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One mutation run at a time; the kernel lets go of it whatever becomes of the holder. Raises GitError."""
        place = (self.root / self.git("rev-parse", "--git-common-dir").strip()) / LOCK
        with place.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise GitError("another mutation run is under way in this repository") from None
            yield

    @contextmanager
    def worktrees(self, count: int) -> Iterator[list[Repository]]:
        """So many checkouts of HEAD outside of this one; gone afterwards, whatever happens. Raises GitError.

        Only while `locked`: what a run that was killed has left is taken away first.
        """
        self._remove_worktrees()
        folder = Path(tempfile.mkdtemp(prefix=WORKTREES))
        try:
            for number in range(count):
                self.git("worktree", "add", "--quiet", "--detach", str(folder / str(number)), "HEAD")
            yield [Repository(folder / str(number)) for number in range(count)]
        finally:
            self._remove_worktrees()
            shutil.rmtree(folder, ignore_errors=True)

    def _remove_worktrees(self) -> None:
        """Those that a mutation run has made. One that was being made is still locked."""
        for line in self.git("worktree", "list", "--porcelain").splitlines():
            place = Path(line.removeprefix("worktree "))
            if line.startswith("worktree ") and place.parent.name.startswith(WORKTREES):
                _run(self.root, "worktree", "unlock", str(place))
                shutil.rmtree(place.parent, ignore_errors=True)
        self.git("worktree", "prune")

    def restore(self) -> None:
        """Back to HEAD, whatever was done. Only for a worktree that nobody works in."""
        self.git("reset", "--quiet", "--hard", "HEAD")
        self.git("clean", "--quiet", "--force", "-d")


def _run(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=place, capture_output=True, text=True, check=False)


def _git(place: Path, *words: str) -> str:
    done = _run(place, *words)
    if done.returncode:
        raise GitError(done.stderr.strip() or done.stdout.strip() or f"git {words[0]} failed")
    return done.stdout


def _paths(listing: str) -> set[str]:
    return {path for path in listing.split("\0") if path}
