"""Bundles that programs with source look into: loaded as a fallback, or set in code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import tileops
from tileops import settings
from tileops.errors import ArgumentError, ArgumentTypeError

Run = Callable[..., str]

CALLING = """
import sys, torch, tileops
from tests.programs import samples
x = torch.randn(100)
def attempt():
    try: return torch.equal(samples.axpy(x, x, 1.0), x + x), tileops.stats()["compiles"]
    except tileops.CompileMissError: return "miss"
"""


def test_a_fallback_registers_nothing_and_serves_equal_programs(
    sample_bundle: Path, run_python: Run, tmp_path: Path
) -> None:
    text = (
        "import sys, torch, tileops\n"
        "found = tileops.load_bundle(sys.argv[1], as_fallback=True)\n"
        "print(len(found), hasattr(torch.ops.tileops, 'sample_axpy'))\n"
    ) + CALLING + (
        "print(attempt())\n"
        "op = samples.axpy.op\n"
        "print(op.name(), found[op.name()] == samples.axpy._eager.identity(samples.axpy._eager.op.spec).digest)\n"
    )  # fmt: skip
    out = run_python(
        text, sample_bundle, PATH="/nonexistent", TILEOPS_STRICT="1", TILEOPS_CACHE_DIR=str(tmp_path)
    )  # fmt: skip
    assert out.splitlines() == ["7 False", "(True, 0)", "tileops::sample_axpy True"]


def test_a_bundle_for_a_part_of_a_program(
    sample_bundle: Path, run_python: Run, tmp_path: Path
) -> None:
    text = CALLING + (
        "print(attempt())\n"
        "with tileops.option.bundle(sys.argv[1]):\n"
        "    print(attempt())\n"
        "samples.axpy.unload()\n"
        "with tileops.option.cache_disable(): print(attempt())\n"
    )  # fmt: skip
    out = run_python(text, sample_bundle, TILEOPS_STRICT="1", TILEOPS_CACHE_DIR=str(tmp_path))
    assert out.splitlines() == ["miss", "(True, 0)", "miss"]


def test_what_cannot_be_a_fallback(sample_bundle: Path, tmp_path: Path) -> None:
    from tileops.op import bundle_paths

    before = bundle_paths.serving()
    with pytest.raises(ArgumentError, match=r"nothing to put into namespace='vendor'"):
        tileops.load_bundle(sample_bundle, namespace="vendor", as_fallback=True)  # type: ignore[call-overload]
    with pytest.raises(ArgumentError, match=r"nowhere/bundle\.json: No such file"):
        tileops.load_bundle(tmp_path / "nowhere", as_fallback=True)
    assert bundle_paths.serving() == before


def test_what_the_option_takes(tmp_path: Path) -> None:
    with tileops.option.bundle(tmp_path, "relative"):
        assert settings.current().bundle == (str(tmp_path), str(Path("relative").absolute()))
        with tileops.option.bundle():
            assert settings.current().bundle == ()
    with pytest.raises(ArgumentTypeError, match="expected a path, got int"):
        tileops.option.bundle(5)  # type: ignore[arg-type]
