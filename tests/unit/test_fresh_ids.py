"""Passes that make buffers and variables never give two of them one id."""

from __future__ import annotations

import pytest
import torch

import tileops
import tileops.language as T
from tileops import option
from tileops.ir.program import STATUS_ID, Program
from tileops.ir.stmt import Alloc, Bind, For, Parallel, View
from tileops.ir.walk import walk
from tileops.jit.compiling import checked
from tileops.passes.context import Context
from tileops.passes.pipeline import TRITON, run
from tileops.target import parse_target


def everything(A, B, I):
    """Checked indices, a gemm in parts, 8-bit floats, packed integers, and a loop that is left."""
    A: T.Tensor((32, 96), T.float8_e4m3fn)
    B: T.Tensor((96, 32), T.int4)
    I: T.Tensor((32,), T.int32)
    C = T.empty((32, 32), T.float32)
    with T.Kernel(1, threads=128):
        a = T.alloc_shared((32, 96), T.float8_e4m3fn)
        b = T.alloc_shared((96, 32), T.float8_e4m3fn)
        rows = T.alloc_shared((32,), T.int32)
        c = T.alloc_fragment((32, 32), T.float32)
        table = T.alloc_shared((32, 32), T.float32)
        T.copy(A, a)
        T.copy(B, b)
        T.copy(I, rows)
        T.gemm(a, b, c, clear_accum=True)
        T.copy(c, table)
        for i, j in T.Parallel(32, 32):
            c[i, j] += table[rows[i], j]
        for k in T.serial(32):
            if rows[k] > 7:
                break
            c[k, 0] = 1.0
        T.copy(c, C)
    return C


def made_twice(program: Program) -> list[str]:
    """Names of what shares its id with something else that is defined in the program."""
    owners: dict[int, set[tuple[str, str]]] = {}
    for buffer in (*(p.buffer for p in program.tensors()), *program.workspaces):
        owners.setdefault(buffer.id, set()).add(("buffer", buffer.name))
    for stmt in walk(program.launches):
        match stmt:
            case Alloc(buffer=b) | View(buffer=b):
                owners.setdefault(b.id, set()).add(("buffer", b.name))
            case Parallel(vars=vars_):
                for v in vars_:
                    owners.setdefault(v.id, set()).add(("variable", v.name))
            case For(var=v) | Bind(var=v):
                owners.setdefault(v.id, set()).add(("variable", v.name))
    return [str(sorted(names)) for names in owners.values() if len(names) > 1]


@pytest.mark.parametrize("name", ["cuda:sm_80", "cuda:sm_90"])
def test_no_id_is_given_twice(name: str) -> None:
    target = parse_target(name)
    arguments = torch.zeros(32, 96).to(torch.float8_e4m3fn), torch.zeros(96, 16, dtype=torch.int8)
    program = tileops.jit(everything).get_tir(*arguments, torch.zeros(32, dtype=torch.int32))
    with option.check():
        program = checked(program, target)
    program = run(TRITON, program, Context(target))
    assert any(b.id == STATUS_ID for b in program.workspaces)
    allocated = [s.buffer.name for s in walk(program.launches) if isinstance(s, Alloc)]
    assert {"runs", "active"} <= set(allocated)  # the flags of the loop
    assert len([n for n in allocated if n.startswith(("a", "b"))]) > 4  # parts of the operands
    assert made_twice(program) == []
