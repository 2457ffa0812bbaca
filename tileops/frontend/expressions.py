"""The rewrite of expressions: logic, conditional expressions, comparisons, names."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from tileops.errors import ProgramSyntaxError
from tileops.frontend.source import location_of
from tileops.language.loops import REWRITTEN

HOOKS = REWRITTEN
_OVERRIDDEN = ("range", "min", "max", "print", "breakpoint")


def hook(name: str, *args: ast.expr) -> ast.expr:
    """A call of one hook."""
    method = ast.Attribute(ast.Name(HOOKS, ast.Load()), name, ast.Load())
    return ast.Call(method, list(args), [])


def hook_statement(name: str, *args: ast.expr) -> ast.stmt:
    """A call of one hook as a statement."""
    return ast.Expr(hook(name, *args))


def thunk(body: ast.expr, *names: str) -> ast.expr:
    """A lambda; without parameters, for what may not be evaluated."""
    args = [ast.arg(name) for name in names]
    parameters = ast.arguments(
        posonlyargs=[], args=args, kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    return ast.Lambda(parameters, body)


# Left as they are: plain Python, which runs while the program is traced.
_PLAIN = (
    ast.Constant, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip
REFUSED = {
    "NamedExpr": "`:=`",
    "Await": "`await`",
    "Yield": "`yield`",
    "YieldFrom": "`yield`",
}


class ExpressionRewriter:
    """Rewrites a function's expressions; a hook checks each reading of one of ``region_names``."""

    def __init__(self, file: str, region_names: set[str]) -> None:
        self._file = file
        self._region_names = region_names
        self._rewrites: dict[type[ast.AST], Callable[[Any], ast.AST]] = {
            ast.Name: self._name,
            ast.BoolOp: self._logic,
            ast.UnaryOp: self._unary,
            ast.IfExp: self._choice,
            ast.Compare: self._comparison,
        }

    def visit(self, node: ast.AST) -> ast.AST:
        """The rewritten node, at the place of the old one; ``node`` itself stays as it is."""
        kind = type(node)
        if kind in _PLAIN:
            return node
        if kind.__name__ in REFUSED:
            raise ProgramSyntaxError(
                f"{REFUSED[kind.__name__]} cannot be used in a tile program",
                location=location_of(node, self._file),
            )
        out = self._rewrites.get(kind, self._inside)(node)
        if out is not node and isinstance(node, ast.expr) and not hasattr(out, "lineno"):
            ast.copy_location(out, node)
        return out

    def expr(self, node: ast.expr) -> ast.expr:
        """As ``visit``, for what is known to be an expression."""
        out = self.visit(node)
        assert isinstance(out, ast.expr)
        return out

    def _inside(self, node: ast.AST) -> ast.AST:
        """``node``, or where something below it was rewritten a copy that has that."""
        changed: dict[str, object] = {}
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                new = [self.visit(v) if isinstance(v, ast.AST) else v for v in value]
                if any(a is not b for a, b in zip(new, value, strict=True)):
                    changed[name] = new
            elif isinstance(value, ast.AST) and value._fields:
                made = self.visit(value)
                if made is not value:
                    changed[name] = made
        return type(node)(**{**vars(node), **changed}) if changed else node

    def _logic(self, node: ast.BoolOp) -> ast.AST:
        name = "and_" if isinstance(node.op, ast.And) else "or_"
        values = [self.expr(v) for v in node.values]
        out = values[-1]
        for value in reversed(values[:-1]):
            out = ast.copy_location(hook(name, value, thunk(out)), node)
        return out

    def _unary(self, node: ast.UnaryOp) -> ast.AST:
        if isinstance(node.op, ast.Not):
            return hook("not_", self.expr(node.operand))
        return self._inside(node)

    def _choice(self, node: ast.IfExp) -> ast.AST:
        test, then, orelse = (self.expr(n) for n in (node.test, node.body, node.orelse))
        return hook("choose", test, thunk(then), thunk(orelse))

    def _comparison(self, node: ast.Compare) -> ast.AST:
        if len(node.ops) == 1:
            return self._inside(node)
        values = [self.expr(n) for n in (node.left, *node.comparators)]
        a, b = ast.Name("a", ast.Load()), ast.Name("b", ast.Load())
        ops = [thunk(ast.Compare(a, [op], [b]), "a", "b") for op in node.ops]
        return hook("compare", ast.Tuple(ops, ast.Load()), ast.Tuple(values, ast.Load()))

    def _name(self, node: ast.Name) -> ast.AST:
        if not isinstance(node.ctx, ast.Load):
            return node
        if node.id in self._region_names:
            return hook("read", ast.Constant(node.id), node)
        return hook("builtin", node) if node.id in _OVERRIDDEN else node
