"""What a call costs: no growth over many calls, nanoseconds by part, the ratio to torch.add."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.kit import descriptions as d
from tests.runtime import cpu_ops
from tests.runtime.test_arguments import static_op
from tileops.errors import ArgumentError

Build = Callable[..., Path]


def resident_kib() -> int:
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0])


def growth_kib(call: Callable[[], Any], rounds: int = 100_000) -> int:
    """The least growth of three times ``rounds`` calls: other threads of the process grow it too."""
    for _ in range(5_000):
        call()
    found = []
    for _ in range(3):
        gc.collect()
        start = resident_kib()
        for _ in range(rounds):
            call()
        gc.collect()
        found.append(resident_kib() - start)
        if found[-1] < ALLOWED_KIB:
            break
    return min(found)


# A leak of one word a call would be 800 KB; a tensor, a box or a string is more.
ALLOWED_KIB = 500


def test_calls_leak_nothing(build_kernel: Build) -> None:
    op = cpu_ops.add_op(build_kernel)
    a, b = torch.randn(16), torch.randn(16)
    assert growth_kib(lambda: op.call(a, b)) < ALLOWED_KIB


def test_boxed_arguments_leak_nothing(build_kernel: Build) -> None:
    op = static_op(["int?", "str", "int[]?", "float?"], build_kernel, optional_tensor=True)
    a = torch.randn(16)
    text = "a string that is longer than any small-string buffer"
    assert growth_kib(lambda: op.call(a, a, 3, text, [1, 2, 3], 0.5), 30_000) < ALLOWED_KIB


def test_failing_calls_leak_nothing(build_kernel: Build) -> None:
    op = cpu_ops.add_op(build_kernel)
    a, b, big = torch.randn(16), torch.randn(17), torch.randn(1000)

    def fail(*args: Any) -> None:
        with pytest.raises(ArgumentError):
            op.call(*args)

    op.call(a, a)
    assert growth_kib(lambda: fail(a, b), 20_000) < ALLOWED_KIB
    # A tensor that a failed call kept would be missed by the allocator 1,000 times over.
    assert growth_kib(lambda: fail(big.clone(), b), 5_000) < ALLOWED_KIB


def effect_op(build_kernel: Build, tensors: int, outputs: int, *, launches: bool) -> Any:
    """An op of ``tensors`` inputs and ``outputs`` outputs; with ``launches``, of one small launch."""
    names = [f"t{i}" for i in range(tensors)]
    schema = f"({', '.join(f'Tensor {n}' for n in names)}) -> {'Tensor' if outputs else '()'}"
    out = [{"dtype": "float32", "shape": [0]}] * outputs
    params = [d.p_tensor(0), d.p_tensor(1), d.p_tensor(2), d.p_slot(0, "i64")]
    op = cpu_ops.CpuOp(
        d.op(d.fresh_name("part"), schema, [d.arg(n) for n in names], outputs),
        lambda _: d.variant(tensors=[d.tensor(i, n, [d.bind(0)]) for i, n in enumerate(names)],
                            sizes=[d.size("N")], host=d.host(["size:0"]), outputs=out),
        lambda request: cpu_ops.entry_for(
            request, host=d.host(["size:0"], *cpu_ops.BLOCKS_OF_N), outputs=out,
            tensor_order=[{"arg": i} for i in range(tensors)] + [{"output": 0}] * outputs,
            launches=[d.launch("kernel_lib.so", "add", 4, params)] if launches else []),
        build_kernel(cpu_ops.ADD),
    )  # fmt: skip
    return op.call


def interleaved(
    calls: dict[str, Callable[[], Any]], rounds: int = 301, loop: int = 200
) -> dict[str, list[float]]:
    """Nanoseconds a call of each, measured in turns so that all meet the same disturbances."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, call in calls.items():
                start = time.perf_counter_ns()
                for _ in range(loop):
                    call()
                samples[name].append((time.perf_counter_ns() - start) / loop)
    finally:
        gc.enable()
    return samples


def test_cost_of_a_call_relative_to_torch_add(build_kernel: Build) -> None:
    a, b = torch.randn(16), torch.randn(16)
    one = effect_op(build_kernel, 1, 0, launches=False)
    two = effect_op(build_kernel, 2, 0, launches=False)
    allocating = effect_op(build_kernel, 2, 1, launches=False)
    whole = effect_op(build_kernel, 2, 1, launches=True)
    add = torch.add
    samples = interleaved(
        {
            "nothing": lambda: None, "torch.add": lambda: add(a, b), "one": lambda: one(a), "two": lambda: two(a, b),
            "allocating": lambda: allocating(a, b), "whole": lambda: whole(a, b),
        }
    )  # fmt: skip
    # The least of many short samples: other processes on the machine only add to the rest.
    ns = {name: min(values) for name, values in samples.items()}
    empty = ns.pop("nothing")
    ratio = (ns["whole"] - empty) / (ns["torch.add"] - empty)
    print(
        f"\nns a call: op of one tensor {ns['one'] - empty:.0f}, second tensor and its checks {ns['two'] - ns['one']:.0f}, "
        f"output {ns['allocating'] - ns['two']:.0f}, launch of one block {ns['whole'] - ns['allocating']:.0f}; "
        f"whole {ns['whole'] - empty:.0f}, torch.add {ns['torch.add'] - empty:.0f}; ratio {ratio:.2f}"
    )
    # The aim is 1.45; what is asserted leaves room for a disturbed machine and still catches a call path that doubled.
    assert ratio < 1.8
