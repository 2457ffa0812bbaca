"""Schemas: what torch is told of each kind of parameter."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tileops
import tileops.language as T
from tests.programs import samples
from tileops.errors import ArgumentError

SCHEMAS = {
    "axpy": "axpy(Tensor X, Tensor Y, float alpha, *, int? block_N=None) -> Tensor",
    "add_into": "add_into(Tensor X, Tensor(a!) Y, *, int? block_N=None) -> ()",
    "sum_difference": (
        "sum_difference(Tensor X, Tensor Y, *, int? block_N=None) -> (Tensor, Tensor)"
    ),
    "scaled": (
        "scaled(Tensor X, *, float? factor=None, str? dtype=None, int? block_N=None) -> Tensor"
    ),
    "counted": (
        "counted(SymInt n, SymInt start, *, int? block_N=None, Device? device=None) -> Tensor"
    ),
    "row_sums": "row_sums(Tensor X, *, int? block_M=None) -> Tensor",
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema(name: str) -> None:
    program = getattr(samples, name)
    assert str(program.op._schema) == f"tileops::sample_{SCHEMAS[name]}"


def test_a_program_with_a_required_value_is_registered_at_its_first_call() -> None:
    @tileops.jit(name="schema_required")
    def program(X, dtype):
        N = T.const("N")
        X: T.Tensor((N,), dtype)
        Y = T.empty((N,), dtype)
        with T.Kernel(T.ceildiv(N, 64)) as bx:
            for i in T.Parallel(64):
                Y[bx * 64 + i] = X[bx * 64 + i]
        return Y

    assert not hasattr(torch.ops.tileops, "schema_required")
    program(torch.ones(5), "float32")
    assert str(torch.ops.tileops.schema_required.default._schema) == (
        "tileops::schema_required(Tensor X, *, str dtype) -> Tensor"
    )
    assert program(torch.ones(5, dtype=torch.int32), torch.int32).dtype == torch.int32


def test_lists_of_integers() -> None:
    @tileops.jit(name="schema_list")
    def program(X, tiles: list[int] = (32, 2)):
        N = T.const("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Kernel(T.ceildiv(N, tiles[0])) as bx:
            for i in T.Parallel(tiles[0]):
                Y[bx * tiles[0] + i] = X[bx * tiles[0] + i] * tiles[1]
        return Y

    assert "int[]? tiles=None" in str(program.op._schema)
    x = torch.ones(100)
    assert torch.equal(program(x), x * 2)
    assert torch.equal(program(x, [64, 3]), x * 3)
    assert torch.equal(program(x, tiles=(16, 4)), x * 4)


def test_mutates_names_what_one_trace_cannot_tell() -> None:
    @tileops.jit(name="schema_mutates", mutates=("Y",))
    def program(X, Y, write: bool = False):
        N = T.const("N")
        X: T.Tensor((N,), T.float32)
        Y: T.Tensor((N,), T.float32)
        with T.Kernel(1):
            if write:
                T.copy(X[0:1], Y[0:1])

    assert "Tensor(a!) Y" in str(program.op._schema)
    x, y = torch.ones(4), torch.zeros(4)
    program(x, y, write=True)
    assert y.tolist() == [1, 0, 0, 0]


def test_mutates_must_name_tensors() -> None:
    with pytest.raises(ArgumentError, match="mutates names 'Z'"):

        @tileops.jit(name="schema_bad_mutates", mutates=("Z",))
        def program(X):
            N = T.const("N")
            X: T.Tensor((N,), T.float32)
            with T.Kernel(1):
                X[0] = 0.0


def test_a_specialisation_that_writes_elsewhere_is_a_located_error() -> None:
    @tileops.jit(name="schema_writes")
    def program(X, Y, write: bool = False):
        N = T.const("N")
        X: T.Tensor((N,), T.float32)
        Y: T.Tensor((N,), T.float32)
        with T.Kernel(1):
            X[0] = 1.0
            if write:
                Y[0] = 1.0

    x, y = torch.zeros(4), torch.zeros(4)
    program(x, y)
    with pytest.raises(tileops.ProgramError, match=r"writes tensor `Y`.*mutates=\('Y',\)"):
        program(x, y, write=True)
    assert y.tolist() == [0, 0, 0, 0]


def test_more_arguments_and_results_than_an_op_has(tmp_path: Path) -> None:
    lines = ['    N = T.dynamic("N")', "    A: T.Tensor((N,), T.float32)"]
    outputs = [f"B{n}" for n in range(40)]
    lines += [f"    {b} = T.empty((N,), T.float32)" for b in outputs]
    lines += ["    with T.Kernel(1):", *(f"        {b}[0] = A[0]" for b in outputs)]
    lines += [f"    return {', '.join(outputs)}"]
    path = tmp_path / "forty.py"
    path.write_text("\n".join(["def forty(A):", *lines, ""]))
    scope = {"T": T, "__name__": "forty"}
    exec(compile(path.read_text(), path, "exec"), scope)
    with pytest.raises(ArgumentError, match="forty: an op returns at most 32 tensors, got 40"):
        tileops.jit(scope["forty"])
