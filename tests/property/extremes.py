"""Programs of maxima, minima, sums and scans over NaN and infinities, and what each must give.

A number is preferred to NaN, NaNs alone give NaN; sums and ``nan_propagate`` give NaN for any NaN.
"""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch

from tests.kit.exactly import converted
from tests.property.conversions import module_of

NAN, INF = math.nan, math.inf
FLOATS = (
    "float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu",
)  # fmt: skip
LITERALS = {"nan": NAN, "inf": INF, "-inf": -INF, "0.5": 0.5, "-4.0": -4.0}
TREES = 12
SELECTING = ("max", "min", "absmax")


def storage(dtype: str) -> torch.dtype:
    found: torch.dtype = getattr(torch, dtype)
    return found


def stored(numbers: list[float], dtype: str) -> torch.Tensor:
    """A tensor of numbers that the dtype has; float8_e5m2 keeps infinities here."""
    wide = torch.tensor(numbers, dtype=torch.float64)
    return wide if dtype == "float64" else wide.float().to(storage(dtype))


def has_infinity(dtype: str) -> bool:
    return dtype not in ("float8_e4m3fn", "float8_e8m0fnu")


def extreme(kind: str, numbers: list[float]) -> float:
    """The rule: the largest, or smallest, of the numbers; NaN where there is none."""
    some = [x for x in numbers if not math.isnan(x)]
    if kind == "absmax":
        some = [abs(x) for x in some]
    if not some:
        return NAN
    return min(some) if kind == "min" else max(some)


def folded(kind: str, numbers: list[float]) -> float:
    if kind in SELECTING:
        return extreme(kind, numbers)
    # Python raises for none of these: inf - inf is NaN.
    return sum((abs(x) if kind == "abssum" else x) for x in numbers)


def agree(got: torch.Tensor, expected: list[float]) -> bool:
    found = got.double().flatten().tolist()
    return all(x == y or (x != x and y != y) for x, y in zip(found, expected, strict=True))


# -- expressions -----------------------------------------------------------------------------------
class Expression:
    """A text over ``A[i]``, ``B[i]`` and the scalar ``s``, and its value for given ones."""

    def __init__(self, text: str, value: Any) -> None:
        self.text, self.value = text, value


def _both(form: str, kind: str, a: Expression, b: Expression) -> Expression:
    return Expression(
        form.format(kind=kind, a=a.text, b=b.text),
        lambda x, y, s: extreme(kind, [a.value(x, y, s), b.value(x, y, s)]),
    )


def _leaves(dtype: str) -> list[Expression]:
    found = [
        Expression("A[i]", lambda x, y, s: x),
        Expression("B[i]", lambda x, y, s: y),
        Expression("s", lambda x, y, s: s),
    ]
    for text, number in LITERALS.items():
        found.append(Expression(text, lambda x, y, s, n=number: n))
        exact = number if not math.isfinite(number) else Fraction(number)
        typed = float(converted(exact, "float32", dtype))
        found.append(Expression(f"T.cast({text}, T.{dtype})", lambda x, y, s, n=typed: n))
    return found


def _tree(leaves: list[Expression], depth: int, rng: random.Random) -> Expression:
    if depth == 0:
        return rng.choice(leaves)
    a, b, c = (_tree(leaves, depth - 1, rng) for _ in range(3))
    kind = rng.choice(["max", "min"])
    form = rng.choice(["T.{kind}({a}, {b})", "{kind}({a}, {b})", "{kind}([{a}, {b}])", "", "3"])
    if form == "":
        return Expression(
            f"T.clamp({a.text}, {b.text}, {c.text})",
            lambda x, y, s: extreme(
                "min",
                [extreme("max", [a.value(x, y, s), b.value(x, y, s)]), c.value(x, y, s)],
            ),
        )
    if form == "3":
        return Expression(
            f"{kind}({a.text}, {b.text}, {c.text})",
            lambda x, y, s: extreme(kind, [e.value(x, y, s) for e in (a, b, c)]),
        )
    return _both(form, kind, a, b)


def expressions_of(dtype: str, seed: int) -> list[Expression]:
    """Each constant on each side of a run-time value, then random nests of extremes."""
    rng = random.Random(f"{dtype} {seed}")
    leaves = _leaves(dtype)
    element = leaves[0]
    found = []
    for kind, other in itertools.product(("max", "min"), leaves[1:]):
        form = rng.choice(["T.{kind}({a}, {b})", "{kind}({a}, {b})"])
        found += [_both(form, kind, element, other), _both(form, kind, other, element)]
    found += [_tree(leaves, rng.choice([1, 2, 2]), rng) for _ in range(TREES)]
    if dtype in ("float16", "bfloat16", "float32"):
        for kind, lane in itertools.product(("max", "min"), (0, 1)):
            pairs = f"T.{dtype}x2(A[i], B[i]), T.{dtype}x2(B[i], A[i])"
            text = f"T.{kind}2({pairs})[{lane}]"
            found.append(Expression(text, lambda x, y, s, k=kind: extreme(k, [x, y])))
    return found


def operands_of(dtype: str) -> tuple[list[float], list[float]]:
    """All pairs of a few numbers of the dtype and NaN, without zeros: their signs are not told."""
    some = [NAN, 1.0, 0.25, 2.0]
    some += [] if dtype == "float8_e8m0fnu" else [-2.0, -0.5]
    some += [INF, -INF] if has_infinity(dtype) else []
    pairs = list(itertools.product(some, repeat=2))
    return [a for a, _ in pairs], [b for _, b in pairs]


def program_of_expressions(dtype: str, made: list[Expression], length: int, folder: Path) -> Any:
    lines = [
        "import tileops",
        "import tileops.language as T",
        "nan, inf = float('nan'), float('inf')",
        f"@tileops.jit(name='extremes_of_{dtype}')",
        "def program(A, B, s):",
        f"    A: T.Tensor(({length},), T.{dtype})",
        f"    B: T.Tensor(({length},), T.{dtype})",
        "    s: T.float32",
        f"    C = T.empty(({len(made)}, {length}), T.float64)",
        "    with T.Kernel(1, threads=32):",
        f"        for i in T.Parallel({length}):",
        *(f"            C[{n}, i] = T.cast({e.text}, T.float64)" for n, e in enumerate(made)),
        "    return C",
        "",
    ]
    return module_of("\n".join(lines), folder / f"extremes_of_{dtype}.py")


# -- reductions and scans --------------------------------------------------------------------------
def rows_of(dtype: str, length: int, seed: int) -> list[list[float]]:
    """Rows with NaN and infinities at each place, alone, in runs from either end, and everywhere."""
    rng = random.Random(f"{dtype} {length} {seed}")
    # Sums of these, up to eight, are exact in every dtype.
    small = [1.0, 2.0] if dtype == "float8_e8m0fnu" else [1.0, -1.0]
    specials = [[NAN], [INF], [-INF], [NAN, INF], [NAN, -INF], [INF, -INF]]
    found = []
    for special in specials if has_infinity(dtype) else [[NAN]]:
        for mask in _masks(length):
            base = [rng.choice(small) for _ in range(length)]
            found.append([rng.choice(special) if m else x for m, x in zip(mask, base, strict=True)])
    found.append([rng.choice(small) for _ in range(length)])
    return found


def _masks(length: int) -> list[list[bool]]:
    places = range(length)
    alone = [[k == n for k in places] for n in places]
    runs = [[k < n for k in places] for n in range(2, length + 1)]
    return alone + runs + [[not m for m in mask] for mask in runs[:-1]]


KINDS = ("max", "min", "absmax", "sum", "abssum")


def kinds_of(dtype: str) -> tuple[str, ...]:
    # Sums and magnitudes are refused in float8_e8m0fnu, which has one sign.
    return ("max", "min") if dtype == "float8_e8m0fnu" else KINDS


def program_of_reductions(dtype: str, rows: int, length: int, folder: Path) -> Any:
    """Each reduction by rows and columns, fresh, onto an old value, and with ``nan_propagate``."""
    kinds = kinds_of(dtype)
    onto = [k for k in kinds if k != "abssum" and dtype != "float8_e8m0fnu"]
    calls = []
    for kind in kinds:
        calls += [f"T.reduce_{kind}(x, r, dim=1)", f"T.reduce_{kind}(y, r, dim=0)"]
    calls += [f"T.copy(I, r); T.reduce_{k}(x, r, dim=1, clear=False)" for k in onto]
    calls += [f"T.copy(I, r); T.reduce_{k}(y, r, dim=0, clear=False)" for k in onto]
    propagating = [k for k in kinds if k in SELECTING]
    calls += [f"T.reduce_{k}(x, r, dim=1, nan_propagate=True)" for k in propagating]
    lines = [
        "import tileops",
        "import tileops.language as T",
        f"@tileops.jit(name='reductions_of_{dtype}_{length}')",
        "def program(A, B, I):",
        f"    A: T.Tensor(({rows}, {length}), T.{dtype})",
        f"    B: T.Tensor(({length}, {rows}), T.{dtype})",
        f"    I: T.Tensor(({rows},), T.{dtype})",
        f"    C = T.empty(({len(calls)}, {rows}), T.{dtype})",
        "    with T.Kernel(1, threads=64):",
        f"        x = T.alloc_fragment(({rows}, {length}), T.{dtype})",
        f"        y = T.alloc_fragment(({length}, {rows}), T.{dtype})",
        f"        r = T.alloc_fragment(({rows},), T.{dtype})",
        "        T.copy(A, x)",
        "        T.copy(B, y)",
    ]
    for n, call in enumerate(calls):
        lines += [f"        {part}" for part in call.split("; ")]
        lines.append(f"        T.copy(r, C[{n}, 0])")
    lines += ["    return C", ""]
    return module_of("\n".join(lines), folder / f"reductions_of_{dtype}_{length}.py")


def expected_reductions(dtype: str, rows: list[list[float]], old: list[float]) -> list[float]:
    """The outputs of ``program_of_reductions``, one after the other."""
    kinds = kinds_of(dtype)
    onto = [k for k in kinds if k != "abssum" and dtype != "float8_e8m0fnu"]
    out: list[float] = []
    for kind in kinds:
        out += [folded(kind, row) for row in rows] * 2
    for _ in range(2):
        for kind in onto:
            out += [folded(kind, [*row, x]) for row, x in zip(rows, old, strict=True)]
    for kind in (k for k in kinds if k in SELECTING):
        out += [NAN if any(map(math.isnan, row)) else extreme(kind, row) for row in rows]
    return out


def program_of_scans(dtype: str, rows: int, length: int, folder: Path) -> Any:
    """Running extremes and sums along both dimensions and in both directions."""
    calls = [
        (kind, reverse, along)
        for kind in ("max", "min", "sum")
        for reverse in (False, True)
        for along in (1, 0)
    ]
    lines = [
        "import tileops",
        "import tileops.language as T",
        f"@tileops.jit(name='scans_of_{dtype}_{length}')",
        "def program(A, B):",
        f"    A: T.Tensor(({rows}, {length}), T.{dtype})",
        f"    B: T.Tensor(({length}, {rows}), T.{dtype})",
        *(
            f"    C{n} = T.empty(({(rows, length) if d else (length, rows)}), T.{dtype})"
            for n, (_, _, d) in enumerate(calls)
        ),
        "    with T.Kernel(1, threads=64):",
        f"        x = T.alloc_shared(({rows}, {length}), T.{dtype})",
        f"        y = T.alloc_shared(({length}, {rows}), T.{dtype})",
    ]
    for n, (kind, reverse, along) in enumerate(calls):
        tile, source = ("x", "A") if along else ("y", "B")
        lines += [
            f"        T.copy({source}, {tile})",
            f"        T.cum{kind}({tile}, dim={along}, reverse={reverse})",
            f"        T.copy({tile}, C{n})",
        ]
    lines += ["    return " + ", ".join(f"C{n}" for n in range(len(calls))), ""]
    return module_of("\n".join(lines), folder / f"scans_of_{dtype}_{length}.py")


def expected_scans(rows: list[list[float]]) -> list[list[float]]:
    """The outputs of ``program_of_scans``; of those along columns, transposed."""
    out = []
    for kind in ("max", "min", "sum"):
        for reverse in (False, True):
            flat: list[float] = []
            for row in rows:
                line = row[::-1] if reverse else row
                line = [folded(kind, line[: n + 1]) for n in range(len(line))]
                flat += line[::-1] if reverse else line
            out += [flat, flat]
    return out


def sums_are_exact(dtype: str, row: list[float]) -> bool:
    """False where an 8-bit float saturates an infinite sum."""
    return dtype != "float8_e5m2" or not any(map(math.isinf, row))


# -- atomics and reducers --------------------------------------------------------------------------
def program_of_updates(dtype: str, rows: int, length: int, folder: Path, *, memory: bool) -> Any:
    """Maxima and minima of each row by atomics, onto what ``P`` and ``Q`` hold.

    In memory, or in tiles.
    """
    lines = [
        "import tileops",
        "import tileops.language as T",
        f"@tileops.jit(name='updates_of_{dtype}_{memory}')",
        "def program(A, P, Q):",
        f"    A: T.Tensor(({rows}, {length}), T.{dtype})",
        f"    P: T.Tensor(({rows},), T.{dtype})",
        f"    Q: T.Tensor(({rows},), T.{dtype})",
        "    with T.Kernel(1, threads=64):",
    ]
    p, q = "P", "Q"
    if not memory:
        p, q = "p", "q"
        for tile in (p, q):
            lines.append(f"        {tile} = T.alloc_shared(({rows},), T.{dtype})")
            lines.append(f"        T.copy({tile.upper()}, {tile})")
    lines += [
        f"        for i, j in T.Parallel({rows}, {length}):",
        f"            T.atomic_max({p}[i], A[i, j])",
        f"            T.atomic_min({q}[i], A[i, j])",
    ]
    if not memory:
        lines += [f"        T.copy({t}, {t.upper()})" for t in (p, q)]
    return module_of("\n".join([*lines, ""]), folder / f"updates_of_{dtype}_{memory}.py")
