"""Importing does nothing: no folder, environment read, logging handler, CUDA call or Triton."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.imports import ROOT

PROBE = r"""
import json, logging, os, sys
import torch
before = set(sys.modules)
events, reads = [], []
watched = ("os.mkdir", "os.rename", "os.remove", "os.symlink", "subprocess.Popen", "os.system",
           "socket.connect")
armed = True

def hook(name, args):
    if not armed:
        return
    if name in watched:
        events.append(f"{name} {args!r}")
    if name == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
        if not str(args[0]).endswith(".pyc") and "__pycache__" not in str(args[0]):
            events.append(f"open {args[0]!r} {args[1]!r}")

class Environ(type(os.environ)):
    def __getitem__(self, key):
        caller = sys._getframe(1)
        while caller and caller.f_globals.get("__name__") in ("os", "_collections_abc", "__main__"):
            caller = caller.f_back
        if armed and caller and caller.f_globals.get("__name__", "").startswith("tileops"):
            reads.append(f"{key} by {caller.f_globals['__name__']}")
        return super().__getitem__(key)

os.environ.__class__ = Environ
sys.addaudithook(hook)
import tileops
import tileops.language
armed = False
loaded = open("/proc/self/maps").read()
print(json.dumps({
    "events": events,
    "reads": reads,
    "handlers": [repr(h) for h in logging.getLogger("tileops").handlers],
    "modules": sorted(set(sys.modules) - before),
    "libcuda": "libcuda.so" in loaded,
    "cuda_initialized": torch.cuda.is_initialized(),
    "threads": __import__("threading").active_count(),
}))
"""


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    home = tmp_path_factory.mktemp("home")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TILEOPS_", "XDG_"))}
    environment = {**kept, "HOME": str(home), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        env=environment, cwd=home, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = dict(json.loads(done.stdout.splitlines()[-1]))
    result["stray"] = [str(p) for p in Path(home).rglob("*")]
    return result


def test_nothing_is_written_or_started(probe: dict[str, object]) -> None:
    assert probe["events"] == []
    assert probe["stray"] == []
    assert probe["threads"] == 1


def test_the_environment_is_not_read(probe: dict[str, object]) -> None:
    assert probe["reads"] == []


def test_no_logging_handler(probe: dict[str, object]) -> None:
    assert probe["handlers"] == []


def test_neither_triton_nor_the_compiler_is_imported(probe: dict[str, object]) -> None:
    modules = probe["modules"]
    assert isinstance(modules, list)
    wrong = [m for m in modules if m.split(".")[0] == "triton" or m.startswith("tileops.compiler")]
    assert wrong == []


def test_the_driver_is_not_loaded(probe: dict[str, object]) -> None:
    assert probe["libcuda"] is False
    assert probe["cuda_initialized"] is False
