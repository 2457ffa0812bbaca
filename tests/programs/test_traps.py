"""The silent traps on the CPU path, under the interpreter, and compiled for the GPUs of every capability."""

from __future__ import annotations

import pytest
import torch

import tileops
from tests.programs.constructs import Construct
from tests.programs.traps import TRAPS, beyond_tf32, float32_product
from tileops.codegen.kernel_code import Specialization
from tileops.codegen.triton import generate
from tileops.compiler import compile_kernel
from tileops.target import parse_target
from tileops.testing.interpreter import interpret

CAPABILITIES = ("sm_80", "sm_90", "sm_100", "sm_120")


@pytest.mark.parametrize("trap", TRAPS, ids=lambda t: t.id)
def test_cpu(trap: Construct) -> None:
    inputs = trap.inputs()
    trap.check(inputs, tileops.jit(trap.func)(*inputs))


@pytest.mark.parametrize("trap", TRAPS, ids=lambda t: t.id)
def test_interpreter(trap: Construct) -> None:
    inputs = trap.inputs()
    program = tileops.jit(trap.func).get_tir(*inputs)
    code = generate(program, parse_target("cuda:sm_90"), Specialization())
    trap.check(inputs, interpret(code, program, *inputs)[0])


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("trap", TRAPS, ids=lambda t: t.id)
def test_compiles(trap: Construct, capability: str) -> None:
    if "fp8" in trap.id and capability == "sm_80":
        return  # the format exists from sm_89 on
    target = parse_target(f"cuda:{capability}")
    program = tileops.jit(trap.func).get_tir(*trap.inputs())
    compile_kernel(generate(program, target, Specialization(fast=True)), target, {})


def test_a_float32_product_is_full_on_the_cpu() -> None:
    a, b = beyond_tf32()
    assert torch.equal(tileops.jit(float32_product)(a, b), a)


def test_a_float32_product_is_tf32_on_cuda_unless_told() -> None:
    target = parse_target("cuda:sm_90")
    for configs, wanted in (({}, "tf32"), ({"tl.gemm_f32_precision": "ieee"}, "ieee")):
        program = tileops.jit(float32_product, pass_configs=configs).get_tir(*beyond_tf32())
        code = generate(program, target, Specialization())
        assert f'input_precision="{wanted}"' in code.source
