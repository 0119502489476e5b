"""What the kernel says of a process: its CPU time, its memory, its children. Linux."""

import time
from pathlib import Path

CPUCLOCK_SCHED = 2  # <linux/posix-timers_types.h>
PAGE = 4096


def cpu_seconds(pids: tuple[int, ...]) -> float:
    """Their CPU clocks (clock_getcpuclockid(3)): utime + stime of /proc/PID/stat without its 10 ms steps."""
    return sum(time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED) for pid in pids)


def cpu_ticks(pids: tuple[int, ...]) -> tuple[int, int]:
    """utime and stime in ticks of 10 ms: good for the share of each over a second or more."""
    pairs = [stat(pid)[11:13] for pid in pids]
    return sum(int(user) for user, _ in pairs), sum(int(system) for _, system in pairs)


def rss(pids: tuple[int, ...]) -> int:
    """Resident bytes."""
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE for pid in pids)


def open_files(pids: tuple[int, ...]) -> int:
    return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids)


def children(pid: int) -> tuple[int, ...]:
    numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return tuple(number for number in numbers if parent(number) == pid)


def parent(pid: int) -> int | None:
    try:
        return int(stat(pid)[1])
    except OSError:  # it ended while we looked
        return None


def stat(pid: int) -> list[str]:
    """/proc/PID/stat from its third field on: the second, the name, may hold spaces and parentheses."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
