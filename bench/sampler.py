"""Runs a module and notes, every few milliseconds of its CPU time, which line it is on.

`python -m bench.sampler OUT MODULE [ARGUMENT]...` writes JSON when the module ends. Samples rather than traces:
a tracer makes small functions look dear, and small functions are what a gateway in Python is made of. The time
of a system call or a C function falls to the Python line that called it; where that raised (EAGAIN), to the
function entered next, since Python looks at signals only there.
"""

import json
import runpy
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

INTERVAL = 0.001  # seconds of CPU time; the kernel rounds it up to its own tick (4 ms at 250 Hz)


def place(frame: FrameType) -> tuple[str, int, str]:
    return frame.f_code.co_filename, frame.f_code.co_firstlineno, frame.f_code.co_qualname


class Samples:
    """Own: the innermost frame, by line. Under: every function on the stack, once a sample."""

    def __init__(self) -> None:
        self.own: Counter[tuple[str, int, str, int]] = Counter()
        self.under: Counter[tuple[str, int, str]] = Counter()

    def take(self, _signal: int, frame: FrameType | None) -> None:
        if frame is None:
            return
        own = (*place(frame), frame.f_lineno)
        stack = set()
        while frame is not None:
            stack.add(place(frame))
            frame = frame.f_back
        if not any("importlib" in file for file, _, _ in stack):  # starting up is not what is measured
            self.own[own] += 1
            self.under.update(stack)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps({"own": list(self.own.items()), "under": list(self.under.items())}))


def main() -> None:
    out, module, *arguments = sys.argv[1:]
    samples = Samples()
    sys.argv = [module, *arguments]
    signal.signal(signal.SIGPROF, samples.take)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        samples.write(Path(out))


if __name__ == "__main__":
    main()
