"""Runs a small program of one test: traced, generated, compiled for sm_90, interpreted."""

from __future__ import annotations

from typing import Any

import torch

from tileops.codegen.kernel_code import Specialization
from tileops.codegen.triton import generate
from tileops.compiler import compile_kernel
from tileops.frontend.trace import trace
from tileops.target import parse_target
from tileops.testing.interpreter import interpret

TARGET = parse_target("cuda:sm_90")
CUDA = ("cuda:sm_80", "cuda:sm_90", "cuda:sm_100", "cuda:sm_120")


def run(func: Any, *args: Any, compiles: bool = True, **static: Any) -> tuple[torch.Tensor, ...]:
    program = trace(func, name=func.__name__, static=static, consts={})
    code = generate(program, TARGET, Specialization())
    if compiles:
        compile_kernel(code, TARGET, {})
    return interpret(code, program, *args)


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape) + sum(shape)))
