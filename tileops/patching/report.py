"""What ``tileops.patch`` did, as a table, and how it is undone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tileops.patching.sites import Match, Place, Skip


@dataclass(frozen=True)
class Row:
    """One module: what it computes, or why it was left alone."""

    path: str
    kind: str  # the class of the module
    found: Match | Skip
    state: str  # "patched", "left alone", "patched before" or "would be patched"


@dataclass(frozen=True)
class Difference:
    """Results of a model before and after: relative differences by Frobenius norm."""

    loss: float
    logits: float
    gradients: float  # the largest of all gradient norms
    allowed: float

    @property
    def is_small(self) -> bool:
        """Whether every difference is allowed; NaN is not."""
        return all(x <= self.allowed for x in (self.loss, self.logits, self.gradients))


class Report(AbstractContextManager["Report"]):
    """The rows of all modules that were recognised. Leaving a ``with`` block on it undoes them."""

    def __init__(self, rows: Sequence[Row], sites: Sequence[Place]) -> None:
        self.rows = tuple(rows)
        self._sites = tuple(sites)
        self.difference: Difference | None = None
        self.worst: str | None = None  # the path that an undone verification blames

    @property
    def patched(self) -> tuple[str, ...]:
        """Paths of the modules that call operators because of this report."""
        return tuple(site.path for site in self._sites if site.is_applied)

    def undo(self) -> None:
        """Put everything back, last first. TileopsError if somebody replaced it meanwhile."""
        for site in reversed(self._sites):
            site.undo()

    def __exit__(self, *error: object) -> None:
        self.undo()

    def __str__(self) -> str:
        lines = [("module", "class", "operator", "variant", "equal bits", "state")]
        for row in self.rows:
            found = row.found
            if isinstance(found, Match):
                told = (found.operator, found.variant, f"{found.agreement:.1%}")
            else:
                told = (found.operator, found.reason, "")
            lines.append((row.path or ".", row.kind, *told, row.state))
        widths = [max(len(line[n]) for line in lines) for n in range(len(lines[0]))]
        text = [
            "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        if self.difference is not None:
            d = self.difference
            text.append(
                f"differences: loss {d.loss:.1e}, logits {d.logits:.1e}, gradients "
                f"{d.gradients:.1e}; allowed {d.allowed:.1e}"
            )
        if self.worst is not None:
            text.append(f"undone: {self.worst} makes the largest difference")
        return "\n".join(text)
