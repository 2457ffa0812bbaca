"""Variants: how dimensions and strides become rules, and which sizes decide alignment."""

from __future__ import annotations

import pytest

from tests.programs import samples
from tileops.dtypes import DType
from tileops.errors import ProgramValueError
from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr, Load, Var
from tileops.ir.extern import Extern, ExternArg
from tileops.ir.program import Program, Size, TensorParam
from tileops.ir.stmt import Launch, Store
from tileops.op.spec import spec_of
from tileops.op.variant import Rule, Variant, aligned_sizes, variant_of

INT32 = DType("int32")
F16 = DType("float16")
M, N, K = (Var(INT32, n, name) for n, name in enumerate("MNK"))
DYNAMIC = {v.name: "dynamic" for v in (M, N, K)}


def program_with(*shapes: tuple[Expr, ...], kinds: dict[str, str] | None = None) -> Program:
    kinds = kinds or DYNAMIC
    params = tuple(
        TensorParam(chr(ord("A") + n), Buffer(10 + n, chr(ord("A") + n), shape, F16, "global"))
        for n, shape in enumerate(shapes)
    )
    used = [v for v in (M, N, K) if v.name in kinds]
    return Program("p", params, tuple(Size(v, kinds[v.name]) for v in used), (), (), ())


def variant(program: Program) -> Variant:
    return variant_of(program, spec_of(program, namespace="t", name="p"), ())


def literal(value: int) -> Expr:
    return fold.const(value, INT32)


def test_sizes_alone_are_bound_each_time() -> None:
    v = variant(program_with((M, K), (K, N)))
    assert [t.shape for t in v.tensors] == [
        (Rule("bind", 0), Rule("bind", 2)),
        (Rule("bind", 2), Rule("bind", 1)),
    ]


def test_an_equation_with_one_unknown_is_solved() -> None:
    doubled = fold.add(fold.mul(M, literal(2)), literal(1))
    v = variant(program_with((doubled, literal(64)), kinds={"M": "dynamic"}))
    assert v.tensors[0].shape[0] == Rule("solve", 0, 2, 1)
    assert v.tensors[0].shape[1].kind == "eq"


def test_an_equation_over_bound_sizes_is_compared() -> None:
    v = variant(program_with((M, N), (fold.mul(M, N),), kinds={"M": "const", "N": "const"}))
    rule = v.tensors[1].shape[0]
    assert rule.kind == "eq"
    assert v.host.evaluate({"size:0": 6, "size:1": 7})[rule.number] == 42


def test_a_size_that_nothing_determines_is_refused() -> None:
    with pytest.raises(ProgramValueError, match="`N` cannot be determined"):
        variant(program_with((M,), (fold.mul(M, N),), kinds={"M": "dynamic", "N": "dynamic"}))


def test_a_stride_is_not_solved_for_a_size() -> None:
    # Of a dimension with one element it means nothing.
    strides = (fold.mul(N, literal(2)), literal(1))
    param = TensorParam("A", Buffer(10, "A", (M, literal(8)), F16, "global", strides))
    sizes = tuple(Size(v, "dynamic") for v in (M, N))
    with pytest.raises(ProgramValueError, match="`N` cannot be determined"):
        variant(Program("p", (param,), sizes, (), (), ()))
    of_shape = TensorParam("B", Buffer(11, "B", (N,), F16, "global"))
    rules = variant(Program("p", (param, of_shape), sizes, (), (), ())).tensors[0].strides
    assert rules is not None
    assert [r.kind for r in rules] == ["eq", "eq"]


@pytest.mark.parametrize(
    ("shapes", "kinds", "expected"),
    [
        (((M,),), DYNAMIC, (0,)),
        (((M, K), (K, N)), DYNAMIC, (1, 2)),
        (((M, K), (K, N)), {"M": "dynamic", "N": "const", "K": "const"}, ()),
        (((M, N, literal(64)),), DYNAMIC, ()),
        (((M, N, K),), {"M": "dynamic", "N": "dynamic", "K": "const"}, ()),
        (((M, N, K),), DYNAMIC, (1, 2)),
    ],
)
def test_sizes_that_decide_alignment(
    shapes: tuple[tuple[Expr, ...], ...], kinds: dict[str, str], expected: tuple[int, ...]
) -> None:
    assert aligned_sizes(program_with(*shapes, kinds=kinds)) == expected


def test_strides_bind_sizes() -> None:
    rules = samples.row_sums.definition.trace({"block_M": 16}, None)
    v = variant_of(rules, spec_of(rules, namespace="t", name="r"), ())
    assert v.tensors[0].strides is not None
    assert [r.kind for r in v.tensors[0].strides] == ["bind", "bind"]
    assert v.tensors[0].shape[0].kind == "solve"


def test_tensors_of_foreign_kernels_decide_no_alignment() -> None:
    a, b, c = (Buffer(10 + n, "ABC"[n], (v,), F16, "global") for n, v in enumerate((M, N, K)))
    sizes = tuple(Size(v, "dynamic") for v in (M, N, K))
    copied = Store(b, (literal(0),), Load(F16, a, (literal(0),)))
    launch = Launch((literal(1),), (Var(INT32, 20, "bx"),), 32, (copied,))
    theirs = tuple(ExternArg(x.name, "tensor", x) for x in (b, c))
    extern = Extern("triton", "kernel", (), (literal(1),), theirs)
    params = tuple(TensorParam(x.name, x) for x in (a, b, c))
    alone = Program("p", params[1:], sizes[1:], (), (), (), externs=(extern,))
    assert aligned_sizes(alone) == ()
    mixed = Program("p", params, sizes, (), (launch,), (), externs=(extern,))
    assert aligned_sizes(mixed) == (0, 1)  # C is only the foreign kernel's
