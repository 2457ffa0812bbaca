"""Stepped loops beside Python's ``range``: programs, bounds near the ends of their types, the right rounds."""

import itertools
import random
from collections.abc import Callable
from typing import Any

import torch

import tileops.language as T
from tests.property.divisions import operands
from tileops.dtypes import DType

PAIRS = 24  # pairs of bounds for each step
SEEN = 6  # the rounds of a loop that are recorded, before their number
MOST = 40  # rounds of a loop: no executor should work for long
STEPS = (
    1,
    -1,
    2,
    -2,
    3,
    -3,
    7,
    -128,
    1 << 26,
    1 << 30,
    -(1 << 30),
    (1 << 31) - 1,
    -(1 << 31),
    1 << 40,
)
FORMS = ("both", "start", "stop", "lanes")
DTYPES = ("int32", "int64", "uint8", "int16", "uint32", "uint64")
UNREAD = -(1 << 63)


def loops(dtype: str, form: str, constant: int, steps: tuple[int, ...]) -> Any:
    """A program that notes the first rounds of a loop, and their number, for each step and pair.

    ``form`` says which bounds come from memory, "both", "start" or "stop"; the other one is
    ``constant``. "lanes" puts the loops into an elementwise nest, where all lanes run together,
    each with bounds of its own.
    """

    @T.macro
    def noted(S, B, p, n, step):
        for k in T.serial(SEEN):
            B[n, p, k] = UNREAD
        count = T.alloc_var(T.int32, 0)
        start = S[n, p, 0] if form != "stop" else constant
        for i in T.serial(start, S[n, p, 1] if form != "start" else constant, step):
            if count < SEEN:
                B[n, p, count] = i
            count += 1
        B[n, p, SEEN] = count

    def all_noted(S, B, p):
        for n, step in enumerate(steps):
            noted(S, B, p, n, step)

    def counted(S):
        S: T.Tensor((len(steps), PAIRS, 2), dtype)
        B = T.empty((len(steps), PAIRS, SEEN + 1), T.int64)
        with T.Kernel(PAIRS if form != "lanes" else 1, threads=32) as bx:
            if form != "lanes":
                all_noted(S, B, bx)
            else:
                for p in T.Parallel(PAIRS):
                    all_noted(S, B, p)
        return B

    return counted


def rounds(start: int, stop: int, step: int) -> list[int]:
    """What a program notes of one loop, in int64."""
    values = itertools.islice(range(start, stop, step), SEEN)
    seen = [(value - UNREAD) % (1 << 64) + UNREAD for value in values]
    return seen + [UNREAD] * (SEEN - len(seen)) + [count(start, stop, step)]


def count(start: int, stop: int, step: int) -> int:
    """``len(range(start, stop, step))``, for any integers."""
    return max(0, -(-(stop - start) // step))


def bounds(made: random.Random, dtype: str, form: str, constant: int, step: int) -> tuple[int, int]:
    """A pair of bounds: any if their loop is short, else near each other or in the wrong order."""
    least, most = DType(dtype).limits
    (first,) = operands(dtype, made, 1)
    fixed = constant if form in ("start", "stop") else operands(dtype, made, 1)[0]
    if made.random() < 0.5:
        reach = MOST * abs(step)
        first = max(least, min(most, fixed + made.randint(-reach, reach)))
    pair = (first, fixed) if form != "stop" else (fixed, first)
    if count(*pair, step) <= MOST:
        return pair
    return bounds(made, dtype, form, constant, step)


Run = Callable[..., Any]


def wrong_loops(run: Run, dtype: str, form: str, seed: int) -> list[str]:
    """The faults of ``run(function, *inputs)``: loops with bounds from memory."""
    made = random.Random(f"{dtype} {form} {seed}")
    (constant,) = operands(dtype, made, 1)
    steps = STEPS
    if form == "lanes":
        # There a loop of 1, and of -1 in int64, which counts uint32 too, runs the widest range of any lane.
        steps = tuple(
            s for s in STEPS if abs(s) > 1 or (s == -1 and dtype not in ("int64", "uint32"))
        )
    pairs = [[bounds(made, dtype, form, constant, s) for _ in range(PAIRS)] for s in steps]
    given = torch.tensor(pairs, dtype=getattr(torch, dtype))
    got = run(loops(dtype, form, constant, steps), given).tolist()
    found = [
        f"{dtype}, {form}: range({pair[0]}, {pair[1]}, {step}) gave {row}, "
        f"right {rounds(*pair, step)}"
        for step, at, rows in zip(steps, pairs, got, strict=True)
        for pair, row in zip(at, rows, strict=True)
        if row != rounds(*pair, step)
    ]
    return found[:3]
