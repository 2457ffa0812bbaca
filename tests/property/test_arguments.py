"""Every construct with any arguments: it is traced and becomes text on every path, or the error is
one of the language's, at a line of the program."""

from __future__ import annotations

import inspect
import random
from typing import Any

import pytest

from tileops.codegen import cpu, triton
from tileops.codegen.kernel_code import Specialization
from tileops.errors import InternalError, TileopsError
from tileops.frontend.trace import trace
from tileops.ir.program import Program
from tileops.target import parse_target

import tileops.language as T  # isort: skip

EXECUTORS = (
    (cpu.generate, parse_target("cpu")),
    (triton.generate, parse_target("cuda:sm_80")),
    (triton.generate, parse_target("cuda:sm_90")),
)
# Classes that programs compare with or decorate with; a call of them is no statement of a program.
CLASSES = ("Var", "PrimExpr", "GemmWarpPolicy", "prim_func", "macro", "Kernel")
CONSTRUCTS = sorted(n for n in T.__all__ if callable(getattr(T, n)) and n not in CLASSES)
TRIES = 8


def _pool(A: Any, s: Any, f: Any, v: Any, i: Any) -> list[Any]:
    """What programs pass, and what they should not."""
    return [
        A, s, f, v, A[0, 0], s[0:8, :], f[0, :], A[i, 1], s[1, 1], f[i, 2], v + 1, i,
        3, -1, 0, 2.5, True, None, "float16", "sum", T.float32, (8, 8), [1, 2], {s: None}, {A: 1},
    ]  # fmt: skip


def _program(construct: Any, places: list[int], in_parallel: bool) -> Program:
    def program(A):
        A: T.Tensor((16, 16), T.float32)
        with T.Kernel(2, threads=32) as bx:
            s = T.alloc_shared((16, 16), T.float32)
            f = T.alloc_fragment((16, 16), T.float32)
            v = T.alloc_var(T.int32, 1)
            T.copy(A, s)
            T.copy(A, f)
            if in_parallel:
                for i, _j in T.Parallel(16, 16):
                    pool = _pool(A, s, f, v, i)
                    construct(*[pool[p] for p in places])
            else:
                pool = _pool(A, s, f, v, bx)
                construct(*[pool[p] for p in places])
            T.copy(f, A)

    return trace(program, name="program", static={}, consts={})


def _fits(construct: Any, places: list[int]) -> bool:
    try:
        inspect.signature(construct).bind(*places)
    except (TypeError, ValueError):
        return False
    return True


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CONSTRUCTS)
def test_any_arguments(name: str) -> None:
    construct, chance = getattr(T, name), random.Random()
    size = len(_pool(*[_Anything()] * 5))
    for _ in range(TRIES):
        places = [chance.randrange(size) for _ in range(chance.choice((0, 1, 1, 2, 2, 3, 3, 4)))]
        in_parallel = chance.random() < 0.5
        if not _fits(construct, places):
            continue
        told = f"T.{name} with {places}, in_parallel={in_parallel}"
        try:
            program = _program(construct, places, in_parallel)
            for generate, target in EXECUTORS:
                generate(program, target, Specialization())
        except InternalError as error:
            raise AssertionError(told) from error
        except TileopsError:
            pass
        except Exception as error:
            raise AssertionError(told) from error


class _Anything:
    """Stands for a value while the pool is counted."""

    def __getitem__(self, key: object) -> _Anything:
        return self

    def __add__(self, other: object) -> _Anything:
        return self
