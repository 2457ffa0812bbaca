"""Bundles written by hand, for tests of the reader with kernels that no compiler made."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

PROGRAM = "ab" * 32


def fact(data: bytes) -> dict[str, Any]:
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def write_bundle(
    folder: Path,
    op: dict[str, Any],
    variants: list[tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]],
    files: dict[str, bytes],
    definition: str | None = None,
    trace: str = "",
) -> Path:
    """One op and one program. ``variants`` pair a variant with (target, entry) pairs.

    With ``definition`` and ``trace``, which tell its program from others, it is of format 2.
    """
    program = folder / "programs" / PROGRAM
    program.mkdir(parents=True)
    for name, data in files.items():
        (program / name).write_bytes(data)
    manifest = json.dumps({"format": 1, "files": {n: fact(d) for n, d in files.items()}}).encode()
    (program / "manifest.json").write_bytes(manifest)
    document: dict[str, Any] = {
        "format": 1,
        "op": op,
        "variants": [
            {
                "variant": variant,
                "entries": [
                    {"target": target, "program": PROGRAM, "manifest": fact(manifest), "entry": entry}
                    for target, entry in entries
                ],
            }
            for variant, entries in variants
        ],
    }  # fmt: skip
    if definition is not None:
        digest = hashlib.sha256(definition.encode()).hexdigest()
        document.update(format=2, definition=digest, parts={"source": digest}, aliases=[])
        for item in document["variants"]:
            item["digest"] = hashlib.sha256(trace.encode()).hexdigest()
    text = json.dumps(document).encode()
    path = folder / "ops" / op["name"] / "op.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(text)
    index = {"format": 1, "ops": {op["name"]: fact(text)}}
    (folder / "bundle.json").write_text(json.dumps(index))
    return folder
