"""Users' functions as text: equal while they are, different when they change, the same everywhere."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tileops
from tests.autotuner.tuned_programs import FakeTimer, fresh_const
from tileops.autotuner.param import TuningOptions, identity

pytestmark = pytest.mark.usefixtures("tuning_cache")

ROOT = Path(__file__).resolve().parents[2]
TIMES = {8: 3.0, 16: 2.0, 32: 1.0}


def scaled(factor: Any) -> Callable[[Any], Any]:
    return lambda a: a * factor


class Timing:
    def __call__(self, config: Any) -> float:
        return 1.0

    def method(self, config: Any) -> float:
        return 2.0


CHANGES: list[tuple[Any, Any]] = [
    (lambda a: a * 2, lambda a: a * 3),
    (lambda a: a * 2, lambda a: a + 2),
    (lambda a: a.float(), lambda a: a.double()),
    (scaled(2), scaled(3)),
    (scaled(2), scaled(2.0)),
    (scaled((1, 2)), scaled((1, 3))),
    (scaled(torch.sum), scaled(lambda a: a)),
    (functools.partial(scaled, 1), functools.partial(scaled, 2)),
    (functools.partial(scaled, factor=1), functools.partial(scaled, factor=2)),
    (lambda a, n=1: a * n, lambda a, n=2: a * n),
    (torch.sum, torch.mean),
    (Timing().method, Timing()),
]


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_a_change_is_noticed(number: int) -> None:
    first, second = CHANGES[number]
    assert identity(first) != identity(second)
    assert identity(first) == identity(first)


def test_equal_functions_have_one_text() -> None:
    assert identity(scaled(2)) == identity(scaled(2))
    assert identity(Timing()) == identity(Timing())
    assert identity(Timing().method) == identity(Timing().method)
    kept: list[int] = []
    function = scaled(kept)
    before = identity(function)
    kept.append(1)
    assert identity(function) == before
    assert "0x" not in identity(functools.partial(scaled, object()))


def test_recursive_functions_end() -> None:
    def again(a: int) -> int:
        return again(a - 1) if a else 0

    assert identity(again) == identity(again)


def test_another_process_has_the_same_text() -> None:
    code = (
        "from tests.autotuner import test_identity as t; from tileops.jit.captured import identity;"
        "print([identity(f) for pair in t.CHANGES for f in pair])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "77"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True,
                          stdout=subprocess.PIPE, text=True)  # fmt: skip
    here = [identity(f) for pair in CHANGES for f in pair]
    assert done.stdout.strip() == str(here).replace(__name__, "tests.autotuner.test_identity")


def test_checks_are_told_apart_by_what_they_compare_with() -> None:
    def identity_of(**options: Any) -> str:
        return TuningOptions(**options).check_identity

    same = identity_of(ref_prog=scaled(2))
    assert same == identity_of(ref_prog=scaled(2))
    assert identity_of() == identity_of(manual_check_prog=print) == ""
    assert identity_of(ref_prog=scaled(2), skip_check=True) == ""
    others = [
        identity_of(ref_prog=scaled(3)),
        identity_of(ref_prog=scaled(2), rtol=0.0),
        identity_of(ref_prog=scaled(2), atol=0.0),
        identity_of(ref_prog=scaled(2), max_mismatched_ratio=0.5),
        identity_of(ref_prog=scaled(2), manual_check_prog=lambda got, want: None),
    ]
    assert len({same, *others}) == 6


def test_a_repaired_reference_or_another_tolerance_checks_again(tuning_cache: Path) -> None:
    a = torch.ones(100)

    def tune(**options: Any) -> list[int]:
        timer = FakeTimer(TIMES)
        program = tileops.autotune(configs=[{"block": 8}, {"block": 32}], timer=timer, **options)
        program(fresh_const())(a)
        return sorted(timer.calls)

    with pytest.raises(tileops.TileopsError, match="wrong_result"):
        tune(ref_prog=lambda x: x * 5)
    assert tune(ref_prog=lambda x: x * 2) == [8, 16, 32]
    assert tune(ref_prog=lambda x: x * 2) == []
    assert tune(ref_prog=lambda x: x * 2, rtol=1e-6) == [8, 16, 32]
    with pytest.raises(tileops.TileopsError, match="wrong_result"):
        tune(ref_prog=lambda x: x * 2.001, rtol=1e-6, atol=0.0)
    assert tune(ref_prog=lambda x: x * 2, skip_check=True) == [8, 16, 32]
    assert tune() == []


def test_another_timer_has_its_own_winner() -> None:
    a, chosen = torch.ones(100), []
    for timer in (
        lambda config, kernel, inputs: float(config["block"]),
        lambda config, kernel, inputs: 1.0 / config["block"],
    ):
        program = tileops.autotune(configs=[{"block": 8}, {"block": 32}], timer=timer)(
            fresh_const()
        )
        chosen.append(program.compile(a).config)
    assert chosen == [{"block": 8}, {"block": 32}]
