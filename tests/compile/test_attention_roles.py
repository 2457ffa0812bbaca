"""Attention in roles: masks behind products, loops in which two products run together, quotients."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tileops.language
from benchmarks.pair import Pair, all_pairs
from tests.kit.schedules import HOPPER, Scheduled, schedules_of
from tileops.codegen import gpu
from tileops.codegen.gluon import module
from tileops.codegen.kernel_code import KernelCode, Specialization
from tileops.compiler import compile_kernel
from tileops.ir.schedule import Issue, Settle
from tileops.ir.stmt import For
from tileops.ir.walk import walk

PAIRS: dict[str, Pair] = {p.name: p for _, p in all_pairs()}
CAUSAL = "attention bf16 causal 2x6144x32x128"
FORWARD = [n for n in PAIRS if n.startswith("attention") and "backward" not in n]


def scheduled(name: str) -> Scheduled:
    (found,) = schedules_of(PAIRS[name].build(tileops.language).program, name)
    return found


def code_of(name: str) -> KernelCode:
    program = PAIRS[name].build(tileops.language).program
    return gpu.generate(program, HOPPER, Specialization(fast=True))


@pytest.mark.parametrize("name", FORWARD)
def test_every_forward_program_runs_in_two_groups(name: str) -> None:
    (launch,) = code_of(name).launches
    assert launch.language == "gluon"
    assert "math 2 x 4 warps" in launch.notes[0]


@pytest.mark.parametrize(
    "name",
    [CAUSAL, "attention sinks window bf16 gqa 2x8192x64x64", "attention bf16 4x4096x32x96",
     "attention bf16 causal 1x8192x64x192-128", "attention bf16 causal 2x4096x16x256"],
)  # fmt: skip
def test_products_stay_asynchronous_and_nothing_spills(name: str) -> None:
    """Registers suffice, and ptxas waits for no product that the text does not wait for."""
    artifact = compile_kernel(code_of(name), HOPPER, {})
    assert artifact.launches[0].spills == 0
    lines = artifact.files["launch0.ptx"].decode().splitlines()
    waits = [x for x in lines if "wgmma.wait_group" in x]
    starts = [x for x in lines if "wgmma.commit_group" in x]
    assert 0 < len(waits) <= len(starts)


def test_a_causal_loop_has_its_mask_in_the_last_iteration_alone() -> None:
    own = scheduled(CAUSAL)
    (loop,) = [s for s in own.schedule.math if isinstance(s, For)]
    text = own.text()
    masks = re.findall(r"select\(\(j\.\d+ <= .*", text)
    assert len(masks) == 1
    assert "+ -1000000.0f32)" in masks[0]
    assert text.index(masks[0]) > text.index(f"serial {loop.var}")
    # Both products of an iteration start before a wait, the first one that of the next iteration.
    kinds = [type(s) for s in loop.body if isinstance(s, (Issue, Settle))]
    assert kinds == [Issue, Issue, Settle]


@pytest.mark.parametrize(
    ("name", "loops"),
    [
        # A window of 128 keys hides something in every iteration, one of 4096 not in the middle.
        ("attention sinks window bf16 gqa 2x8192x64x64", 1),
        ("attention window bf16 gqa 1x16384x32x128", 2),
        ("attention varlen bf16 gqa 16384x32x128", 1),
    ],
)
def test_parts_of_a_loop_that_never_run_are_left_out(name: str, loops: int) -> None:
    assert sum(isinstance(s, For) for s in walk(scheduled(name).schedule.math)) == loops


# -- quotients -----------------------------------------------------------------------------------
class _Numpy:
    """What the text of a quotient uses of Gluon's language, in float32 on the CPU."""

    abs = staticmethod(np.abs)
    where = staticmethod(np.where)

    @staticmethod
    def div_rn(a: Any, b: Any) -> Any:
        return np.float32(a) / b

    @staticmethod
    def fma(a: Any, b: Any, c: Any) -> Any:
        # The product is exact; of the sum 64 bits are kept, which rounds it twice now and then.
        wide = np.longdouble
        return (wide(a) * wide(b) + wide(c)).astype(np.float32)


def _quotient() -> Callable[[Any, Any], Any]:
    text = module._QUOTIENT.replace("@gluon.jit\n", "")
    text = re.sub(r"(?<![\w.])(\d+\.\d+(e-?\d+)?)", r"f32(\1)", text)
    scope: dict[str, Any] = {"gl": _Numpy, "f32": np.float32}
    exec(text, scope)
    found: Callable[[Any, Any], Any] = scope["_divided"]
    return found


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_a_shared_divisor_gives_correctly_rounded_quotients() -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 23, (2, 1 << 20), dtype=np.uint32)
    exponents = rng.integers(67, 187, (2, 1 << 20), dtype=np.uint32) << np.uint32(23)
    a, b = (bits | exponents).view(np.float32)
    b[: 1 << 18] = np.nextafter(np.float32(2), np.float32(1))  # its inverse is hard to round
    quotient = _quotient()
    assert np.array_equal(quotient(a, b), a / b)
    assert np.array_equal(quotient(-a, b), -a / b)


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_quotients_of_rare_operands() -> None:
    most, least = 2.0**127, 2.0**-126
    rare = [0.0, -0.0, np.inf, -np.inf, np.nan, most, -most, least, 1.0, 3.0, 2.0**90, 2.0**-90]
    a, b = (x.ravel() for x in np.meshgrid(*[np.array(rare, np.float32)] * 2))
    got, expected = _quotient()(a, b), a / b
    small = (np.abs(a) < 2.0**-100) | (np.abs(expected) < 2.0**-100)
    for exact in (~small, small & (a == 0)):
        assert np.array_equal(got[exact], expected[exact], equal_nan=True)
        signed = exact & ~np.isnan(expected)
        assert np.array_equal(np.signbit(got[signed]), np.signbit(expected[signed]))
    assert np.array_equal(
        got[~np.isfinite(expected)], expected[~np.isfinite(expected)], equal_nan=True
    )
    both = small & np.isfinite(expected)
    assert np.all(np.abs(got[both] - expected[both]) <= np.spacing(np.abs(expected[both])))
