"""Keys, contents and child processes for the cache's tests."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tileops.cache import Built, Key, key_of, sources

ROOT = Path(__file__).resolve().parents[2]
FILES = ("kernel.py", "launch0.ptx", "launch0.cubin", "params.json", "ir/01_place.txt")


def key(number: int = 0, **changes: object) -> Key:
    fields: dict[str, object] = {
        "ir": f"program f{number}(A: f16[M, N])\n  launch grid=[{number}]\n",
        "options": [["tl.enable_fast_math", "0"], ["number", str(number)]],
        "target": "cuda:sm_90a",
        "specialization": {"fast": True, "index64": False},
        "codegen": "c" * 64,
        "toolchain": {"triton": "3.9.0", "ptxas": "12.9 0123abcd"},
    }
    return key_of(**{**fields, **changes})  # type: ignore[arg-type]


def content(number: int, name: str, size: int = 3000) -> bytes:
    """Bytes that only this key's file has, so that a swapped file shows."""
    block = hashlib.sha256(f"{number} {name}".encode()).digest()
    return (block * (size // len(block) + 1))[:size]


def built(number: int = 0, size: int = 3000) -> Built:
    files = {name: content(number, name, size) for name in FILES}
    manifest = {"name": f"f{number}", "record": {"launches": [{"entry": "f", "threads": 128}]}}
    links = {"kernel.cubin": "launch0.cubin"}
    return Built(files, manifest, links, frozenset({"launch0.cubin"}))


def generators(package: Path) -> None:
    """Write a package with all that the digest of the generators covers, a file each."""
    for name in sources.GENERATORS:
        path = package / name if name.endswith(".py") else package / name / "one.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n")


def is_right(files: Mapping[str, bytes], number: int, size: int = 3000) -> bool:
    return all(files[name] == content(number, name, size) for name in FILES)


def environment(cache: Path | None, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TILEOPS_", "XDG_"))}
    kept["PYTHONPATH"] = str(ROOT)
    if cache is not None:
        kept["TILEOPS_CACHE_DIR"] = str(cache)
    return {**kept, **more}


def start(
    script: str,
    arguments: Sequence[object] = (),
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
) -> subprocess.Popen[str]:
    """A new process that runs ``script`` with this interpreter."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=dict(env), cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def result(process: subprocess.Popen[str], timeout: float = 120) -> dict[str, object]:
    """The JSON that the process printed last; fails with its errors if it failed."""
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, err
    return {**json.loads(out.splitlines()[-1]), "stderr": err}


# One process that asks for program NUMBER once, reports how it came by it, and if it is right.
ASK = """
import json, sys, warnings
from tests.cache import samples
from tileops import cache, counters
number, builds = int(sys.argv[1]), []
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    entry = cache.store().fetch(
        samples.key(number), lambda: builds.append(1) or samples.built(number)
    )
print(json.dumps({
    "builds": len(builds),
    "right": samples.is_right(entry.files, number),
    "path": str(entry.path) if entry.path else None,
    "warnings": [str(w.message) for w in caught],
    "stats": counters.stats(),
    "pickle": "pickle" in sys.modules,
}))
"""


def ask(cache: Path | None, number: int = 0, **more: str) -> dict[str, object]:
    return result(start(ASK, [number], env=environment(cache, **more)))


def drive(module: str, folder: Path) -> dict[str, object]:
    """What ``tests.cache.<module>`` finds in the empty ``folder``."""
    text = f"import pathlib, sys; from tests.cache import {module} as m; m.main(pathlib.Path(sys.argv[1]))"
    return result(start(text, [folder], env=environment(None), cwd=folder), 400)
