"""What nodes declare: each has a text, and names only fields that it has."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tileops.ir import explicit, expr, stmt, threads, tile_operations
from tileops.ir.expr import Expr
from tileops.ir.node import Stmt
from tileops.ir.tile_operations import Reduction, TileOperation

CLASSES = [
    value
    for module in (expr, stmt, tile_operations, explicit, threads)
    for value in vars(module).values()
    if isinstance(value, type) and value.__module__ == module.__name__
]
STATEMENTS = [
    c
    for c in CLASSES
    if issubclass(c, Stmt) and c not in (TileOperation, Reduction, explicit.BarrierStep)
]
EXPRESSIONS = [c for c in CLASSES if issubclass(c, Expr) and c is not Expr]


@pytest.mark.parametrize("kind", STATEMENTS, ids=lambda c: c.__name__)
def test_a_statement_names_its_own_fields_and_has_a_text(kind: type[Stmt]) -> None:
    names = {f.name for f in fields(kind)}
    declared = {*kind.BODIES, *kind.DEFINES, *kind.READS, *kind.WRITES, *kind.DTYPES}
    assert declared <= names
    assert set(kind.DTYPES.values()) <= names | {"bool", "int32", "int64", "uint64"}
    assert kind.TEXT or kind.text is not Stmt.text


@pytest.mark.parametrize("kind", EXPRESSIONS, ids=lambda c: c.__name__)
def test_an_expression_names_its_own_fields_and_has_a_text(kind: type[Expr]) -> None:
    assert set(kind.OPERANDS) <= {f.name for f in fields(kind)}
    assert kind.text is not Expr.text
