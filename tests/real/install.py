"""The private environment of the real model server: made once, from hashes, apart from the project's own.

Knows pip and the platform; nothing about how the server is run.
"""

import fcntl
import hashlib
import os
import platform
import subprocess
import sys
import venv
from pathlib import Path

from tests.real.processes import PROJECT

LOCK = Path(__file__).with_name("constraints.txt")

# The wheels of the locked xllamacpp that we can use. Elsewhere all of llama.cpp would have to be compiled.
WHEELS = {("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "x86_64"), ("darwin", "arm64")}


def why_it_cannot_run_here() -> str | None:
    """The reason to skip, or None. Only what no network and no fix of ours could change is a reason."""
    here = (sys.platform, platform.machine())
    if here not in WHEELS:
        return f"xllamacpp has no prebuilt wheel for {here[0]} on {here[1]}"
    if sys.platform == "linux" and platform.libc_ver()[0] != "glibc":
        return "xllamacpp's wheels for Linux need glibc"
    return None


def environment() -> Path:
    """Where the environment lives: inside `.venv`, so that `make clean` takes it along, unless told otherwise."""
    return Path(os.environ.get("TIDEGATE_REAL_VENV", PROJECT / ".venv" / "real"))


def installed_python() -> Path:
    """The environment's interpreter, after installing what is missing. Quick when nothing is.

    Raises `subprocess.CalledProcessError` when pip fails; the half-made environment is then rebuilt by the next call.
    """
    folder = environment()
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Two test runs at once must not build the same folder; the lock stands beside it because a rebuild empties it.
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_current(folder):
            _build(folder)
    return _python(folder)


def _build(folder: Path) -> None:
    venv.EnvBuilder(clear=True, symlinks=True, with_pip=True).create(folder)
    pip = [str(_python(folder)), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    exact = ["--require-hashes", "--no-deps", "--only-binary=:all:", "-r", str(LOCK)]
    subprocess.run([*pip, "install", *exact], check=True)
    _stamp(folder).write_text(_fingerprint())  # last: an interrupted install leaves no stamp


def _is_current(folder: Path) -> bool:
    stamp = _stamp(folder)
    return stamp.is_file() and stamp.read_text() == _fingerprint() and _python(folder).exists()


def _fingerprint() -> str:
    return f"{sys.version_info[:2]} {hashlib.sha256(LOCK.read_bytes()).hexdigest()}\n"


def _stamp(folder: Path) -> Path:
    return folder / "installed.stamp"


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"
