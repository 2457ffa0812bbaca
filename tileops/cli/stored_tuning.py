"""Stored tunings as people see them: where they are, what is in them, and their removal."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tileops import log
from tileops.autotuner.database import (
    Row,
    TuningResult,
    read_best,
    read_key,
    read_rows,
    write_table,
)
from tileops.autotuner.spaces import canonical
from tileops.cache.directory import Directory
from tileops.cache.files import children, remove


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


def folders(directory: Directory | None, op: str | None = None) -> list[Path]:
    """The folders of all tunings, or of those of one op."""
    if directory is None:
        return []
    ops = [path for path in children(directory.scripts) if op in (None, path.name)]
    tunings = [script / "tuning" for path in ops for script in children(path)]
    return [path for tuning in tunings for path in children(tuning) if os.path.isdir(path)]  # noqa: PTH112


def forget(directory: Directory, folder: Path) -> bool:
    """Remove a tuning, also from its script's table; False where it cannot be removed."""
    if not remove(folder):
        return False
    try:
        write_table(directory, folder.parent.parent)
    except OSError as error:
        log.warn_once("tune.write", f"the table beside {folder} cannot be written: {error}")
    return True
