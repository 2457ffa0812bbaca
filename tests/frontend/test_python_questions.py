"""What Python may ask of a value: a known number answers as a number, any other is an error."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import pytest
import torch

import tileops
import tileops.language as T
from tests.kit.traced import body_of, text_of
from tileops.errors import ProgramError, ProgramTypeError, ProgramValueError
from tileops.language.value import Value

TABLE = {64: 2.0, 128: 3.0}
WIDTHS = {96: 8}


@functools.lru_cache
def doubled_or_not(n):
    return 2 * n if n > 3 else n


def half(n):
    match n:
        case 64:
            return 32
        case _:
            return n // 2


# Each asks Python for what only a number has; none may pass with an answer.
QUESTIONS: dict[str, Callable[[object], object]] = {
    "dict item": lambda n: TABLE[n],
    "dict get": lambda n: TABLE.get(n, 1.0),
    "dict key": lambda n: {n: 1.0},
    "dict setdefault": lambda n: {}.setdefault(n, 1.0),
    "dict pop": lambda n: dict(TABLE).pop(n, 1.0),
    "key in a dict": lambda n: n in TABLE,
    "key of a pair": lambda n: {(64, 64): 1.0}.get((n, 64), 2.0),
    "dict comprehension": lambda n: {k: k for k in (n, 64)},
    "member of a set": lambda n: n in {64, 128},
    "set": lambda n: {n, 64},
    "frozenset": lambda n: frozenset((n, 64)),
    "set add": lambda n: {64}.add(n),
    "set discard": lambda n: {64}.discard(n),
    "dict.fromkeys": lambda n: dict.fromkeys((n,)),
    "cached function": doubled_or_not,
    "hash": lambda n: hash(n),
    "in a list": lambda n: n in [64, 128],
    "in a tuple": lambda n: n in (64, 128),
    "list.index": lambda n: [64, 128].index(n),
    "list.count": lambda n: [64, 128].count(n),
    "list.remove": lambda n: [64, 128].remove(n),
    "equal lists": lambda n: [n] == [64],
    "equal tuples": lambda n: (n, 1) == (64, 1),
    "equal dicts": lambda n: {"n": n} == {"n": 64},
    "sorted": lambda n: sorted([n, 64]),
    "smallest of a list": lambda n: min([n, 64]),
    "greatest by key": lambda n: max(n, 64, key=lambda x: x),
    "bool": lambda n: bool(n == 64),
    "any": lambda n: any([n == 64]),
    "all": lambda n: all([n == 64]),
    "not in a lambda": lambda n: not n,
    "filter": lambda n: list(filter(lambda x: x == n, [64])),
    "index of a list": lambda n: [1.0, 2.0][n],
    "index of a text": lambda n: "ab"[n],
    "slice of a list": lambda n: [1.0, 2.0][:n],
    "range": lambda n: list(range(n)),
    "repeated list": lambda n: [0] * n,
    "repeated text": lambda n: "a" * n,
    "int": lambda n: int(n),
    "float": lambda n: float(n),
    "math": lambda n: math.sqrt(n),
    "match": half,
    "f-string": lambda n: {"n64": 2.0}.get(f"n{n}", 1.0),
    "str.format": lambda n: {"n64": 2.0}.get("n{}".format(n), 1.0),  # noqa: UP032
    "format with a width": lambda n: f"{n:03d}",
    "percent": lambda n: "%d" % n,  # noqa: UP031
    "rounded to digits": lambda n: round(n, 2),
}


def asking(question):
    def program(A):
        N = T.dynamic("N")
        A: T.Tensor((N,), T.float32)
        with T.Kernel(1):
            question(N)  # here
            T.fill(A, 0.0)

    return program


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_size_of_a_call_has_no_answer(name: str) -> None:
    with pytest.raises(ProgramTypeError) as caught:
        body_of(asking(QUESTIONS[name]))
    assert caught.value.location is not None
    assert caught.value.location.text().endswith("# here")


@pytest.mark.parametrize("make", [lambda A: A[0], lambda A: T.alloc_var("int32", 1)])
def test_what_a_kernel_reads_has_no_hash(make: Callable[[object], object]) -> None:
    def program(A):
        A: T.Tensor((4,), T.int32)
        with T.Kernel(1):
            value = make(A)
            T.fill(A, TABLE.get(value, 0))

    with pytest.raises(ProgramTypeError, match=r"the hash .* write the choice with `if`"):
        body_of(program)


# Errors for a known number too: 64 is past the end, and operators of a value are the language's.
REFUSED = (
    "index of a list",
    "index of a text",
    "repeated list",
    "repeated text",
    "rounded to digits",
)


@pytest.mark.parametrize("name", [n for n in QUESTIONS if n not in REFUSED])
def test_a_known_number_of_any_dtype_answers_as_the_number(name: str) -> None:
    question = QUESTIONS[name]
    got = []

    def program(A):
        A: T.Tensor((4,), T.float32)
        with T.Kernel(1):
            got.append(question(T.int64(64)))
            got.append(question(64))
            T.fill(A, 0.0)

    body_of(program)
    known, plain = got
    assert type(known) is type(plain) or isinstance(known, Value)
    assert bool(known == plain)


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint64", "float32", "bool"])
def test_a_known_number_hashes_as_the_number_to_which_it_is_equal(dtype: str) -> None:
    value = T.cast(1, dtype)
    assert value == 1
    assert hash(value) == hash(1)
    assert {1: "one"}[value] == "one"
    assert f"{value}" == str(value.value)


def test_a_size_constant_answers_inside_the_kernel_and_before_it() -> None:
    @tileops.jit
    def program(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        B = T.empty((N,), T.float32)
        before = TABLE.get(N, 1.0) + doubled_or_not(N) + int(math.log2(N))
        block = 32 if N in {64, 128} else 16
        with T.Kernel(T.ceildiv(N, block)) as bx:
            inside = TABLE.get(N, 7.0)
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * before + inside
        return B

    for n in (64, 128, 100):
        expected = TABLE.get(n, 1.0) + 2 * n + int(math.log2(n)) + TABLE.get(n, 7.0)
        assert program(torch.ones(n)).tolist() == [expected] * n


def test_a_table_that_decides_a_shape_is_an_error_where_the_numbers_differ() -> None:
    def between(A):
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        B = T.empty((TABLE.get(N, 4.0).__int__(),), T.float32)
        with T.Kernel(1):
            T.fill(B, 0.0)
        return B

    with pytest.raises(ProgramTypeError, match=r"the hash .* of a size constant"):
        text_of(between)

    @tileops.jit
    def seldom(A):  # no number that is tried is in the table
        N = T.const("N")
        A: T.Tensor((N,), T.float32)
        B = T.empty((WIDTHS.get(N, 4),), T.float32)
        with T.Kernel(1):
            T.fill(B, 1.0)
        return B

    assert seldom(torch.ones(64)).tolist() == [1.0] * 4
    for run in (seldom, seldom.compile):
        with pytest.raises(ProgramValueError, match="the shape of `B` depends on") as caught:
            run(torch.ones(96))
        assert caught.value.found == "(8) for N = 96"


def test_text_of_an_expression_may_stand_in_messages() -> None:
    def program(A):
        N = T.dynamic("N")
        A: T.Tensor((N,), T.float32)
        assert N % 4 == 0, f"N = {N} must be a multiple of 4"
        with T.Kernel(1) as bx:
            assert bx < N, f"{bx!r} is too large"
            T.fill(A, 0.0)

    assert "N = <int32 N.0> must be a multiple of 4" in text_of(program)


def test_sizes_made_outside_a_program_are_unhashable_at_their_line() -> None:
    size = T.dynamic("size")
    with pytest.raises(ProgramError, match="the hash") as caught:
        _ = {size: 1}  # outside
    assert caught.value.location is not None
    assert caught.value.location.text().endswith("# outside")
    assert f"{size}" == repr(size)


def test_a_lazy_function_takes_a_size_made_outside() -> None:
    @tileops.jit(out_idx=[1])
    def scaled(M, factor=2.0):
        @T.prim_func
        def main(A: T.Tensor((M,), T.float32), B: T.Tensor((M,), T.float32)):
            with T.Kernel(T.ceildiv(M, 32)) as bx:
                for i in T.Parallel(32):
                    B[bx * 32 + i] = A[bx * 32 + i] * factor

        return main

    size = T.dynamic("m")
    kernel = scaled(size)
    assert scaled(M=size) is kernel
    assert scaled(T.dynamic("m")) is not kernel
    assert kernel(torch.ones(5)).tolist() == [2.0] * 5


@pytest.mark.parametrize(
    "question",
    [
        lambda A: A == 0,
        lambda A: A != 0,
        lambda A: A[0:2] == 0.5,
        lambda A: bool(A),
        lambda A: bool(A[0:2]),
        lambda A: A or 1,
        lambda A: 0 in (A, 1),
    ],
)
def test_a_buffer_is_neither_true_nor_equal_to_a_number(question) -> None:
    def program(A):
        A: T.Tensor((4,), T.float32)
        with T.Kernel(1):
            question(A)  # here
            T.fill(A, 0.0)

    with pytest.raises(ProgramTypeError) as caught:
        body_of(program)
    assert caught.value.location is not None
    assert caught.value.location.text().endswith("# here")


def test_buffers_are_keys_by_what_they_are() -> None:
    def program(A, B):
        A: T.Tensor((4,), T.float32)
        B: T.Tensor((4,), T.float32)
        with T.Kernel(1):
            values = {A: 1.0, B: 2.0}
            T.fill(A, values[A])
            T.fill(B, values[B])
            assert [A].index(A) == 0
            assert A != B
            assert A in [B, A]

    assert [line.split("= ")[-1] for line in body_of(program).splitlines()] == ["1.0f32", "2.0f32"]
