"""A proxy under measurement, whichever it is."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen


@dataclass(frozen=True)
class Peer:
    """`pids`: the processes whose CPU and memory count. `journal`: where its records go, if it has any."""

    name: str
    version: str
    port: int
    process: Popen[bytes]
    pids: tuple[int, ...]
    journal: Path | None = None

    def ends(self) -> dict[str, int]:
        """How its turns ended, by its own journal; empty where there is none."""
        lines = self.journal.read_text().splitlines() if self.journal else []
        return dict(Counter(json.loads(line)["end"] for line in lines))
