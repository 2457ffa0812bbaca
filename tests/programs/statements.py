"""Programs whose statements do not map one to one onto lines of generated text.

Run as a script, it prints a digest of the text and the statement map of every program of
tests/programs on each target.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import torch

import tileops
import tileops.language as T
from tests.programs.constructs import CONSTRUCTS
from tests.programs.families import FAMILIES
from tileops.codegen import cpu, triton
from tileops.codegen.kernel_code import KernelCode, Specialization
from tileops.errors import TileopsError
from tileops.ir.program import Program
from tileops.target import parse_target

TARGETS = ("cuda:sm_90", "cuda:sm_80", "cpu")


def escapes(A):
    A: T.Tensor((64,), T.float32)
    C = T.empty((1,), T.float32)
    with T.Kernel(1, threads=32):
        total = T.alloc_var(T.float32, 0.0)
        for k in T.serial(64):
            if A[k] < 0.0:
                continue
            if A[k] > 100.0:
                break
            total += A[k]
        C[0] = total
    return C


def parts(A):
    A: T.Tensor((32, 96), T.float16)
    C = T.empty((32, 32), T.float32)
    with T.Kernel(1, threads=128):
        a = T.alloc_shared((32, 96), T.float16)
        c = T.alloc_fragment((32, 32), T.float32)
        T.copy(A, a)
        for i, j in T.Parallel(32, 96):
            a[i, j] = a[i, j] * 2
        T.gemm(a, a, c, transpose_B=True, clear_accum=True)
        T.copy(c, C)
    return C


def bytes_as_floats(A, B):
    A: T.Tensor((32, 32), T.float8_e4m3fn)
    B: T.Tensor((32, 32), T.float8_e4m3fn)
    C = T.empty((32, 32), T.float32)
    with T.Kernel(1, threads=128):
        a = T.alloc_shared((32, 32), T.float8_e4m3fn)
        b = T.alloc_shared((32, 32), T.float8_e4m3fn)
        c = T.alloc_fragment((32, 32), T.float32)
        T.copy(A, a)
        T.copy(B, b)
        for i, j in T.Parallel(32, 32):
            a[i, j] = a[i, j] + b[i, j]
        T.gemm(a, b, c, clear_accum=True)
        T.copy(c, C)
    return C


@T.macro
def doubled(tile, rows):
    for i in T.Parallel(rows):
        tile[i] = tile[i] * 2


def macros(A):
    A: T.Tensor((64,), T.float32)
    C = T.empty((64,), T.float32)
    with T.Kernel(1, threads=32):
        a = T.alloc_shared((64,), T.float32)
        T.copy(A, a)
        doubled(a, 64)
        doubled(a, 64)
        T.copy(a, C)
    return C


PROGRAMS: dict[str, tuple[Callable[..., Any], str]] = {
    "escapes": (escapes, "cuda:sm_90"),
    "parts": (parts, "cuda:sm_90"),
    "bytes_as_floats": (bytes_as_floats, "cuda:sm_80"),
    "macros": (macros, "cuda:sm_90"),
    "macros_cpu": (macros, "cpu:x86-64-v3"),
}


def text_of(program: Program, target: str) -> KernelCode:
    generator = cpu if target.startswith("cpu") else triton
    return generator.generate(program, parse_target(target), Specialization())


def _traces() -> Iterator[tuple[str, Program]]:
    for case in CONSTRUCTS:
        yield case.id, tileops.jit(case.func, name=f"c_{case.id}").get_tir(*case.inputs())
    for case in FAMILIES:
        yield case.id, case.impl.get_tir(*case.inputs(), **case.options)


def _digests() -> Iterator[tuple[str, str]]:
    torch.manual_seed(0)
    for name, program in _traces():
        for target in TARGETS:
            try:
                code = text_of(program, target)
                held = json.dumps([code.source, sorted(code.statements.items())])
            except TileopsError as error:
                held = f"{type(error).__name__}: {error}"
            yield f"{name} {target}", hashlib.sha256(held.encode()).hexdigest()


if __name__ == "__main__":
    print(json.dumps(sorted(_digests()), indent=0))
