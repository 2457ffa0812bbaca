"""The host time of calls: against torch.add, by part, with gradients registered, from C++."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.caller import Caller
from benchmarks.caller import build as build_caller
from benchmarks.harness import Result, Timing, cost_result, time_host
from benchmarks.programs import (
    bench_add,
    bench_add_grad,
    bench_described,
    bench_pointers,
    bench_wide,
)
from tileops import runtime


def device_here() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def call_results() -> Iterator[Result]:
    """A call with two inputs and one new output, against ``torch.add`` on the same tensors."""
    device = device_here()
    x, y = (torch.randn(256, device=device) for _ in range(2))
    if not torch.equal(bench_add(x, y), x + y):
        raise AssertionError("bench_add is wrong")
    op, aten = torch.ops.tileops.bench_add.default, torch.ops.aten.add.Tensor
    below = op._op  # what both the program and torch's Python class of ops call
    timings = time_host(
        {
            "tileops": lambda: bench_add(x, y),
            "op": lambda: op(x, y),
            "torch.add": lambda: torch.add(x, y),
            "torch.ops.aten.add.Tensor": lambda: aten(x, y),
            "below torch's Python class": lambda: below(x, y),
        }
    )
    yield cost_result(
        f"host time of a call ({device})",
        timings,
        "tileops",
        "torch.add",
        target=1.6,
        extra={"ns": breakdown_ns(timings, lambda: below(x, y))},
    )
    yield cost_result(f"host time of the op ({device})", timings, "op", "torch.add", target=1.45)
    yield cost_result(
        f"the op, torch's add called the same way ({device})", timings, "op", "torch.ops.aten.add.Tensor"
    )  # fmt: skip


def breakdown_ns(timings: dict[str, Timing], run: Callable[[], Any]) -> dict[str, float]:
    """One call of the program by part: what the clock of stages counts, and what lies around it.

    The parts add up to the time of a call while they were counted; the two lines after them are for
    comparison.
    """
    stages = stage_ns(run)
    ns = {name: t.median_us * 1e3 for name, t in timings.items()}
    below = ns["below torch's Python class"]
    return {
        "the program object": ns["tileops"] - below,
        "torch: arguments from Python, boxing, dispatcher, result": stages["around"],
        "unboxing: arguments, and each tensor's facts": stages["read"],
        "checks and look-up": stages["look up"],
        "allocation of the output (torch's allocator)": stages["allocate"],
        "stream and parameters": stages["launch"] - stages["kernel"],
        "driver's launch, or the kernel itself on a CPU": stages["kernel"],
        "release of the arguments": stages["free"],
        "for comparison: torch's Python class around the op": ns["op"] - below,
        "for comparison: torch.add": ns["torch.add"],
    }


def stage_ns(run: Callable[[], Any], rounds: int = 101, calls: int = 50) -> dict[str, float]:
    """Nanoseconds a call by stage and ``around`` them all, the median over rounds.

    What lies around is a round's time without the clock less the stages of the next one with it: a
    machine that slows down for a while slows both.
    """
    samples: dict[str, list[float]] = {}
    synchronize = torch.cuda.synchronize if torch.cuda.is_available() else (lambda: None)
    try:
        for _ in range(rounds):
            begin = time.perf_counter()
            for _ in range(calls):
                run()
            whole = (time.perf_counter() - begin) / calls * 1e6
            synchronize()
            runtime.set_stage_clock(True)
            for _ in range(calls):
                run()
            stages = {name: total / calls * 1e-3 for name, total in runtime.stage_totals().items()}
            runtime.set_stage_clock(False)
            synchronize()
            stages["around"] = whole - sum(v for name, v in stages.items() if name != "kernel")
            for name, us in stages.items():
                samples.setdefault(name, []).append(us)
    finally:
        runtime.set_stage_clock(False)
    return {name: Timing.of(got).median_us * 1e3 for name, got in samples.items()}


def wide_results() -> Iterator[Result]:
    """A call with eight tensors and four scalars: measured and reported, no ratio is asked of it."""
    device = device_here()
    tensors = [torch.randn(256, device=device) for _ in range(7)]
    scalars = (0.5, 1.0, 2.0, 4.0)
    expected = sum(t * f for t, f in zip(tensors, (*scalars, 1.0, 1.0, 1.0), strict=True))
    # Seven products and six sums of numbers of a few units, each rounded to float32.
    torch.testing.assert_close(bench_wide(*tensors, *scalars), expected, rtol=0, atol=13 * 2**-20)
    op = torch.ops.tileops.bench_wide.default
    timings = time_host(
        {
            "op": lambda: op(*tensors, *scalars),
            "tileops": lambda: bench_wide(*tensors, *scalars),
            "torch.add": lambda: torch.add(tensors[0], tensors[1]),
        }
    )
    for candidate, what in (("op", "the op"), ("tileops", "a call")):
        yield cost_result(
            f"{what}, 8 tensors and 4 scalars ({device})", timings, candidate, "torch.add"
        )


def descriptor_results() -> Iterator[Result]:
    """A call whose kernel takes four tensor maps, against the same program with pointers alone.

    Nothing where kernels take none: other cards than Hopper.
    """
    if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9:
        return
    a, b, c = (torch.randn(64, 64, device="cuda", dtype=torch.float16) for _ in range(3))
    # Float32 sums, rounded once: the results differ by one unit at most.
    torch.testing.assert_close(
        bench_described(a, b, c), bench_pointers(a, b, c), rtol=2**-10, atol=2**-10
    )
    timings = time_host(
        {
            "four tensor maps": lambda: bench_described(a, b, c),
            "pointers": lambda: bench_pointers(a, b, c),
        }
    )
    yield cost_result(
        "host time of a call with four tensor maps", timings, "four tensor maps", "pointers",
        target=1.25,
    )  # fmt: skip


def gradient_results() -> Iterator[Result]:
    """Calls that need no gradient, of a program that has one, against an op that has none."""
    device = device_here()
    x, y = (torch.randn(256, device=device) for _ in range(2))
    weight = y.clone().requires_grad_()
    plain, op = torch.ops.tileops.bench_add.default, torch.ops.tileops.bench_add_grad.default
    (grad,) = torch.autograd.grad(bench_add_grad(x, weight).sum(), weight)
    if not torch.equal(grad, torch.ones_like(y)) or not torch.equal(plain(x, y), op(x, y)):
        raise AssertionError("bench_add_grad is wrong")
    cases = {
        "no input requires grad": "function of a program with a gradient",
        "no_grad": "function under no_grad, an input requires grad",
        "inference_mode": "op with a gradient in inference_mode",
    }
    timings = time_host(
        {
            "op without a gradient": lambda: plain(x, y),
            "no input requires grad": lambda: bench_add_grad(x, y),
            "no_grad": lambda: bench_add_grad(x, weight),
            "inference_mode": lambda: op(x, y),
        },
        contexts={"no_grad": torch.no_grad, "inference_mode": torch.inference_mode},
    )
    for name, what in cases.items():
        yield cost_result(
            f"{what} ({device})", timings, name, "op without a gradient", target=1.3
        )  # fmt: skip


def resident_kib() -> int:
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0])


def caller_results() -> Iterator[Result]:
    """Calls from C++ by name through torch's dispatcher, and what a million of them leave behind."""
    device = device_here()
    with tempfile.TemporaryDirectory() as folder:
        caller = Caller(build_caller(Path(folder)))
    x = torch.randn(256, device=device)
    bench_add(x, x)
    samples: dict[str, list[float]] = {"op": [], "torch.mul": []}
    for _ in range(21):
        samples["op"].append(caller.ns("tileops::bench_add", device, nones=1) * 1e-3)
        samples["torch.mul"].append(caller.ns("aten::mul", device, overload="Tensor") * 1e-3)
    timings = {name: Timing.of(got) for name, got in samples.items()}
    before = resident_kib()
    caller.ns("tileops::bench_add", device, nones=1, count=1_000_000)
    grown = resident_kib() - before
    yield cost_result(
        f"host time of the op from C++, name looked up each time ({device})",
        timings,
        "op",
        "torch.mul",
        extra={"KiB grown over a million calls": grown},
    )
