"""Every kind of argument of an op: how it reaches the variant's key, the kernel, and the error texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.kit import descriptions as d
from tests.runtime import cpu_ops
from tileops import runtime
from tileops.errors import ArgumentError, ArgumentTypeError, InternalError

Build = Callable[..., Path]

STATIC_KINDS = ["int", "int?", "float", "float?", "bool", "bool?", "str", "str?", "int[]", "int[]?"]


def static_op(
    kinds: list[str], build_kernel: Build, *, optional_tensor: bool = False
) -> cpu_ops.CpuOp:
    """An op without effect whose variants are chosen by static arguments of the given kinds."""
    extra = [d.arg("bias", "tensor?")] if optional_tensor else []
    tensors = [d.tensor(0, "a", [d.bind(0)])]

    def make_variant(request: dict[str, Any]) -> d.Json:
        rules = list(tensors)
        if optional_tensor and request["static"][-1]:
            rules.append(d.tensor(1, "bias", [d.bind(0)]))
        return d.variant(static=request["static"], tensors=rules, sizes=[d.size("N")])

    arguments = [f"{kind} s{i}" for i, kind in enumerate(kinds)]
    if optional_tensor:
        arguments.insert(0, "Tensor? bias")
    return cpu_ops.CpuOp(
        d.op(d.fresh_name("static"), f"({', '.join(['Tensor a', *arguments])}) -> ()",
             [d.arg("a"), *extra, *(d.arg(f"s{i}", kind, "static") for i, kind in enumerate(kinds))]),
        make_variant,
        lambda request: cpu_ops.entry_for(request, tensor_order=[{"arg": 0}]),
        build_kernel(cpu_ops.ADD),
    )  # fmt: skip


def statics_of(op: cpu_ops.CpuOp) -> list[list[Any]]:
    return [r["static"] for r in op.requests if r["kind"] == "variant"]


VALUES: dict[str, list[Any]] = {
    "int": [0, 1, -1, 2**63 - 1, -(2**63)],
    "float": [0.0, -0.0, 0.1, float("inf"), float("-inf"), 1e-300],
    "bool": [True, False],
    "str": ["", "a", "float16", "eight by", "längère Zeichenkette ✓", "eight by\0x"],
    "int[]": [[], [0], [1, 2, 3], [2**62, -1]],
}


@pytest.mark.parametrize("kind", STATIC_KINDS)
def test_static_values_choose_the_variant(build_kernel: Build, kind: str) -> None:
    values = VALUES[kind.removesuffix("?")] + ([None] if kind.endswith("?") else [])
    op = static_op([kind], build_kernel)
    a = torch.ones(2)
    for _ in range(2):
        for value in values:
            op.call(a, value)
    got = [statics[0] for statics in statics_of(op)]
    assert [repr(value) for value in got] == [
        repr(value) for value in values
    ]  # once each; -0.0 is not 0.0


def test_a_nan_static_is_one_variant(build_kernel: Build) -> None:
    op = static_op(["float"], build_kernel)
    for nan in (float("nan"), -float("nan"), float("nan")):
        op.call(torch.ones(2), nan)
    assert len(statics_of(op)) == 1


def test_neighbouring_values_do_not_run_together(build_kernel: Build) -> None:
    op = static_op(["str", "str", "int[]", "int[]"], build_kernel)
    a = torch.ones(2)
    calls = [
        ("ab", "c", [1], [2]),
        ("a", "bc", [1], [2]),
        ("ab", "c", [1, 2], []),
        ("ab", "c", [], [1, 2]),
    ]
    for _ in range(2):
        for call in calls:
            op.call(a, *call)
    assert statics_of(op) == [list(call) for call in calls]


def test_keyword_defaults_fill_static_arguments(build_kernel: Build) -> None:
    op = cpu_ops.CpuOp(
        d.op(d.fresh_name("default"), '(Tensor a, *, int? block_M=None, str dtype="float16") -> ()',
             [d.arg("a"), d.arg("block_M", "int?", "static"), d.arg("dtype", "str", "static")]),
        lambda request: d.variant(static=request["static"], tensors=[d.tensor(0, "a", [d.bind(0)])], sizes=[d.size("N")]),
        lambda request: cpu_ops.entry_for(request), build_kernel(cpu_ops.ADD),
    )  # fmt: skip
    op.call(torch.ones(2))
    op.call(torch.ones(2), block_M=64)
    assert statics_of(op) == [[None, "float16"], [64, "float16"]]


def test_an_optional_tensor_given_or_not(build_kernel: Build) -> None:
    op = static_op(["int"], build_kernel, optional_tensor=True)
    a = torch.ones(4)
    op.call(a, None, 3)
    op.call(a, torch.ones(4), 3)
    op.call(a, None, 3)
    assert statics_of(op) == [[3, False], [3, True]]
    with pytest.raises(ArgumentError, match="argument 'bias': expected dimension 0 to be 4"):
        op.call(a, torch.ones(5), 3)
    with pytest.raises(
        ArgumentTypeError, match="argument 'bias': expected dtype float32, got float64"
    ):
        op.call(a, torch.ones(4, dtype=torch.float64), 3)


def scalar_op(
    build_kernel: Build, integer: str = "int64", real: str = "float32", flag: str = "bool"
) -> cpu_ops.CpuOp:
    """Stores an int, a float and a bool argument into ``out`` (3 doubles)."""
    types = {"int8": "i8", "int32": "i32", "int64": "i64", "uint8": "u8", "uint64": "u64", "bool": "i1",
             "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}  # fmt: skip
    dtypes = [integer, real, flag]
    return cpu_ops.CpuOp(
        d.op(d.fresh_name("scalars"), "(Tensor(a!) out, SymInt i, float f, bool b) -> ()",
             [d.arg("out", mutated=True), d.arg("i", "int", "scalar"), d.arg("f", "float", "scalar"),
              d.arg("b", "bool", "scalar")]),
        lambda _: d.variant(
            tensors=[d.tensor(0, "out", [d.bind(0)], "float64")], sizes=[d.size("N")],
            scalars=[d.scalar(n + 1, name, dtypes[n]) for n, name in enumerate("ifb")]),
        lambda request: cpu_ops.entry_for(
            request, host=d.host(["size:0"], ["const", 1]), tensor_order=[{"arg": 0}],
            launches=[d.launch("kernel_lib.so", "store", 1,
                               [d.p_tensor(0), *(d.p_scalar(n, types[dtypes[n]]) for n in range(3))])]),
        build_kernel(cpu_ops.STORE_SCALARS),
    )  # fmt: skip


def stored(op: cpu_ops.CpuOp, i: int, f: float, b: bool) -> list[float]:
    out = torch.zeros(3, dtype=torch.float64)
    op.call(out, i, f, b)
    return out.tolist()


@pytest.mark.parametrize("real", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("value", [0.1, 0.125, 42.0, -3e38])
def test_float_scalars_reach_a_cpu_kernel_rounded(
    build_kernel: Build, real: str, value: float
) -> None:
    expected = torch.tensor(value, dtype=torch.float64).to(getattr(torch, real)).item()
    assert stored(scalar_op(build_kernel, real=real), 0, value, False)[1] == expected


@pytest.mark.parametrize(
    ("integer", "good", "bad"),
    [
        ("int8", [-128, 127], [-129, 128]), ("int32", [-(2**31), 2**31 - 1], [2**31, -(2**31) - 1]),
        ("int64", [2**31, -1, 2**53], []), ("uint8", [0, 255], [-1, 256]), ("uint64", [0, 2**53], [-1]),
    ],
)  # fmt: skip
def test_integer_scalars_are_range_checked(
    build_kernel: Build, integer: str, good: list[int], bad: list[int]
) -> None:
    op = scalar_op(build_kernel, integer)
    for value in good:
        assert stored(op, value, 0.0, True) == [float(value), 0.0, 1.0]
    for value in bad:
        with pytest.raises(
            ArgumentError, match=rf"argument 'i': expected a value of {integer}, got {value}"
        ):
            stored(op, value, 0.0, True)


def test_torchs_own_parser_keeps_its_words(build_kernel: Build) -> None:
    op = scalar_op(build_kernel)
    with pytest.raises(RuntimeError, match="Expected a value of type 'float'"):
        op.call(torch.zeros(3, dtype=torch.float64), 1, "x", True)
    with pytest.raises(RuntimeError, match="missing value for argument 'b'"):
        op.call(torch.zeros(3, dtype=torch.float64), 1, 1.0)


def test_an_op_without_tensors_takes_a_device(build_kernel: Build) -> None:
    op = cpu_ops.CpuOp(
        d.op(d.fresh_name("make"), "(SymInt n, *, Device? device=None) -> Tensor",
             [d.arg("n", "int", "scalar"), d.arg("device", "device?", "device")], 1),
        lambda _: d.variant(scalars=[d.scalar(0, "n", "int64")], host=d.host(["scalar:0"]),
                            outputs=[{"dtype": "bfloat16", "shape": [0]}]),
        lambda request: cpu_ops.entry_for(request, host=d.host(["scalar:0"]), tensor_order=[{"output": 0}],
                                          outputs=[{"dtype": "bfloat16", "shape": [0]}]),
        b"",
    )  # fmt: skip
    for device in (None, "cpu", torch.device("cpu")):
        out = op.call(5, device=device)
        assert (out.shape, out.dtype, out.device.type) == ((5,), torch.bfloat16, "cpu")
    with pytest.raises(
        ArgumentError,
        match="argument 'device': expected a CPU, CUDA or meta device, got device type",
    ):
        op.call(5, device="xpu")
    with pytest.raises(ArgumentError, match="an output would have an impossible extent of -1"):
        op.call(-1)


def test_several_outputs_in_the_order_of_the_schema(build_kernel: Build) -> None:
    outputs = [
        {"dtype": "float32", "shape": [0]},
        {"dtype": "int64", "shape": [1, 0]},
        {"dtype": "bool", "shape": []},
    ]
    description = d.op(d.fresh_name("three"), "(Tensor a) -> (Tensor, Tensor)", [d.arg("a")])
    description["returns"] = ["alloc:2", "alloc:1"]
    op = cpu_ops.CpuOp(
        description,
        lambda _: d.variant(tensors=[d.tensor(0, "a", [d.bind(0)])], sizes=[d.size("N")]),
        lambda request: cpu_ops.entry_for(request, host=d.host(["size:0"], ["const", 3]), outputs=outputs), b"",
    )  # fmt: skip
    first, second = op.call(torch.empty(7))
    assert (first.shape, first.dtype, second.shape, second.dtype) == (
        (),
        torch.bool,
        (3, 7),
        torch.int64,
    )
    assert second.is_contiguous()


def test_tensors_of_mixed_or_foreign_devices_are_named(build_kernel: Build) -> None:
    op = cpu_ops.add_op(build_kernel)
    here, there = torch.ones(2), torch.ones(2, device="meta")
    # The dispatcher hands CPU tensors to a CUDA kernel where they are mixed; here meta tensors to the CPU kernel.
    on_cpu = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    with pytest.raises(
        ArgumentError, match="argument 'b': expected a CPU or CUDA tensor, got one on meta"
    ):
        op.call.redispatch(on_cpu, here, there)
    with pytest.raises(
        ArgumentError, match="argument 'a': expected a CPU or CUDA tensor, got one on meta"
    ):
        op.call.redispatch(on_cpu, there, here)


BROKEN = [
    ("{", "not valid JSON at byte 1"), ("[]", "expected an object around it"), ('{"format": 2}', "format is not 1"),
    ('{"format": 1, "format": 1}', "duplicate key"), ('{"format": 1e}', "expected a digit"),
    ("\ufeff{}", "not valid JSON"), ('{"a": "\x01"}', "control character"), ("[" * 100, "nested too deeply"),
    ('{"format": 1, "namespace": 5}', "namespace: expected string, got integer"),
    ('{"a": 99999999999999999999}', "integer outside 64 bits"), ('{"a": "\\ud800"}', "lone surrogate"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BROKEN)
def test_malformed_descriptions_are_refused(text: str, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        runtime.create_op(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"host": d.host(["size:1"])}, "input does not exist"),
        ({"host": d.host(["size:0"], ["add", 0, 1])}, "is outside"),
        ({"host": d.host(["size:0"], ["pow", 0, 0])}, "unknown host program operation 'pow'"),
        ({"outputs": [{"dtype": "float32", "shape": [3]}]}, "is outside"),
        ({"tensors": [d.tensor(1, "a", [d.bind(0)])]}, "is outside"),
        ({"tensors": [d.tensor(0, "a", [d.bind(1)])]}, "is outside"),
        ({"tensors": [d.tensor(0, "a", [d.bind(0)], "float99")]}, "no dtype for float99"),
        ({"static": [1]}, "wrong number of static values"),
    ],
)
def test_malformed_variants_are_refused(build_kernel: Build, change: d.Json, message: str) -> None:
    handle = runtime.create_op(d.op(d.fresh_name("bad"), "(Tensor a) -> ()", [d.arg("a")]))
    fields: d.Json = {"tensors": [d.tensor(0, "a", [d.bind(0)])], "sizes": [d.size("N")]}
    with pytest.raises((InternalError, ArgumentTypeError), match=message):
        runtime.add_variant(handle, d.variant(**(fields | change)))


def test_names_that_are_taken_and_schemas_that_are_wrong() -> None:
    name = d.fresh_name("taken")
    runtime.create_op(d.op(name, "(Tensor a) -> ()", [d.arg("a")]))
    with pytest.raises(ArgumentError, match=f"torch refused to define tileops::{name}"):
        runtime.create_op(d.op(name, "(Tensor a) -> ()", [d.arg("a")]))
    with pytest.raises(ArgumentError, match="torch refused to define"):
        runtime.create_op(d.op(d.fresh_name("odd"), "(Tensr a) -> ()", [d.arg("a")]))


def test_size_arithmetic_that_overflows_or_divides_by_zero(build_kernel: Build) -> None:
    def op(*code: list[Any]) -> Any:
        made = cpu_ops.CpuOp(
            d.op(d.fresh_name("host"), "(Tensor a) -> ()", [d.arg("a")]),
            lambda _: d.variant(tensors=[d.tensor(0, "a", [d.bind(0)])], sizes=[d.size("N")]),
            lambda request: cpu_ops.entry_for(request, host=d.host(["size:0"], *code)), b"",
        )  # fmt: skip
        return made.call

    with pytest.raises(ArgumentError, match="overflow 64-bit arithmetic"):
        op(["const", 2**62], ["mul", 0, 1])(torch.empty(2))
    with pytest.raises(ArgumentError, match="divides by zero"):
        op(["const", 3], ["floordiv", 1, 0])(torch.empty(0))
