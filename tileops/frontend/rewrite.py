"""The rewrite of a program's syntax tree: statements and expressions become calls of hooks.

The rewritten function calls methods of one free variable, ``REWRITTEN`` (see ``frame``). User names
stay ordinary Python locals, so closures, helpers and expressions need no translation.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Callable, Sequence
from itertools import chain, repeat
from types import CodeType, FunctionType
from typing import Any, NamedTuple, cast

from tileops.errors import ProgramSyntaxError
from tileops.frontend.extern_body import is_extern, makes_descriptor, plain_body
from tileops.frontend.scopes import (
    assigned_names,
    carried_names,
    child_nodes,
    region_names,
    target_names,
)
from tileops.frontend.source import ByCode, function_tree, keep_inner, location_of
from tileops.language.loops import REWRITTEN
from tileops.location import Location


class Rewritten(NamedTuple):
    """A rewritten function: code with the free name ``REWRITTEN``, and the statements' places."""

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
    rewriter = _Rewriter(tree, file)
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
        args=_taking(REWRITTEN, *func.__code__.co_freevars),
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
    changed: dict[str, Sequence[ast.AST | None]] = {
        kind: [ast.copy_location(ast.arg(p.arg), p) for p in getattr(args, kind)]
        for kind in ("posonlyargs", "args", "kwonlyargs")
    }
    changed["kw_defaults"] = [d and ast.Constant(None) for d in args.kw_defaults]
    changed["defaults"] = [ast.Constant(None) for _ in args.defaults]
    return ast.arguments(**{**vars(args), **changed})


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


# What the language does not have, by the name of the node: some exist only in later Pythons.
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
    "NamedExpr": "`:=`",
    "Await": "`await`",
    "Yield": "`yield`",
    "YieldFrom": "`yield`",
}
# Left as they are: plain Python, which runs while the program is traced.
_PLAIN = (
    ast.Constant, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip
_OVERRIDDEN = ("range", "min", "max", "print", "breakpoint")


def hook(name: str, *args: ast.expr) -> ast.expr:
    """A call of one hook."""
    method = ast.Attribute(ast.Name(REWRITTEN, ast.Load()), name, ast.Load())
    return ast.Call(method, list(args), [])


def hook_statement(name: str, *args: ast.expr) -> ast.stmt:
    """A call of one hook as a statement."""
    return ast.Expr(hook(name, *args))


def thunk(body: ast.expr, *names: str) -> ast.expr:
    """A lambda; without parameters, for what may not be evaluated."""
    return ast.Lambda(_taking(*names), body)


def _taking(*names: str) -> ast.arguments:
    args = [ast.arg(name) for name in names]
    return ast.arguments(posonlyargs=[], args=args, kwonlyargs=[], kw_defaults=[], defaults=[])


class _Rewriter:
    """Rewrites one function; a hook checks each reading of a name that is assigned in a region."""

    def __init__(self, tree: ast.FunctionDef, file: str) -> None:
        self.file = file
        self.locations: list[Location] = []
        self._region_names = region_names(tree.body)
        self._temporaries = 0
        self._carried: list[set[str]] = []
        self._rewrites: dict[type[ast.AST], Callable[[Any], ast.AST]] = {
            ast.Name: self._name,
            ast.BoolOp: self._logic,
            ast.UnaryOp: self._unary,
            ast.IfExp: self._choice,
            ast.Compare: self._comparison,
            ast.Call: self._call,
        }

    # -- pieces ----------------------------------------------------------------------------------
    def at(self, node: ast.AST, names: Sequence[str] = ()) -> ast.stmt:
        """The hook that tells the place of the next statement and the names of its results."""
        self.locations.append(location_of(node, self.file))
        labels = [_texts(names)] if names else []
        return hook_statement("at", ast.Constant(len(self.locations) - 1), *labels)

    def temporary(self) -> str:
        """A new name that no user writes."""
        self._temporaries += 1
        return f"__tileops_{self._temporaries}"

    def refuse(self, node: ast.AST, what: str) -> ProgramSyntaxError:
        """The error for a Python form that the language does not have."""
        where = location_of(node, self.file)
        return ProgramSyntaxError(f"{what} cannot be used in a tile program", location=where)

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
                for e, n in zip(value.elts, chain(names, repeat("value")), strict=False)
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
        is_carried = any(name in carried for carried in self._carried)
        return hook("bind", ast.Constant(name), value, *([ast.Constant(True)] * is_carried))

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
        opened = hook("begin_for", self.expr(node.iter), _texts(names))
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
        targets = [item.optional_vars for item in node.items if item.optional_vars]
        names = [name for target in targets for name in target_names(target)]
        out: list[ast.stmt] = [self.at(node.items[0].context_expr, names)]
        items = []
        entered: list[ast.stmt] = []
        for item in node.items:
            value = self.temporary()
            context = hook("enter", self.expr(item.context_expr))
            items.append(ast.withitem(context, ast.Name(value, ast.Store())))
            if item.optional_vars is not None:
                entered += self.assign_any(item.optional_vars, ast.Name(value, ast.Load()))
        inner = plain_body(node.body, self) if is_extern(node) else self.block(node.body)
        body: list[ast.stmt] = [ast.If(hook("runs_body"), [*entered, *inner], [])]
        return [*out, ast.With(items, body)]

    # -- expressions ------------------------------------------------------------------------------
    def visit(self, node: ast.AST) -> ast.AST:
        """The rewritten node, at the place of the old one; ``node`` itself stays as it is."""
        kind = type(node)
        if kind in _PLAIN:
            return node
        if kind.__name__ in REFUSED:
            raise self.refuse(node, REFUSED[kind.__name__])
        out = self._rewrites.get(kind, self._inside)(node)
        if out is not node and isinstance(node, ast.expr) and not hasattr(out, "lineno"):
            ast.copy_location(out, node)
        return out

    def expr(self, node: ast.expr) -> ast.expr:
        """As ``visit``, for what is known to be an expression."""
        return cast("ast.expr", self.visit(node))

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

    def _call(self, node: ast.Call) -> ast.AST:
        """A call; that of a subscript, ``kernel[grid](...)``, may launch a foreign kernel."""
        out = self._inside(node)
        if isinstance(out, ast.Call) and makes_descriptor(node):
            return ast.Call(hook("descriptor", out.func), out.args, out.keywords)
        if not isinstance(node.func, ast.Subscript) or isinstance(node.func.slice, ast.Slice):
            return out
        function = self.expr(node.func)
        assert isinstance(out, ast.Call)
        assert isinstance(function, ast.Subscript)
        return ast.Call(hook("launcher", function.value, function.slice), out.args, out.keywords)

    def _name(self, node: ast.Name) -> ast.AST:
        if not isinstance(node.ctx, ast.Load):
            return node
        if node.id in self._region_names:
            return hook("read", ast.Constant(node.id), node)
        return hook("builtin", node) if node.id in _OVERRIDDEN else node


def _when(test: str, name: str, value: str) -> ast.stmt:
    """Give ``name`` what the hook ``value`` returns if the hook ``test`` says so."""
    given = ast.Assign([ast.Name(name, ast.Store())], hook(value, ast.Constant(name)))
    return ast.If(hook(test, ast.Constant(name)), [given], [])


def _texts(texts: Sequence[str]) -> ast.expr:
    return ast.Tuple([ast.Constant(t) for t in texts], ast.Load())
