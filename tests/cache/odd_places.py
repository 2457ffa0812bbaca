"""A real program on cache directories with odd names and from odd working directories.

Prints a JSON object: a row for each case, of two processes one after the other.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.cache.forked import call, import_everything


def _leave(folder: Path, *, gone: bool = False) -> None:
    """Settle where the relative directory is, then work elsewhere, in a folder that may be gone."""
    from tileops import settings

    os.chdir(folder)
    settings.current()
    (folder / "away").mkdir(exist_ok=True)
    os.chdir(folder / "away")
    if gone:
        (folder / "away").rmdir()


def _stand_nowhere(folder: Path) -> None:
    (folder / "away").mkdir()
    os.chdir(folder / "away")
    (folder / "away").rmdir()


def _twice(cache: Path, **more: object) -> list[dict[str, object]]:
    return [call(cache, **more) for _ in range(2)]  # type: ignore[arg-type]


def main(root: Path) -> None:
    import_everything()
    for name in ("chdir", "gone", "nowhere"):
        (root / name).mkdir()
    rows = {
        "no UTF-8": _twice(root / os.fsdecode(b"\xff\xfe d")),
        "deep": _twice(root.joinpath(*["d" * 200] * 15)),
        "too deep": _twice(root.joinpath(*["d" * 200] * 25)),
        "chdir": _twice(Path("cache"), before=lambda: _leave(root / "chdir")),
        "gone": _twice(Path("cache"), before=lambda: _leave(root / "gone", gone=True)),
        "nowhere": _twice(Path("cache"), before=lambda: _stand_nowhere(root / "nowhere")),
    }
    os.chdir(root)
    found = {n: sorted(p.name for p in (root / n).rglob("programs")) for n in ("chdir", "gone")}
    print(json.dumps({"rows": rows, "found": found}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
