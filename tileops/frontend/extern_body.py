"""The body of ``with T.Extern()``: plain Python, but for launches and choices between sizes."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Sequence
from typing import Protocol, cast


class Rewriter(Protocol):
    """What the body needs of the rewriter of its function."""

    def at(self, node: ast.AST, names: Sequence[str] = ()) -> ast.stmt:
        """The hook that tells the place of the next statement."""

    def expr(self, node: ast.expr) -> ast.expr:
        """The rewritten expression."""

    def on_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        """The place and the check: each call makes it where it is of run-time sizes."""


def is_extern(node: ast.With) -> bool:
    """True for ``with T.Extern(...)``, by its spelling."""
    made = node.items[0].context_expr
    function = made.func if isinstance(made, ast.Call) else None
    name = getattr(function, "attr", getattr(function, "id", None))
    return len(node.items) == 1 and name == "Extern"


def makes_descriptor(node: ast.Call) -> bool:
    """True for ``TensorDescriptor(...)`` and ``x.from_tensor(...)``, by their spelling."""
    name = str(getattr(node.func, "attr", getattr(node.func, "id", "")))
    return name == "from_tensor" or name.startswith("TensorDescriptor")


def plain_body(body: Sequence[ast.stmt], rewriter: Rewriter) -> list[ast.stmt]:
    """The statements as they are, each with its place; expressions go through the hooks.

    So `min`, `max`, `and`, `or`, `not`, conditional expressions and asserts work on run-time sizes,
    also in lambdas and functions, and ``kernel[grid](...)`` becomes a launch.
    """
    return _Body(rewriter).statements(copy.deepcopy(list(body)))


class _Body(ast.NodeTransformer):
    def __init__(self, rewriter: Rewriter) -> None:
        self._rewriter = rewriter

    def statements(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for node in body:
            if isinstance(node, ast.Assert):
                out += self._rewriter.on_Assert(node)
                continue
            place = ast.copy_location(self._rewriter.at(node), node)
            out += [place, cast("ast.stmt", self.visit(node))]
        return out

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, name, self.statements(value))
            elif isinstance(value, list):
                setattr(node, name, [self._visited(v) for v in value])
            elif isinstance(value, ast.AST):
                setattr(node, name, self._visited(value))
        return node

    def _visited(self, value: object) -> object:
        return self.visit(value) if isinstance(value, ast.AST) else value

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.FunctionDef):
            node.body = self.statements(node.body)
            return node
        if isinstance(node, (ast.AsyncFunctionDef, ast.ClassDef)):
            return node
        if isinstance(node, ast.Lambda):
            node.body = self._hooked(node.body)
            return node
        is_target = isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del))
        if isinstance(node, ast.expr) and not is_target:
            return self._hooked(node)
        return self.generic_visit(node)

    def _hooked(self, node: ast.expr) -> ast.expr:
        if isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)):
            return node
        return self._rewriter.expr(_WithLambdas(self._hooked).visit(node))


class _WithLambdas(ast.NodeTransformer):
    """Rewrites the lambdas and comprehensions of an expression, which the hooks leave alone."""

    def __init__(self, rewrite: Callable[[ast.expr], ast.expr]) -> None:
        self._rewrite = rewrite

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        node.body = self._rewrite(node.body)
        return node

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.GeneratorExp:
        self._comprehended(node)
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.ListComp:
        self._comprehended(node)
        return node

    def visit_SetComp(self, node: ast.SetComp) -> ast.SetComp:
        self._comprehended(node)
        return node

    def visit_DictComp(self, node: ast.DictComp) -> ast.DictComp:
        node.key, node.value = self._rewrite(node.key), self._rewrite(node.value)
        self._loops(node.generators)
        return node

    def _comprehended(self, node: ast.GeneratorExp | ast.ListComp | ast.SetComp) -> None:
        node.elt = self._rewrite(node.elt)
        self._loops(node.generators)

    def _loops(self, generators: list[ast.comprehension]) -> None:
        for loop in generators:
            loop.iter = self._rewrite(loop.iter)
            loop.ifs = [self._rewrite(test) for test in loop.ifs]
