"""What a client saw, as one plain dictionary, and the checks on it.

An observation begins as raw facts (the client's bytes, the upstream's log, times, the process). `derive`
adds what a strict client of the dialect would make of them; `evaluate` then looks at one path of it.
Pure: nothing here knows a socket, a process or a case file.
"""

from tests.cases.observation.checks import MISSING, evaluate, get, paths_of
from tests.cases.observation.derive import derive

__all__ = ["MISSING", "derive", "evaluate", "get", "paths_of"]
