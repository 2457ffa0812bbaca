"""Owns the rewrite of expressions: logic, conditional expressions, comparisons, names."""

from __future__ import annotations

import ast

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


def _thunk(body: ast.expr) -> ast.expr:
    empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(empty, body)


class ExpressionRewriter(ast.NodeTransformer):
    """Rewrites a function's expressions; a hook checks each reading of one of ``region_names``."""

    def __init__(self, file: str, region_names: set[str]) -> None:
        self._file = file
        self._region_names = region_names

    def visit(self, node: ast.AST) -> ast.AST:
        """The rewritten node, at the place of the old one; ``node`` itself stays as it is."""
        out = super().visit(node)
        assert isinstance(out, ast.AST)
        if out is not node and isinstance(node, ast.expr) and not hasattr(out, "lineno"):
            ast.copy_location(out, node)
        return out

    def expr(self, node: ast.expr) -> ast.expr:
        """As ``visit``, for what is known to be an expression."""
        out = self.visit(node)
        assert isinstance(out, ast.expr)
        return out

    def generic_visit(self, node: ast.AST) -> ast.AST:
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

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """A literal."""
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """``and`` and ``or``."""
        name = "and_" if isinstance(node.op, ast.And) else "or_"
        values = [self.expr(v) for v in node.values]
        out = values[-1]
        for value in reversed(values[:-1]):
            out = ast.copy_location(hook(name, value, _thunk(out)), node)
        return out

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """``not``."""
        if isinstance(node.op, ast.Not):
            return hook("not_", self.expr(node.operand))
        return self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """``a if c else b``."""
        test, then, orelse = (self.expr(n) for n in (node.test, node.body, node.orelse))
        return hook("choose", test, _thunk(then), _thunk(orelse))

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """``a < b < c``."""
        if len(node.ops) == 1:
            return self.generic_visit(node)
        names = ast.Tuple([ast.Constant(type(op).__name__) for op in node.ops], ast.Load())
        values = [self.expr(n) for n in (node.left, *node.comparators)]
        operands = ast.Tuple(values, ast.Load())
        return hook("compare", names, operands)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """A name that is read."""
        if not isinstance(node.ctx, ast.Load):
            return node
        if node.id in self._region_names:
            return hook("read", ast.Constant(node.id), node)
        return hook("builtin", node) if node.id in _OVERRIDDEN else node

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.AST:
        """``:=``, which is refused."""
        raise ProgramSyntaxError(
            "`:=` cannot be used in a tile program", location=location_of(node, self._file)
        )

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        """A lambda is plain Python."""
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        """A comprehension is plain Python."""
        return node

    def visit_SetComp(self, node: ast.SetComp) -> ast.AST:
        """A comprehension is plain Python."""
        return node

    def visit_DictComp(self, node: ast.DictComp) -> ast.AST:
        """A comprehension is plain Python."""
        return node

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        """A comprehension is plain Python."""
        return node

    def visit_Await(self, node: ast.Await) -> ast.AST:
        """``await``, which is refused."""
        raise ProgramSyntaxError(
            "`await` cannot be used in a tile program", location=location_of(node, self._file)
        )

    def visit_Yield(self, node: ast.Yield) -> ast.AST:
        """``yield``, which is refused."""
        raise ProgramSyntaxError(
            "`yield` cannot be used in a tile program", location=location_of(node, self._file)
        )

    visit_YieldFrom = visit_Yield  # type: ignore[assignment]
