"""What the math role of a schedule computes, run on the CPU path in one role."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from benchmarks.pair import Pair, all_pairs
from tests.kit.schedules import HOPPER, schedules_of
from tests.kit.sequential import sequential
from tileops.frontend.trace import PrimFunc
from tileops.ir.schedule import Issue
from tileops.ir.walk import walk
from tileops.passes.context import Context
from tileops.passes.pipeline import TRITON, run

# The pairs with sizes at which every block has something out of bounds, or loops have few trips.
PAIRS: dict[str, dict[str, Any]] = {
    "matmul fp8 8192": {"M": 200, "N": 272, "K": 416, "out_dtype": "bfloat16"},
    "matmul fp8 block scales 4096x4096x7168": {"M": 200, "N": 256, "K": 400, "group": 128},
    "matmul int8 8192": {"M": 200, "N": 272, "K": 416},
    "decode mla bf16 64x8192": {"B": 2, "S": 160, "H": 128, "D": 512, "R": 64},
    "retention bf16 4x4096x16x256-512": {"B": 1, "S": 192, "H": 2, "D": 256, "DV": 128},
}
# Loops of one trip and of three: a tile is left where they are taken in pairs.
ODD = [("matmul fp8 8192", {"K": 128}), ("matmul fp8 8192", {"K": 384})]
FP8, N, K = "float8_e4m3fn", 256, 256


def in_one_role(prim: PrimFunc, name: str) -> tuple[Any, Any]:
    """The schedule of a program's one launch, and the kernel of what its math role does."""
    (scheduled,) = schedules_of(prim.program, name)
    program = sequential(run(TRITON, prim.program, Context(HOPPER)), scheduled)
    changed = dataclasses.replace(prim, program=program)
    return scheduled.schedule, tileops.compile(changed, target="cpu")


@pytest.mark.parametrize(("name", "changes"), [*((name, {}) for name in PAIRS), *ODD])
def test_pairs(name: str, changes: dict[str, Any]) -> None:
    pair: Pair = next(p for _, p in all_pairs() if p.name == name)
    sizes = {**PAIRS[name], **changes}
    _, kernel = in_one_role(pair.program(T, **sizes, **pair.tiles), name)
    torch.manual_seed(0)
    arguments = pair.inputs(**sizes)
    kernel(*arguments)
    assert pair.wrong(arguments, pair.reference(*arguments, **sizes)) is None


def epilogue(what: str) -> Any:
    """A product of fp8 into 256 columns, and what follows it."""

    @T.prim_func
    def main(
        A: T.Tensor((128, K), FP8),
        B: T.Tensor((N, K), FP8),
        bias: T.Tensor((128,), T.float32),
        C: T.Tensor((128, N), T.float32),
    ):
        with T.Kernel(1, threads=256) as _:
            A_s = T.alloc_shared((128, 64), FP8)
            B_s = T.alloc_shared((N, 64), FP8)
            acc = T.alloc_fragment((128, N), T.float32)
            half = T.alloc_fragment((128, N), T.float16)
            top = T.alloc_fragment((128,), T.float32)
            T.fill(acc, 1.0)
            for k in T.Pipelined(K // 64, num_stages=2):
                T.copy(A[0, k * 64], A_s)
                T.copy(B[0, k * 64], B_s)
                T.gemm(A_s, B_s, acc, transpose_B=True)
            if what == "nest":
                for i, j in T.Parallel(128, N):
                    acc[i, j] = T.max(acc[i, j] + bias[i], 0.0) + T.cast(j, T.float32)
            if what == "row":
                T.reduce_max(acc, top, dim=1)
                for i, j in T.Parallel(128, N):
                    acc[i, j] -= top[i]
            if what == "tile":
                T.copy(acc, half)
                T.copy(half, acc)
            T.copy(acc, C)

    return main


def expected(what: str, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    acc = a.float() @ b.float().T + 1
    if what == "nest":
        return (acc + bias[:, None]).relu() + torch.arange(N)
    return acc


def whole_numbers(*shape: int) -> torch.Tensor:
    return torch.randint(-4, 5, shape).to(torch.float8_e4m3fn)


@pytest.mark.parametrize("what", ["nothing", "nest"])
def test_an_accumulator_in_two_parts(what: str) -> None:
    """Whole numbers below 2^13: every sum is exact."""
    schedule, kernel = in_one_role(epilogue(what), f"epilogue_{what}")
    widths = {
        (s.c.static_extents() or (0,))[-1] for s in walk(schedule.math) if isinstance(s, Issue)
    }
    assert widths == {128}
    torch.manual_seed(0)
    a, b, bias, c = (
        whole_numbers(128, K),
        whole_numbers(N, K),
        torch.randn(128),
        torch.empty(128, N),
    )
    bias = bias.round()
    kernel(a, b, bias, c)
    assert torch.equal(c, expected(what, a, b, bias))


@pytest.mark.parametrize("what", ["row", "tile"])
def test_an_accumulator_that_is_needed_whole_has_no_schedule(what: str) -> None:
    assert not list(schedules_of(epilogue(what).program, f"epilogue_{what}"))


def wide(what: str) -> Any:
    """Weighted sums of 512 columns for 64 rows, and what else is done with a row.

    Three products in the loop: none of them runs an iteration late.
    """

    @T.prim_func
    def main(
        A: T.Tensor((64, 64), T.float16),
        B: T.Tensor((128, 64), T.float16),
        V: T.Tensor((128, 512), T.float16),
        S: T.Tensor((64,), T.float32),
        C: T.Tensor((64, 512), T.float32),
    ):
        with T.Kernel(1, threads=256) as _:
            A_s = T.alloc_shared((64, 64), T.float16)
            B_s = T.alloc_shared((64, 64), T.float16)
            V_s = T.alloc_shared((64, 512), T.float16)
            products = T.alloc_fragment((64, 64), T.float32)
            weights = T.alloc_fragment((64, 64), T.float16)
            top = T.alloc_fragment((64,), T.float32)
            acc = T.alloc_fragment((64, 512), T.float32)
            T.copy(A, A_s)
            T.clear(acc)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(B[k * 64, 0], B_s)
                T.copy(V[k * 64, 0], V_s)
                T.clear(products)
                T.gemm(A_s, B_s, products, transpose_B=True)
                T.gemm(A_s, B_s, products, transpose_B=True)
                T.reduce_max(products, top, dim=1)
                for i, j in T.Parallel(64, 64):
                    weights[i, j] = products[i, j] - top[i]
                T.gemm(weights, V_s, acc)
            for i, j in T.Parallel(64, 512):
                acc[i, j] = acc[i, j] * 2 + top[i] + T.cast(j, T.float32)
            if what == "writes rows":
                T.copy(top, S)
            if what == "adds rows":
                for i in T.Parallel(64):
                    T.atomic_add(S[i], top[i])
            T.copy(acc, C)

    return main


@pytest.mark.parametrize(
    ("what", "groups", "across"), [("nothing", 2, 1), ("writes rows", 1, 2), ("adds rows", 1, 2)]
)
def test_a_result_too_wide_for_four_warps(what: str, groups: int, across: int) -> None:
    """Two groups have half of the columns each, unless both would write the same."""
    schedule, kernel = in_one_role(wide(what), f"wide_{what.replace(' ', '_')}")
    assert (schedule.groups, schedule.across, schedule.by_columns) == (groups, across, groups == 2)
    torch.manual_seed(0)
    a, b, v = (torch.randint(-2, 3, s).half() for s in ((64, 64), (128, 64), (128, 512)))
    s, c = torch.zeros(64), torch.empty(64, 512)
    kernel(a, b, v, s, c)
    products = 2 * (a.float() @ b.float().T).view(64, 2, 64)
    top = products.amax(-1)
    weights = (products - top[..., None]).half().float().view(64, 128)
    assert torch.equal(c, weights @ v.float() * 2 + top[:, 1:] + torch.arange(512))
    assert torch.equal(s, torch.zeros(64) if what == "nothing" else top[:, 1])
