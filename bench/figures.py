"""Medians and percentiles, and how they are printed. Pure."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """A median is quoted with its extremes, or not at all."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        places = 0 if abs(self.median) >= 100 else 1 if abs(self.median) >= 10 else 2
        return f"{self.median:.{places}f} ({self.least:.{places}f}-{self.most:.{places}f})"


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank: a value that was measured, never one between two."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def table(rows: Sequence[Sequence[object]]) -> str:
    """Columns aligned, the first to the left and the others to the right; the first row is the heading."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(line(row, widths) for row in cells)


def line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return "  ".join([first.strip().ljust(widths[0]), *others])
