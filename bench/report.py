"""A measurement on disk: the figures with the command, the machine and the date that they belong to."""

import argparse
import json
import os
import platform
import shlex
import sys
import timeit
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

OUT = Path(__file__).with_name("out")


def add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, help="where the figures go (default: a dated file in bench/out)")


def write_report(name: str, figures: object, path: Path | None, *, module: str | None = None) -> dict[str, Any]:
    """One JSON file; says where it is. What it says is returned too."""
    now = datetime.now(UTC)
    path = path or OUT / f"{name}-{now:%Y%m%d-%H%M%S}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    report = {
        "measured": name,
        "command": shlex.join(["python", "-m", module or f"bench.{name}", *sys.argv[1:]]),
        "date": now.isoformat(timespec="seconds"),
        "machine": machine(),
        "figures": figures,
    }
    path.write_text(json.dumps(report, indent=1, default=asdict) + "\n")
    print(f"written to {path}")
    return report


def machine() -> dict[str, object]:
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "load": [round(part, 2) for part in os.getloadavg()],
        "kernel": platform.release(),
        "python": platform.python_version(),
        "python_step_ns": python_step_ns(),
        "packages": {name: metadata.version(name) for name in ("trio", "httptools", "msgspec")},
    }


def python_step_ns() -> float:
    """An object, a call and a lookup, at best: builds of one version differ by half, and so do minutes."""
    setup = "class A:\n def __init__(self, x): self.x = x\n def get(self): return self.x"
    seconds = timeit.repeat("{'a': A(1)}.get('a').get()", setup, number=50_000, repeat=5)
    return round(min(seconds) / 50_000 * 1e9, 1)


def cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
