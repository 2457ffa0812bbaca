"""Stored tunings as people see them: one folder's facts, winner and measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tileops.autotuner.database import Row, TuningResult, read_best, read_key, read_rows
from tileops.autotuner.spaces import canonical


@dataclass(frozen=True)
class StoredTuning:
    """One tuning on disk, for people: its facts, its winner, and the last row of each config."""

    op: str
    hash: str
    key: Mapping[str, Any]
    best: TuningResult | None
    rows: Sequence[Row]

    @classmethod
    def read(cls, folder: Path) -> StoredTuning:
        """The tuning in ``folder``; what is damaged is left out."""
        rows = {canonical(row.config): row for row in read_rows(folder)}
        return cls(
            op_of(folder), folder.name, read_key(folder), read_best(folder), [*rows.values()]
        )

    @property
    def device(self) -> str:
        return str(self.key.get("device", "?"))

    @property
    def sizes(self) -> dict[str, Any]:
        """The sizes that it is good for, those in buckets by their bounds."""
        return {**(self.key.get("sizes") or {}), **(self.key.get("bucket") or {})}

    @property
    def right(self) -> list[Row]:
        """The configs that have a time, fastest first."""
        return sorted((r for r in self.rows if r.is_right), key=lambda r: r.latency or 0.0)

    @property
    def failed(self) -> list[Row]:
        return [r for r in self.rows if not r.is_right]


def op_of(folder: Path) -> str:
    """The op whose tuning is in ``folder``."""
    return folder.parent.parent.parent.name
