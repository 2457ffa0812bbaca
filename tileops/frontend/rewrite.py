"""The rewrite of a program's syntax tree: control flow and assignment become calls of hooks.

The rewritten function calls methods of one free variable, ``HOOKS`` (see ``frame``). User names
stay ordinary Python locals, so closures, helpers and expressions need no translation.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Sequence
from types import CodeType, FunctionType
from typing import NamedTuple

from tileops.errors import ProgramSyntaxError
from tileops.frontend.expressions import HOOKS, ExpressionRewriter, hook, hook_statement, thunk
from tileops.frontend.scopes import (
    assigned_names,
    carried_names,
    child_nodes,
    region_names,
    target_names,
)
from tileops.frontend.source import ByCode, function_tree, keep_inner, location_of
from tileops.location import Location


class Rewritten(NamedTuple):
    """A rewritten function: its code, with ``HOOKS`` a free name, and its statements' places."""

    code: CodeType
    locations: tuple[Location, ...]


_cache = ByCode[Rewritten]()


def rewritten(func: FunctionType) -> Rewritten:
    """The rewritten form of ``func``, made once; ProgramSyntaxError for a refused form."""
    found = _cache.get(func.__code__)
    return _cache.put(func.__code__, _rewrite(func)) if found is None else found


def _rewrite(func: FunctionType) -> Rewritten:
    tree = function_tree(func)
    file = func.__code__.co_filename
    rewriter = _StatementRewriter(tree, file)
    changed = {
        # Not its own name: that would be a name of the factory around it.
        "name": "__tileops_function__",
        "args": _bare(tree.args),
        "body": rewriter.block(tree.body) or [ast.Pass()],
        "decorator_list": [],
        "returns": None,
    }
    function = ast.FunctionDef(**{**vars(tree), **changed})
    factory = ast.FunctionDef(
        name="__tileops_factory__",
        args=ast.arguments(
            posonlyargs=[],
            args=[ast.arg(n) for n in (HOOKS, *func.__code__.co_freevars)],
            kwonlyargs=[],
            kw_defaults=[],
            defaults=[],
        ),
        body=[function],
        decorator_list=[],
    )
    if sys.version_info >= (3, 12):
        factory.type_params = []
    ast.copy_location(factory, tree)
    module = ast.Module(body=[factory], type_ignores=[])
    _fill_places(module)
    compiled = compile(module, file, "exec")
    code = _inner_code(_inner_code(compiled)).replace(co_name=func.__code__.co_name)
    keep_inner(tree, code)
    return Rewritten(code, tuple(rewriter.locations))


def _bare(args: ast.arguments) -> ast.arguments:
    """The parameters without annotations, and with None for each default: calls pass all values."""

    def bare(parameters: list[ast.arg]) -> list[ast.arg]:
        return [ast.copy_location(ast.arg(p.arg), p) for p in parameters]

    return ast.arguments(
        posonlyargs=bare(args.posonlyargs),
        args=bare(args.args),
        vararg=args.vararg,
        kwonlyargs=bare(args.kwonlyargs),
        kw_defaults=[None if d is None else ast.Constant(None) for d in args.kw_defaults],
        kwarg=args.kwarg,
        defaults=[ast.Constant(None) for _ in args.defaults],
    )


_PLACE = ("lineno", "col_offset", "end_lineno", "end_col_offset")


def _fill_places(tree: ast.AST) -> None:
    """Give each node without a place its parent's: what ``ast.fix_missing_locations`` does.

    It takes half the time, a part of every warm start.
    """
    vars(tree).update(zip(_PLACE, (1, 0, 1, 0), strict=True))
    pending = [tree]
    while pending:
        parent = pending.pop()
        place = vars(parent)
        for node in child_nodes(parent):
            own = vars(node)
            if "lineno" not in own:
                for name in _PLACE:
                    own[name] = place[name]
            pending.append(node)


def _inner_code(code: CodeType) -> CodeType:
    return next(c for c in code.co_consts if isinstance(c, CodeType))


# Statements, by the name of the node: some exist only in later versions of Python.
REFUSED = {
    "Try": "`try`",
    "TryStar": "`try`",
    "Delete": "`del`",
    "Global": "`global`",
    "Nonlocal": "`nonlocal`",
    "AsyncFor": "`async for`",
    "AsyncWith": "`async with`",
    "AsyncFunctionDef": "`async def`",
    "Match": "`match`",
    "ClassDef": "a class definition",
    "TypeAlias": "`type`",
}


class _StatementRewriter:
    """Rewrites the statements of one function."""

    def __init__(self, tree: ast.FunctionDef, file: str) -> None:
        self.file = file
        self.locations: list[Location] = []
        self.expressions = ExpressionRewriter(file, region_names(tree.body))
        self._temporaries = 0
        self._carried: list[set[str]] = []

    # -- pieces ----------------------------------------------------------------------------------
    def expr(self, node: ast.expr) -> ast.expr:
        """A rewritten expression."""
        return self.expressions.expr(node)

    def at(self, node: ast.AST, names: Sequence[str] = ()) -> ast.stmt:
        """The hook that tells the place of the next statement and the names of its results."""
        self.locations.append(location_of(node, self.file))
        args: list[ast.expr] = [ast.Constant(len(self.locations) - 1)]
        if names:
            args.append(ast.Tuple([ast.Constant(n) for n in names], ast.Load()))
        return hook_statement("at", *args)

    def temporary(self) -> str:
        """A new name that no user writes."""
        self._temporaries += 1
        return f"__tileops_{self._temporaries}"

    def refuse(self, node: ast.AST, what: str, instead: str = "") -> ProgramSyntaxError:
        """The error for a Python form that the language does not have."""
        return ProgramSyntaxError(
            f"{what} cannot be used in a tile program{instead}",
            location=location_of(node, self.file),
        )

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """A rewritten statement list; statements after break, continue or return are dropped."""
        out: list[ast.stmt] = []
        for position, node in enumerate(body):
            new = self.statement(node)
            # What is new inside takes its parent's place in the end (_fill_places).
            out += [ast.copy_location(made, node) for made in new]
            if isinstance(node, (ast.Break, ast.Continue, ast.Return)) and position + 1 < len(body):
                where = location_of(body[position + 1], self.file)
                warnings.warn(
                    f"{where.file}:{where.line}: statements after break, continue or return are "
                    "dropped",
                    stacklevel=2,
                )
                break
        return out

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        """One rewritten statement, with its location hook."""
        kind = type(node).__name__
        if kind in REFUSED:
            raise self.refuse(node, REFUSED[kind])
        method = getattr(self, f"on_{kind}", None)
        return method(node) if method is not None else [self.at(node), node]

    # -- simple statements -------------------------------------------------------------------------
    def on_Expr(self, node: ast.Expr) -> list[ast.stmt]:
        if isinstance(node.value, ast.Constant):
            return [node]
        return [self.at(node), ast.Expr(self.expr(node.value))]

    def on_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        message = self.expr(node.msg) if node.msg is not None else ast.Constant("assertion failed")
        return [self.at(node), hook_statement("check", self.expr(node.test), thunk(message))]

    def on_Return(self, node: ast.Return) -> list[ast.stmt]:
        value = ast.Constant(None) if node.value is None else self.expr(node.value)
        return [self.at(node), ast.Return(hook("leave", value))]

    def on_Break(self, node: ast.Break) -> list[ast.stmt]:
        return [self.at(node), hook_statement("break_")]

    def on_Continue(self, node: ast.Continue) -> list[ast.stmt]:
        return [self.at(node), hook_statement("continue_")]

    # -- assignment --------------------------------------------------------------------------------
    def on_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        names = [n for t in node.targets for n in target_names(t)]
        out: list[ast.stmt] = [self.at(node, names)]
        target = node.targets[0]
        if len(node.targets) == 1 and isinstance(target, (ast.Name, ast.Subscript)):
            return [*out, self.assign_leaf(target, self.expr(node.value))]
        value = self.expr(node.value)
        if isinstance(node.value, (ast.Tuple, ast.List)) and isinstance(
            value, (ast.Tuple, ast.List)
        ):
            # All right-hand sides are read before the first target changes: `a, b = b, a`.
            elements: list[ast.expr] = [
                e if isinstance(e, ast.Starred) else hook("read_now", ast.Constant(n), e)
                for e, n in zip(value.elts, _padded(names, len(value.elts)), strict=True)
            ]
            value = ast.copy_location(type(value)(elements, ast.Load()), node.value)
        elif len(node.targets) > 1:
            value = hook("read_now", ast.Constant(names[0] if names else "value"), value)
        whole = self.temporary()
        out.append(ast.Assign([ast.Name(whole, ast.Store())], value))
        for target in node.targets:
            out += self.assign_any(target, ast.Name(whole, ast.Load()))
        return out

    def assign_any(self, target: ast.expr, value: ast.expr) -> list[ast.stmt]:
        """Assign to any target; tuples are taken apart first, leaves assigned left to right."""
        if not isinstance(target, (ast.Tuple, ast.List)):
            return [self.assign_leaf(target, value)]
        leaves: list[tuple[ast.expr, str]] = []
        pattern = self.pattern(target, leaves)
        out: list[ast.stmt] = [ast.Assign([pattern], value)]
        out += [self.assign_leaf(leaf, ast.Name(name, ast.Load())) for leaf, name in leaves]
        return out

    def pattern(self, target: ast.expr, leaves: list[tuple[ast.expr, str]]) -> ast.expr:
        """``target`` with every leaf replaced by a temporary name."""
        if isinstance(target, (ast.Tuple, ast.List)):
            return ast.Tuple([self.pattern(e, leaves) for e in target.elts], ast.Store())
        if isinstance(target, ast.Starred):
            return ast.Starred(self.pattern(target.value, leaves), ast.Store())
        name = self.temporary()
        leaves.append((target, name))
        return ast.Name(name, ast.Store())

    def assign_leaf(self, target: ast.expr, value: ast.expr) -> ast.stmt:
        """Assign to one name or subscript."""
        if isinstance(target, ast.Name):
            return ast.Assign([ast.Name(target.id, ast.Store())], self.bound(target.id, value))
        if isinstance(target, ast.Subscript):
            return ast.Assign([self.stored(target)], value)
        raise self.refuse(target, "assignment to an attribute")

    def bound(self, name: str, value: ast.expr) -> ast.expr:
        """The hook that binds ``name``; it is told where the name carries a value around a loop."""
        args = [ast.Constant(name), value]
        if any(name in carried for carried in self._carried):
            args.append(ast.Constant(True))
        return hook("bind", *args)

    def on_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        at, target, value = self.at(node, target_names(node.target)), node.target, node.value
        if isinstance(target, ast.Name):
            current = self.expr(ast.copy_location(ast.Name(target.id, ast.Load()), target))
            new = self.temporary()
            return [
                at,
                ast.Assign([ast.Name(new, ast.Store())], hook("augmented", current)),
                ast.AugAssign(ast.Name(new, ast.Store()), node.op, self.expr(value)),
                self.assign_leaf(target, ast.Name(new, ast.Load())),
            ]
        if isinstance(target, ast.Subscript):
            return [at, ast.AugAssign(self.stored(target), node.op, self.expr(value))]
        raise self.refuse(target, "assignment to an attribute")

    def stored(self, target: ast.Subscript) -> ast.Subscript:
        """A subscript that is assigned to."""
        new = ast.Subscript(self.expr(target.value), self.expr(target.slice), ast.Store())
        return ast.copy_location(new, target)

    def on_AnnAssign(self, node: ast.AnnAssign) -> list[ast.stmt]:
        if not isinstance(node.target, ast.Name):
            raise self.refuse(node, "an annotation of something that is not a name")
        name = node.target.id
        at, annotation = self.at(node, (name,)), self.expr(node.annotation)
        if node.value is None:
            declared = hook("declare", ast.Constant(name), annotation)
            return [at, ast.Assign([ast.Name(name, ast.Store())], declared)]
        value = hook("annotated", self.expr(node.value), thunk(annotation))
        return [at, self.assign_leaf(node.target, value)]

    # -- control flow ----------------------------------------------------------------------------
    def on_If(self, node: ast.If) -> list[ast.stmt]:
        names = assigned_names([*node.body, *node.orelse])

        def state() -> list[ast.expr]:
            return [ast.Call(ast.Name("locals", ast.Load()), [], [])] if names else []

        test = self.expr(node.test)
        return [
            self.at(node.test),
            ast.If(hook("then", test, *state()), self.block(node.body), []),
            *([hook_statement("middle", *state())] if names else []),
            *(_when("restores", n, "before") for n in names),
            ast.If(hook("otherwise"), self.block(node.orelse) or [ast.Pass()], []),
            hook_statement("end_if", *state()),
            *(_when("merges", n, "merged") for n in names),
        ]

    def on_For(self, node: ast.For) -> list[ast.stmt]:
        if node.orelse:
            raise self.refuse(node.orelse[0], "`else` of a loop")
        names = target_names(node.target)
        row = node.target
        targets = row.elts if isinstance(row, (ast.Tuple, ast.List)) else [row]
        if not all(isinstance(t, ast.Name) for t in targets):
            raise self.refuse(node.target, "a loop variable that is not a name")
        out: list[ast.stmt] = [self.at(node.iter, names)]
        labels = ast.Tuple([ast.Constant(n) for n in names], ast.Load())
        opened = hook("begin_for", self.expr(node.iter), labels)
        target: ast.expr = ast.Tuple([ast.Name(n, ast.Store()) for n in names], ast.Store())
        self._carried.append(carried_names(node.body))
        body = self.block(node.body)
        self._carried.pop()
        return [*out, ast.Assign([target], opened), *body, hook_statement("end_for")]

    def on_While(self, node: ast.While) -> list[ast.stmt]:
        if node.orelse:
            raise self.refuse(node.orelse[0], "`else` of a loop")
        self._carried.append(carried_names([ast.Expr(node.test), *node.body]))
        out = [
            self.at(node.test),
            hook_statement("before_while"),
            ast.If(hook("begin_while", self.expr(node.test)), self.block(node.body), []),
            hook_statement("end_while"),
        ]
        self._carried.pop()
        return out

    def on_With(self, node: ast.With) -> list[ast.stmt]:
        names = [
            n for item in node.items if item.optional_vars for n in target_names(item.optional_vars)
        ]
        out: list[ast.stmt] = [self.at(node.items[0].context_expr, names)]
        items = []
        entered: list[ast.stmt] = []
        for item in node.items:
            value = self.temporary()
            context = hook("enter", self.expr(item.context_expr))
            items.append(ast.withitem(context, ast.Name(value, ast.Store())))
            if item.optional_vars is not None:
                entered += self.assign_any(item.optional_vars, ast.Name(value, ast.Load()))
        body: list[ast.stmt] = [ast.If(hook("runs_body"), [*entered, *self.block(node.body)], [])]
        return [*out, ast.With(items, body)]


def _when(test: str, name: str, value: str) -> ast.stmt:
    """Give ``name`` what the hook ``value`` returns if the hook ``test`` says so."""
    given = ast.Assign([ast.Name(name, ast.Store())], hook(value, ast.Constant(name)))
    return ast.If(hook(test, ast.Constant(name)), [given], [])


def _padded(names: list[str], count: int) -> list[str]:
    return (names + ["value"] * count)[:count]
