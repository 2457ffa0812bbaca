"""What users give to a tuning: what cannot be meant is an error that names op and argument."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tileops
import tileops.language as T
from tests.autotuner.tuned_programs import (
    FakeTimer,
    fresh_const,
    fresh_dynamic,
    fresh_in_place,
    fresh_other,
)
from tileops.autotuner.inputs import check_inputs
from tileops.errors import ArgumentError, ArgumentTypeError

pytestmark = pytest.mark.usefixtures("tuning_cache")

TIMES = {8: 3.0, 16: 2.0, 32: 1.0}
SPACE = [{"block": 8}, {"block": 32}]


def tune(configs: Any = SPACE, timer: Any = None, **options: Any) -> Any:
    """The config that a call of the program chooses."""
    program = tileops.autotune(configs=configs, timer=timer or FakeTimer(TIMES), **options)(
        fresh_const()
    )
    a = torch.randn(100)
    assert torch.equal(program(a), a * 2)
    return program.compile(a).config


def fail(*arguments: Any) -> Any:
    raise ZeroDivisionError("division by zero")


OP = "op tuned_double_const: |tuned_double_const: "


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ([{"blok": 8}], f"({OP})configs: 'blok' is not a compile-time parameter"),
        ([{"A": 8}], f"({OP})configs: 'A' is not a compile-time parameter"),
        ([], f"({OP})configs: the space is empty"),
        (None, f"({OP})configs: expected dicts, a space or a function, got None"),
        (5, f"({OP})configs: expected dicts"),
        (["block"], f"({OP})configs: expected dicts, got 'block'"),
        ("all", "configs: expected a list, a space or 'auto', got 'all'"),
        (fail, f"({OP})configs raised ZeroDivisionError"),
        (lambda a: None, f"({OP})configs: expected dicts"),
        (lambda a: [{"blok": 1}], f"({OP})configs: 'blok'"),
        (lambda a, b, c: SPACE, f"({OP})configs raised TypeError"),
        ([{1: 8, "blok": 8}], f"({OP})configs: '1' is not a compile-time parameter"),
        ([{"block": {8}}], f"({OP})config .*8.* cannot be kept in a file"),
        ([{"block": 8, "pass_configs": "x"}], "pass_configs: expected a dict of options, got 'x'"),
        ([{"block": len}], f"({OP})config .*len.* cannot be kept in a file"),
        (tileops.space(block=[8], where=lambda block: block > 8), f"({OP})configs: the space is empty"),
        (tileops.space(block=[8], where=lambda block: 1 / 0), "where raised ZeroDivisionError for block=8"),
        (tileops.space(block=[8], where=lambda b: True), "where raised TypeError for block=8"),
    ],
)  # fmt: skip
def test_configs_that_cannot_be_meant(configs: Any, words: str) -> None:
    with pytest.raises((ArgumentError, ArgumentTypeError), match=words):
        tune(configs)


def test_spaces_that_cannot_be_meant() -> None:
    for axes in ({"block": 8}, {"block": "abc"}, {"block": None}):
        with pytest.raises(ArgumentTypeError, match="axis 'block': expected choices"):
            tileops.space(**axes)
    with pytest.raises(ArgumentError, match="'block' has no choices"):
        tileops.space(block=[])
    with pytest.raises(ArgumentTypeError, match="where: expected a function"):
        tileops.space(block=[8], where=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "configs",
    [
        [{"block": 32}, {"block": 32}, {"block": 8}],
        ({"block": b} for b in (8, 32)),
        lambda a: ({"block": b} for b in (8, 32)),
        {"block": [8, 32]},
        tileops.space(block=(b for b in (8, 32))),
        tileops.space(block=np.array([8, 32])),
        [{"block": np.int32(8)}, {"block": np.int64(32)}, {"block": torch.tensor(32)}],
        # What is no program is recorded, and nothing else suffers.
        [{"block": None}, {"block": (8,)}, {"block": 0}, {"block": -8}, {"block": "x"}, {"block": 32}],
    ],
)  # fmt: skip
def test_configs_in_every_form_give_the_best(configs: Any) -> None:
    assert tune(configs) == {"block": 32}


def test_a_dtype_may_be_tuned() -> None:
    class ByDtype(FakeTimer):
        def __call__(self, config: Any, kernel: Any, inputs: Any) -> float:
            self.calls.append(str(config["target_dtype"]))
            return 1.0 if "16" in str(config["target_dtype"]) else 2.0

    @tileops.jit(name="tuned_dtype")
    def cast(A, target_dtype=torch.float32):  # type: ignore[no-untyped-def]
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        B = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, 16), threads=128) as bx:
            for i in T.Parallel(16):
                B[bx * 16 + i] = T.cast(T.cast(A[bx * 16 + i], target_dtype), T.float32)
        return B

    timer = ByDtype({})
    configs = [{"target_dtype": torch.float32}, {"target_dtype": torch.float16}]
    program = tileops.autotune(configs=configs, timer=timer)(cast)
    a = torch.randn(64)
    assert torch.equal(program(a), a.half().float())
    assert program.compile(a).config == {"target_dtype": torch.float16}
    assert len(timer.calls) == 2


@pytest.mark.parametrize("value", ["fast", None, True, 1 + 2j, torch.ones(2), [1.0], 10**400])
def test_a_timer_that_gives_no_number_is_an_error(value: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="timer: expected milliseconds as a number"):
        tune(timer=lambda config, kernel, inputs: value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, -float("inf")])
def test_a_time_that_cannot_be_is_a_failure_of_its_config(value: float, tuning_cache: Path) -> None:
    timer = lambda config, kernel, inputs: value if config["block"] == 32 else config["block"]  # noqa: E731
    assert tune(timer=timer) == {"block": 8}
    rows = [line for f in tuning_cache.rglob("configs.jsonl") for line in f.open()]
    assert sum(f"the timer gave {value}" in line for line in rows) == 1


@pytest.mark.parametrize("value", [torch.tensor(1.0), torch.tensor([1.0]), 1, 0.0])
def test_numbers_of_other_libraries_are_times(value: Any) -> None:
    timer = lambda config, kernel, inputs: value if config["block"] == 8 else 2.0  # noqa: E731
    assert tune(timer=timer) == {"block": 8}


def test_a_timer_that_raises_leaves_the_others() -> None:
    timer = lambda config, kernel, inputs: fail() if config["block"] == 32 else 1.0  # noqa: E731
    assert tune(timer=timer) in ({"block": 8}, {"block": 16})


@pytest.mark.parametrize("timer", [FakeTimer(TIMES), None])
def test_a_reference_that_raises_is_the_callers_error(timer: Any) -> None:
    program = tileops.autotune(
        configs=SPACE, timer=timer, warmup=0, rep=1, ref_prog=fail
    )(fresh_const())  # fmt: skip
    with pytest.raises(
        tileops.TileopsError, match="op tuned_double_const: ref_prog raised ZeroDivisionError"
    ):
        program(torch.randn(10))


@pytest.mark.parametrize("value", [3.0, {"b": torch.ones(1)}, np.ones(100)])
def test_a_reference_that_gives_no_tensor_is_the_callers_error(value: Any) -> None:
    with pytest.raises(ArgumentError, match=f"ref_prog gave {type(value).__name__}, expected"):
        tune(ref_prog=lambda a: value)


def test_a_function_of_buckets_must_give_a_value() -> None:
    def call(buckets: Any) -> None:
        program = tileops.autotune(configs=SPACE, timer=FakeTimer(TIMES), buckets=buckets)
        program(fresh_dynamic())(torch.randn(5))

    with pytest.raises(ArgumentError, match=r"buckets\('N', 5\) raised ZeroDivisionError"):
        call(fail)
    with pytest.raises(ArgumentTypeError, match=r"buckets\('N', 5\): .* cannot be kept in a file"):
        call(lambda name, value: object())


def test_a_timer_may_call_a_program_of_the_same_facts() -> None:
    inner = tileops.autotune(configs=SPACE, timer=FakeTimer(TIMES))(fresh_const())

    class Outer(FakeTimer):
        __qualname__ = "FakeTimer"  # the keys of both programs are the same

        def __call__(self, config: Any, kernel: Any, inputs: Any) -> float:
            assert torch.equal(inner(inputs[0]), inputs[0] * 2)
            return super().__call__(config, kernel, inputs)

    Outer.__module__ = FakeTimer.__module__
    program = tileops.autotune(configs=SPACE, timer=Outer(TIMES))(fresh_other())
    a = torch.randn(77)
    assert torch.equal(program(a), a * 2 + 1)


def test_a_reference_may_change_its_inputs() -> None:
    def reference(a: torch.Tensor) -> torch.Tensor:
        result = a * 2
        a.zero_()
        return result

    assert tune(ref_prog=reference) == {"block": 32}
    x = torch.zeros(100)
    program = tileops.autotune(
        configs=SPACE, timer=FakeTimer(TIMES), ref_prog=lambda t: t.add_(1)
    )(fresh_in_place())  # fmt: skip
    program(x)
    assert torch.equal(x, torch.ones(100))


def test_a_manual_check_may_return_false_or_raise() -> None:
    with pytest.raises(tileops.TileopsError, match="manual_check_prog returned False"):
        tune(ref_prog=lambda a: a * 2, manual_check_prog=lambda got, want: False)
    with pytest.raises(tileops.TileopsError, match="division by zero"):
        tune(ref_prog=lambda a: a * 2, manual_check_prog=fail)
    assert tune(ref_prog=lambda a: a * 9, manual_check_prog=lambda got, want: None)
    assert tune(ref_prog=lambda a: a * 9, skip_check=True)


@pytest.mark.parametrize(
    ("supply", "words"),
    [
        (lambda params: [torch.randn(7)], r"gave a tensor of shape \(7,\) for 'A', expected \(100\)"),
        (lambda params: [torch.randn(10, 10)], r"gave a tensor of shape \(10, 10\)"),
        (lambda params: [torch.randn(100)] * 2, r"gave 2 inputs, the program takes 1 \(A\)"),
        (lambda params: None, "gave NoneType for 'A', expected a tensor"),
        (lambda params: ["x"], "gave str for 'A', expected a tensor"),
        (lambda params: [torch.randn(100).double()], "gave a tensor of torch.float64 for 'A', expected"),
        (lambda params: [torch.empty(100, device="meta")], "gave a tensor on meta for 'A', expected"),
        (fail, "raised ZeroDivisionError"),
    ],
)  # fmt: skip
def test_supplied_inputs_must_fit(supply: Any, words: str) -> None:
    with pytest.raises(
        (ArgumentError, ArgumentTypeError), match=f"op tuned_double_const: supply_prog {words}"
    ):
        tune(supply_prog=supply)


def test_supplied_inputs_come_in_any_iterable_and_name_the_op_where_they_do_not_fit() -> None:
    assert tune(supply_prog=lambda params: (torch.randn(100) for _ in params))
    program = tileops.autotune(
        configs=SPACE, warmup=0, rep=1, supply_prog=lambda params: torch.randn(200)[::2]
    )(fresh_const())  # fmt: skip
    with pytest.raises(ArgumentError, match="op tuned_double_const: argument 'A': expected a cont"):
        program(torch.randn(100))


def test_given_inputs_must_fit() -> None:
    with (
        tileops.set_autotune_inputs(torch.randn(3)),
        pytest.raises(ArgumentError, match=r"set_autotune_inputs gave a tensor of shape \(3,\)"),
    ):
        tune()
    param = type("P", (), {"name": "n", "is_scalar": True, "shape": ()})
    with pytest.raises(ArgumentTypeError, match="gave Tensor for 'n', expected a number"):
        check_inputs("supply_prog", [torch.ones(1)], [param], frozenset(), torch.device("cpu"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timeout": -1}, "timeout: expected 0 or more"),
        ({"timeout": "x"}, "timeout: expected a number"),
        ({"timeout": float("nan")}, "timeout: expected 0 or more"),
        ({"warmup": -1}, "warmup: expected 0 runs or more"),
        ({"rep": 0}, "rep: expected 1 runs or more"),
        ({"rep": 1.5}, "rep: expected a number of runs"),
        ({"rep": True}, "rep: expected a number of runs"),
        ({"rtol": -1}, "rtol: expected 0 or more"),
        ({"atol": "a"}, "atol: expected a number"),
        ({"max_mismatched_ratio": 2}, "max_mismatched_ratio: expected 0 to 1"),
        ({"supply_type": "auto"}, "supply_type: expected a TensorSupplyType"),
        ({"backend": "x"}, "backend: expected one of event"),
        ({"timer": 5}, "timer: expected a function"),
        ({"ref_prog": 5}, "ref_prog: expected a function"),
        ({"supply_prog": 5}, "supply_prog: expected a function"),
        ({"manual_check_prog": 5}, "manual_check_prog: expected a function"),
        ({"early_stop": True, "early_stop_factor": 0.5}, "early_stop_factor: expected 1 or more"),
        ({"devices": "some"}, "devices: expected 'all' or a list"),
        ({"devices": 5}, "devices: expected 'all' or a list"),
        ({"devices": ["gpu:0"]}, "devices: "),
        ({"devices": [None]}, "devices: expected 'cuda:1'"),
        ({"buckets": 5}, "buckets: expected a list of upper bounds"),
        ({"buckets": []}, "buckets: expected a list of upper bounds"),
        ({"buckets": ["a"]}, "buckets: expected whole numbers"),
        ({"buckets": {"N": 4}}, r"buckets\['N'\]: expected a list"),
        ({"search": "greedy"}, "search: expected one of"),
        ({"budget": "1"}, "budget: expected a positive number"),
        ({"tune": "maybe"}, "tune: expected one of"),
    ],
)
def test_options_that_cannot_be_meant(options: dict[str, Any], words: str) -> None:
    with pytest.raises((ArgumentError, ArgumentTypeError), match=words):
        tileops.autotune(configs=SPACE, **options)(fresh_const())


def test_names_that_the_program_lacks() -> None:
    with pytest.raises(ArgumentError, match=r"op tuned_double_const: do_not_specialize names 'Z'"):
        tune(do_not_specialize=["Z"])
    with pytest.raises(ArgumentError, match=r"op tuned_double_const: buckets names 'Q'"):
        tune(buckets={"Q": [4]})
    assert tune(do_not_specialize="N") == {"block": 32}


def test_the_tuner_of_one_kernel_checks_the_same() -> None:
    tuner = tileops.AutoTuner.from_kernel(fresh_const(), SPACE)
    with pytest.raises(ArgumentError, match="ProfileArgs has no field 'reps'"):
        tuner.set_profile_args(reps=3)
    with pytest.raises(ArgumentError, match="rep: expected 1 runs or more"):
        tuner.set_profile_args(rep=0).run(kwargs={"N": 64})
    with pytest.raises(ArgumentError, match="CompileArgs has no field 'arch'"):
        tuner.set_compile_args(arch="sm_90")
