"""Programs with extents of zero compile for every target."""

from __future__ import annotations

import pytest

import tileops
from tests.kit.interpreted import CUDA
from tests.programs.construct import Construct
from tests.programs.empty import EMPTY
from tileops.codegen.kernel_code import Specialization
from tileops.codegen.triton import generate
from tileops.compiler import compile_kernel
from tileops.target import parse_target


@pytest.mark.parametrize("target", CUDA)
@pytest.mark.parametrize("case", EMPTY, ids=lambda c: c.id)
def test_compiles(case: Construct, target: str) -> None:
    program = tileops.jit(case.func).get_tir(*case.inputs())
    code = generate(program, parse_target(target), Specialization())
    compile_kernel(code, parse_target(target), {})
