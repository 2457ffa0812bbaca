"""``tileops env``: what is missing, in words that say what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tileops.cli import environment

GOOD: dict[str, Any] = {
    "native runtime": "built", "triton": "3.9.0", "torch": "2.13.0+cpu", "c++ compiler": "/usr/bin/g++: g++ (X) 12.2.0",
}  # fmt: skip


def missing(**changes: str) -> list[str]:
    facts = GOOD | {name.replace("_", " ").replace("cxx", "c++"): v for name, v in changes.items()}
    return environment._missing(facts, "g++", None)


def test_nothing_is_missing() -> None:
    assert missing() == []


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"native_runtime": "not built"}, "pip install -e . --no-build-isolation"),
        ({"triton": "not installed"}, "pip install 'triton>=3.6,<3.10'"),
        ({"triton": "3.5.1"}, "pip install 'triton>=3.6,<3.10'"),
        ({"triton": "3.10.0"}, "pip install 'triton>=3.6,<3.10'"),
        ({"torch": "2.9.1"}, "pip install 'torch>=2.10'"),
        ({"cxx_compiler": "not found"}, "install g++ 11 or newer"),
        ({"cxx_compiler": "/usr/bin/g++: g++ (X) 9.4.0"}, "install g++ 11 or newer"),
    ],
)
def test_each_line_says_what_to_do(changes: dict[str, str], advice: str) -> None:
    (line,) = missing(**changes)
    assert line.endswith(advice)


def test_a_bundle_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEOPS_BUNDLE", str(tmp_path))
    assert missing() == [f"the bundle {tmp_path} of TILEOPS_BUNDLE: write it with tileops.bundle"]


def test_version_is_the_packages() -> None:
    import tileops

    done = subprocess.run(
        [sys.executable, "-m", "tileops", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"tileops {tileops.__version__}\n"
