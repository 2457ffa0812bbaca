"""Comparison with golden files; TILEOPS_UPDATE_GOLDEN=1 rewrites them for review."""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def check(kind: str, name: str, text: str) -> None:
    """Compare ``text`` with tests/golden/<kind>/<name>.txt."""
    path = GOLDEN / kind / f"{name}.txt"
    if os.environ.get("TILEOPS_UPDATE_GOLDEN") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"no golden file {path}; run with TILEOPS_UPDATE_GOLDEN=1 and review it"
    assert text == path.read_text(encoding="utf-8")
