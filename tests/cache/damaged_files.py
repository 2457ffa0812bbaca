"""Each file of a real entry, damaged in each way, and what the next two processes make of it.

Prints a JSON object: the files, and a row for each case.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from tests.cache.forked import call, entry, import_everything


def _directory(path: Path, other: bytes) -> None:
    path.unlink()
    path.mkdir()


def _flipped(data: bytes) -> bytes:
    at = min(2000, len(data) // 2)
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


DAMAGES: dict[str, Callable[[Path, bytes], object]] = {
    "emptied": lambda path, other: path.write_bytes(b""),
    "halved": lambda path, other: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "flipped": lambda path, other: path.write_bytes(_flipped(path.read_bytes())),
    "deleted": lambda path, other: path.unlink(),
    "a directory": _directory,
    "another entry's": lambda path, other: path.write_bytes(other),
}


def judged(root: Path, cases: list[tuple[str, str]]) -> list[dict[str, object]]:
    rows = []
    for name, damage in cases:
        cache = root / f"{name.replace('/', '-')} {damage}"
        shutil.copytree(root / "whole", cache, symlinks=True)
        path = entry(cache) / name
        DAMAGES[damage](path, (entry(root / "other") / name).read_bytes())
        row: dict[str, object] = {"name": name, "damage": damage, "path": str(entry(cache))}
        rows.append({**row, "next": call(cache), "last": call(cache)})
    return rows


def main(root: Path) -> None:
    import_everything()
    call(root / "whole")
    call(root / "other", 5.0)
    whole, other = entry(root / "whole"), entry(root / "other")
    names = sorted(
        str(p.relative_to(whole)) for p in whole.rglob("*") if p.is_file() and not p.is_symlink()
    )
    cases = [
        (name, damage)
        for name in names
        for damage in DAMAGES
        # A file that both entries share is no damage.
        if damage != "another entry's" or (whole / name).read_bytes() != (other / name).read_bytes()
    ]
    rows = judged(root, cases)
    print(json.dumps({"names": names, "rows": rows}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
