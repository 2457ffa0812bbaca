"""What one tuning is good for: nothing of it reaches other dtypes, layouts, flags or devices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from tests.autotuner.tuned_programs import FakeTimer, fresh_const, fresh_lazy
from tileops.autotuner import tuner as tuners

pytestmark = pytest.mark.usefixtures("tuning_cache")

TIMES = {8: 3.0, 16: 2.0, 32: 1.0}
SPACE = [{"block": 8}, {"block": 32}]


def fresh_flags() -> Any:
    """A program of a dtype, a flag, an optional tensor and free strides."""

    @tileops.jit(name="tuned_flags")
    def flags(A, bias=None, block: int = 16, negate: bool = False, dtype: str = "float32"):  # type: ignore[no-untyped-def]
        M = T.const("M")
        row, column = T.dynamic("row, column")
        A: T.StridedTensor((M, M), (row, column), dtype)
        bias: T.Tensor((M,), dtype)
        B = T.empty((M, M), dtype)
        with T.Kernel(T.ceildiv(M, block), threads=128) as bx:
            for i, j in T.Parallel(block, M):
                x = A[bx * block + i, j]
                y = x if bias is None else x + bias[j]
                B[bx * block + i, j] = -y if negate else y
        return B

    return flags


def tuned(make: Callable[[], Any], **options: Any) -> tuple[Any, FakeTimer]:
    timer = FakeTimer(TIMES)
    return tileops.autotune(configs=SPACE, timer=timer, **options)(make()), timer


def test_dtypes_flags_and_missing_tensors_are_tuned_apart() -> None:
    program, timer = tuned(fresh_flags)
    a = torch.randn(32, 32)
    bias = torch.randn(32)
    calls: list[tuple[Callable[[], torch.Tensor], torch.Tensor]] = [
        (lambda: program(a), a),
        (lambda: program(a, negate=True), -a),
        (lambda: program(a.half(), dtype="float16"), a.half()),
        (lambda: program(a, bias), a + bias),
        (lambda: program(a, bias, negate=True), -(a + bias)),
    ]
    for number, (call, expected) in enumerate(calls):
        assert torch.equal(call(), expected)
        assert len(timer.calls) == 3 * (number + 1)
    for call, expected in calls:
        assert torch.equal(call(), expected)
    again, second = tuned(fresh_flags)
    assert torch.equal(again(a, bias), a + bias)
    assert torch.equal(again(a), a)
    assert second.calls == []
    assert len(timer.calls) == 15


def test_a_flag_decides_its_own_winner() -> None:
    def timer(config: Any, kernel: Any, inputs: Any) -> float:
        is_negative = float(kernel(*inputs)[0, 0]) < 0
        return float(config["block"] if is_negative else 1 / config["block"])

    program = tileops.autotune(configs=SPACE, timer=timer)(fresh_flags())
    a = torch.ones(32, 32)
    program(a)
    program(a, negate=True)
    assert program.compile(a, None).config == {"block": 32}
    assert program.compile(a, None, negate=True).config == {"block": 8}


def test_strides_are_right_whichever_call_tuned() -> None:
    program, _ = tuned(fresh_flags)
    a = torch.randn(32, 32)
    assert torch.equal(program(a), a)
    assert torch.equal(program(a.t()), a.t())
    wide = torch.randn(32, 65)
    assert torch.equal(program(wide[:, 1:33]), wide[:, 1:33])


def test_another_device_model_is_tuned_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    a = torch.randn(100)
    program, timer = tuned(fresh_const)
    program(a)
    assert len(timer.calls) == 3
    monkeypatch.setattr(tuners, "device_model", lambda device: "another processor")
    program, timer = tuned(fresh_const)
    program(a)
    assert len(timer.calls) == 3


def test_a_changed_text_measures_all_configs_again() -> None:
    def make(factor: float) -> Any:
        @tileops.jit(name="tuned_changed")
        def changed(A, block: int = 16):  # type: ignore[no-untyped-def]
            N = T.const("N")
            A: T.Tensor((N,), T.float32)
            B = T.empty((N,), T.float32)
            with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
                for i in T.Parallel(block):
                    B[bx * block + i] = A[bx * block + i] * factor
            return B

        return changed

    a = torch.randn(100)
    for factor in (2.0, 3.0):
        program, timer = tuned(lambda factor=factor: make(factor))  # type: ignore[misc]
        assert torch.equal(program(a), a * factor)
        assert sorted(timer.calls) == [8, 16, 32]


def test_strict_mode_names_the_op_the_key_and_the_way_out() -> None:
    program, timer = tuned(fresh_const)
    with tileops.option.strict(), pytest.raises(tileops.CompileMissError) as error:
        program(torch.randn(61))
    text = str(error.value)
    for part in ("tuned_double_const", "N=61", "strict mode", "tune='never'"):
        assert part in text
    assert timer.calls == []


def test_warmup_takes_the_tuned_config() -> None:
    program, timer = tuned(fresh_const)
    tileops.warmup([(program, {"N": 77})])
    assert len(timer.calls) == 3
    a = torch.randn(77)
    with tileops.option.strict():
        assert torch.equal(program(a), a * 2)
    lazy, timer = tuned(fresh_lazy)
    tileops.warmup([(lazy, 100)])
    assert sorted(timer.calls) == [8, 32]
    assert lazy(100).config == {"block": 32}


def bundled(path: Path, item: object, targets: object = None) -> set[str]:
    """The hashes of the programs in a bundle."""
    folder = tileops.bundle(path, [item], targets)  # type: ignore[list-item, arg-type]
    return {p.name for p in (folder / "programs").iterdir()}


def test_bundles_carry_the_tuned_choice_or_are_refused(tmp_path: Path) -> None:
    program, _ = tuned(fresh_const)
    program(torch.randn(78))
    chosen = bundled(tmp_path / "tuned", program)
    assert chosen == bundled(tmp_path / "given", (program, [{"N": 78, "block": 32}]))
    assert chosen != bundled(tmp_path / "default", (program, [{"N": 78, "block": 16}]))
    assert chosen == bundled(tmp_path / "sizes", (program, [{"N": 78}]))
    with pytest.raises(tileops.TileopsError, match="tuned and no device here runs cuda:sm_90"):
        bundled(tmp_path / "elsewhere", program, "cuda:sm_90")


def test_all_devices_of_a_cpu_are_one() -> None:
    program = tileops.autotune(configs=SPACE, devices="all", warmup=1, rep=2)(fresh_const())
    a = torch.randn(90)
    assert torch.equal(program(a), a * 2)
    assert program.compile(a).latency is not None
