"""A C++ server without Python loads a bundle, serves, and tells its counters and its health."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families

import tileops
from tests.programs import samples

HERE = Path(__file__).parent
TORCH = Path(torch.__file__).parent


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the server prints."""
    folder = tmp_path_factory.mktemp("serving")
    bundle = tileops.bundle(folder / "bundle", samples.axpy, "cpu")
    program = folder / "serve"
    subprocess.run(
        [shutil.which("g++") or "g++", "-std=c++20", "-O0", str(HERE / "serve.cpp"), "-o", str(program),
         "-isystem", str(TORCH / "include"), f"-L{TORCH / 'lib'}", "-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu", "-lc10",
         f"-Wl,-rpath,{TORCH / 'lib'}"],
        check=True,
    )  # fmt: skip
    done = subprocess.run(
        [program, Path(tileops.__file__).parent / "libtileops.so", bundle],
        capture_output=True, text=True, timeout=120, check=False,
        env={k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TILEOPS"))},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def healths(lines: list[str]) -> list[tuple[int, dict[str, object]]]:
    found = [line.split(" ", 2) for line in lines if line.startswith("health ")]
    return [(int(status), json.loads(text)) for _, status, text in found]


def test_without_a_bundle_it_cannot_serve(lines: list[str]) -> None:
    status, report = healths(lines)[0]
    assert status == 2
    assert report["status"] == "failing"
    assert report["problems"] == ["no op is registered: load a bundle"]
    assert report["ops"] == 0


def test_a_bundle_that_is_not_there_is_an_error(lines: list[str]) -> None:
    (line,) = [line for line in lines if line.startswith("nowhere ")]
    assert line.startswith("nowhere -1 ArgumentError: ")


def test_with_one_it_serves(lines: list[str]) -> None:
    assert "loaded 1" in lines
    assert "equal 1" in lines
    assert "python 0" in lines
    status, report = healths(lines)[1]
    assert status == int("without text 0" not in lines)
    if torch.version.cuda is None:
        assert (status, report["status"], report["problems"]) == (0, "ok", [])
    assert report["ops"] == 1
    assert str(report["cpu"]).startswith("cpu:")
    assert report["strict"] is False


def test_the_counters_are_prometheus_text(lines: list[str]) -> None:
    text = "\n".join(lines[lines.index("metrics") + 1 :]) + "\n"
    families = {f.name: f for f in text_string_to_metric_families(text)}
    values = {name: family.samples[0].value for name, family in families.items()}
    assert {family.type for family in families.values()} == {"counter"}
    assert values["tileops_kernel_launches"] == 5
    assert values["tileops_kernel_loads"] == 1
    assert 0 < values["tileops_kernel_load_seconds"] < 60
    assert values["tileops_call_misses"] == 0
