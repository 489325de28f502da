"""The table: the measured work, the result of git-envhist, the result of a peer, the limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MEGA = 1_000_000
HEADINGS = ("work", "ours", "peer", "theirs", "ratio", "at most", "", "processors")


@dataclass(frozen=True)
class Amount:
    """Seconds or bytes."""

    value: float
    unit: str
    processor: float = 0.0
    """CPU seconds, where time is measured."""

    def __str__(self) -> str:
        if self.unit == "s":
            return f"{self.value:.2f} s" if self.value >= 1 else f"{self.value * 1000:.0f} ms"
        return f"{self.value / MEGA:.1f} MB" if self.value < 100 * MEGA else f"{self.value / MEGA:.0f} MB"


def amount(value: float, unit: str = "s") -> Amount:
    """Return a measured amount, with its CPU seconds if these were measured."""
    return Amount(value, unit, getattr(value, "processor", 0.0))


@dataclass(frozen=True)
class Line:
    """A comparison; without a peer the limit is an amount."""

    work: str
    ours: Amount
    peer: str = ""
    theirs: Amount | None = None
    ratio_limit: float | None = None
    limit: Amount | None = None
    limit_text: str = ""

    @property
    def ratio(self) -> float | None:
        return self.ours.value / self.theirs.value if self.theirs and self.theirs.value else None

    @property
    def processor_ratio(self) -> float | None:
        """Return the ratio of the CPU seconds."""
        if self.theirs is None or not self.theirs.processor:
            return None
        return self.ours.processor / self.theirs.processor

    @property
    def is_over(self) -> bool:
        if self.limit is not None:
            return self.ours.value > self.limit.value
        return self.ratio_limit is not None and self.ratio is not None and self.ratio > self.ratio_limit

    @property
    def is_judged(self) -> bool:
        return self.limit is not None or (self.ratio_limit is not None and self.ratio is not None)

    def cells(self, *, judged: bool) -> tuple[str, ...]:
        """Return the texts of the line's cells."""
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        theirs = str(self.theirs) if self.theirs else ("not installed" if self.peer else "")
        verdict = ("OVER" if self.is_over else "ok") if judged and self.is_judged else ""
        work = "" if self.processor_ratio is None else f"{self.processor_ratio:.2f}"
        return (self.work, str(self.ours), self.peer, theirs, ratio, self._allowed(), verdict, work)

    def _allowed(self) -> str:
        if self.limit_text:
            return self.limit_text
        if self.limit is not None:
            return str(self.limit)
        return "" if self.ratio_limit is None else f"{self.ratio_limit:.2f}"


def render(lines: Sequence[Line], *, judged: bool = True) -> str:
    """Return a Markdown table that is also readable in a terminal."""
    rows = [
        HEADINGS,
        *(tuple(cell.replace("|", "\\|") for cell in line.cells(judged=judged)) for line in lines),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    ruled = [rows[0], tuple("-" * width for width in widths), *rows[1:]]
    return "\n".join("| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in ruled)
