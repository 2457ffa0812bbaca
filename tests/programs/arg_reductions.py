"""Places of the largest and smallest elements along a dimension, by dtype, against Python's own."""

import math
from collections.abc import Callable
from typing import Any

import torch

import tileops.language as T
from tests.programs.construct import Construct

# Shape, dimension, and whether the result keeps it. Sizes that are no powers of two are padded on a GPU.
LINES: tuple[tuple[tuple[int, ...], int, bool], ...] = (
    ((1,), 0, False),
    ((7,), 0, False),
    ((64,), -1, False),
    ((100,), 0, True),
    ((5, 33), 0, False),
    ((5, 33), 1, True),
    ((4, 48), -1, False),
    ((48, 4), 1, False),
    ((3, 9, 5), 0, False),
    ((3, 9, 5), 1, False),
    ((4, 1), 1, False),
)
FLOATS = (math.nan, math.nan, math.nan, 0.0, -0.0, 1.0, -2.0, 2.0, math.inf, -math.inf)


def _integers(low: int, high: int) -> tuple[int, ...]:
    return (low, high, 0, 1, 1, high // 2)


# Few values, so that most lines have ties.
VALUES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("float64", "float32", "float16", "bfloat16"), FLOATS),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2"), FLOATS),
    **{f"int{n}": _integers(-(2 ** (n - 1)), 2 ** (n - 1) - 1) for n in (8, 32, 64)},
    **{f"uint{n}": _integers(0, 2**n - 1) for n in (8, 32, 64)},
    "bool": (False, True),
}


def _result(shape: tuple[int, ...], dim: int, keeps: bool) -> tuple[int, ...]:
    axis = dim % len(shape)
    if keeps:
        return (*shape[:axis], 1, *shape[axis + 1 :])
    return (*shape[:axis], *shape[axis + 1 :]) or (1,)


SIZES = tuple(math.prod(shape) for shape, _, _ in LINES)
RESULTS = tuple(_result(*line) for line in LINES)
COUNTS = tuple(map(math.prod, RESULTS))


@T.macro
def _one(X, C, n: int, begin: int, at: int):
    shape, dim, _ = LINES[n]
    flat = T.alloc_shared((SIZES[n],), X.dtype)
    T.copy(X[begin : begin + SIZES[n]], flat)
    tile = T.reshape(flat, shape)
    if n % 2:
        fragment = T.alloc_fragment(shape, X.dtype)
        T.copy(tile, fragment)
        tile = fragment
    most, least = T.alloc_fragment(RESULTS[n], T.int32), T.alloc_shared(RESULTS[n], T.int32)
    T.fill(most, -1)  # an old value takes no part
    T.argmax(tile, most, dim=dim)
    T.argmin(tile, least, dim)
    both = T.alloc_shared(RESULTS[n], T.int32)
    T.copy(most, both)
    T.copy(T.reshape(both, (COUNTS[n],)), C[0, at : at + COUNTS[n]])
    T.copy(T.reshape(least, (COUNTS[n],)), C[1, at : at + COUNTS[n]])


def _all(X, C) -> None:
    for n in range(len(LINES)):
        _one(X, C, n, sum(SIZES[:n]), sum(COUNTS[:n]))


def program_of(dtype: str) -> Callable[..., Any]:
    def places(X):
        X: T.Tensor((sum(SIZES),), dtype)
        C = T.empty((2, sum(COUNTS)), T.int32)
        with T.Kernel(1, threads=128):
            _all(X, C)
        return C

    places.__name__ = places.__qualname__ = f"places_in_{dtype}"
    return places


@T.macro
def _product(X, Y, product):
    x, y = T.alloc_shared((48, 32), T.float16), T.alloc_shared((32, 80), T.float16)
    T.copy(X, x)
    T.copy(Y, y)
    T.gemm(x, y, product, clear_accum=True)


def places_beside_parts(X, Y):
    """A product of 48 x 80 is held in parts on a GPU, but for the dimension that is searched."""
    X: T.Tensor((48, 32), T.float16)
    Y: T.Tensor((32, 80), T.float16)
    C = T.empty((2, 80), T.int32)
    with T.Kernel(1, threads=128):
        product = T.alloc_fragment((48, 80), T.float32)
        found = T.alloc_fragment((80,), T.int32)
        _product(X, Y, product)
        T.argmax(product, found, dim=0)
        T.copy(found, C[0, :])
    with T.Kernel(1, threads=128):
        product = T.alloc_fragment((48, 80), T.float32)
        found = T.alloc_fragment((48,), T.int32)
        _product(X, Y, product)
        T.argmin(product, found, dim=1)
        T.copy(found, C[1, 0:48])
        for i in T.Parallel(32):
            C[1, 48 + i] = 0
    return C


def places_in_int4(X):
    """A tile whose elements share bytes."""
    X: T.Tensor((6, 10), T.int8)
    C = T.empty((2, 6), T.int32)
    with T.Kernel(1, threads=32):
        tile = T.alloc_fragment((6, 10), T.int4)
        found = T.alloc_fragment((6,), T.int32)
        T.copy(X, tile)
        T.argmax(tile, found, dim=1)
        T.copy(found, C[0, :])
        T.argmin(tile, found, dim=1)
        T.copy(found, C[1, :])
    return C


def _inputs(dtype: str) -> torch.Tensor:
    values = VALUES[dtype]
    chosen = [values[i] for i in torch.randint(0, len(values), (sum(SIZES),)).tolist()]
    if values is FLOATS:
        return torch.tensor(chosen).to(getattr(torch, dtype))
    return torch.tensor(chosen, dtype=getattr(torch, dtype))


def place(line: list[Any], best: Callable[..., Any]) -> int:
    """The first place of the best number; 0 if there is none."""
    numbers = [x for x in line if x == x]
    return line.index(best(numbers)) if numbers else 0


def _lines(x: torch.Tensor, dim: int) -> list[list[Any]]:
    values = x.double() if x.is_floating_point() else x
    length = x.shape[dim]
    return values.movedim(dim, -1).reshape(-1, length).tolist()


def expected(x: torch.Tensor) -> torch.Tensor:
    rows: tuple[list[int], list[int]] = ([], [])
    for (shape, dim, _), part in zip(LINES, x.split(SIZES), strict=True):
        for line in _lines(part.reshape(shape), dim):
            for found, best in zip(rows, (max, min), strict=True):
                found.append(place(line, best))
    return torch.tensor(rows, dtype=torch.int32)


def expected_beside_parts(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    product = x.double() @ y.double()
    most = [place(line, max) for line in _lines(product, 0)]
    least = [place(line, min) for line in _lines(product, 1)]
    return torch.tensor([most, [*least, *[0] * 32]]).int()


def expected_in_rows(x: torch.Tensor) -> torch.Tensor:
    lines = _lines(x, 1)
    return torch.tensor([[place(line, best) for line in lines] for best in (max, min)]).int()


ARG_REDUCTIONS = [
    *(Construct(program_of(d), lambda d=d: (_inputs(d),), expected) for d in VALUES),
    Construct(
        places_beside_parts,
        lambda: (torch.randint(-2, 3, (48, 32)).half(), torch.randint(-2, 3, (32, 80)).half()),
        expected_beside_parts,
    ),
    Construct(
        places_in_int4,
        lambda: (torch.randint(-8, 8, (6, 10), dtype=torch.int8),),
        expected_in_rows,
    ),
]
