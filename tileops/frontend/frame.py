"""A rewritten function running: its arguments, the macros that it calls, and its hooks."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial, reduce
from itertools import islice
from types import CellType, FunctionType
from typing import Any, cast

from tileops.errors import ProgramError, ProgramSyntaxError, ProgramTypeError, ProgramValueError
from tileops.frontend.branches import Branch
from tileops.frontend.inspections import Inspections
from tileops.frontend.rewrite import rewritten
from tileops.ir import fold
from tileops.ir.expr import Const, Expr
from tileops.ir.stmt import Assert, Break, Continue, If, Stmt, While
from tileops.language.arithmetic import maximum, minimum
from tileops.language.buffers import BufferRef, Element, RegionRef, VarRef
from tileops.language.descriptors import descriptor_maker
from tileops.language.extern import ExternFrame, launcher
from tileops.language.launch import KernelFrame
from tileops.language.loops import REWRITTEN, LoopFrame, not_a_loop, range_, serial
from tileops.language.parameter_types import OpenDType, Ref, Var
from tileops.language.tracer import OpenRegion, Tracer
from tileops.language.value import (
    Value,
    as_dtype,
    bind,
    describe,
    has_load,
    is_scalar,
    snapshot,
    to_expr,
)
from tileops.language.vectors import Vector
from tileops.location import Location, printable

_LOOPS = ("for", "parallel", "while")


def run(
    tracer: Tracer,
    func: FunctionType,
    arguments: Mapping[str, object],
    declare_parameter: Callable[[str, object], object] | None = None,
    calls: tuple[tuple[str, Location], ...] = (),
) -> object:
    """Run ``func`` rewritten, with one value a parameter; what it returns.

    ``calls`` are the macros that led here, ``func`` first.
    """
    code, locations = rewritten(func)
    cells = dict(zip(func.__code__.co_freevars, func.__closure__ or (), strict=True))
    cells[REWRITTEN] = CellType(_Frame(tracer, locations, arguments, declare_parameter, calls))
    closure = tuple(cells[name] for name in code.co_freevars)
    instance = FunctionType(code, func.__globals__, func.__name__, None, closure)
    own = func.__code__
    names = iter(own.co_varnames)
    by_position = [arguments[name] for name in islice(names, own.co_argcount)]
    by_name = {name: arguments[name] for name in islice(names, own.co_kwonlyargcount)}
    if own.co_flags & inspect.CO_VARARGS:
        by_position += cast("tuple[object, ...]", arguments[next(names)])
    if own.co_flags & inspect.CO_VARKEYWORDS:
        by_name.update(cast("Mapping[str, object]", arguments[next(names)]))
    return instance(*by_position, **by_name)


# Each call takes several frames of Python's stack, which has a thousand.
_DEEPEST = 64


def inline_macro(
    tracer: Tracer, func: FunctionType, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> object:
    """Trace a macro into the running program; what it returns.

    Parameters annotated T.Ref, or T.Var as long as they can be assigned to, are passed by
    reference; other scalars are bound to what they are now.
    """
    caller, names = tracer.location, tracer.names
    calls = () if caller is None else ((func.__name__, replace(caller, calls=())), *caller.calls)
    if len(calls) > _DEEPEST:
        raise ProgramError(
            f"macro {func.__name__}: macros call each other more than {_DEEPEST} deep; a macro "
            "that calls itself needs a condition that Python decides",
            location=caller,
        )
    signature = inspect.signature(func)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ProgramTypeError(f"macro {func.__name__}: {error}", location=caller) from error
    bound.apply_defaults()
    arguments: dict[str, object] = {}
    for name, value in bound.arguments.items():
        annotation = signature.parameters[name].annotation
        word = annotation.split(".")[-1] if isinstance(annotation, str) else None
        is_ref, is_var = annotation is Ref or word == "Ref", annotation is Var or word == "Var"
        is_number = isinstance(value, (Value, bool, int, float)) and not isinstance(value, Element)
        if is_ref and is_number:
            raise ProgramTypeError(
                f"macro {func.__name__}: `{name}` is passed by reference and needs a T.alloc_var, "
                "an element or a slice",
                location=caller,
            )
        if is_ref or (is_var and isinstance(value, (Element, RegionRef))):
            arguments[name] = value
        else:
            if isinstance(value, VarRef):
                value.fresh = False
            arguments[name] = snapshot(name, value)
    result = run(tracer, func, arguments, calls=calls)
    tracer.location = caller
    tracer.names = names
    return result


class _Frame:
    """The hooks of one running function: its names, its open branches and loops.

    ``declare_parameter`` handles ``name: T.Tensor(...)``; only the outermost function of a program
    has it. ``calls`` are the macros that led here (see ``Location``).
    """

    def __init__(
        self,
        tracer: Tracer,
        locations: tuple[Location, ...],
        parameters: Mapping[str, object],
        declare_parameter: Callable[[str, object], object] | None = None,
        calls: tuple[tuple[str, Location], ...] = (),
    ) -> None:
        self._tracer = tracer
        self._locations = locations
        self._calls = calls
        self._declare_parameter = declare_parameter
        self._base = len(tracer.regions)
        self._refs = {n: v for n, v in parameters.items() if isinstance(v, (Element, RegionRef))}
        self._scopes: dict[str, OpenRegion | None] = dict.fromkeys(parameters, tracer.region)
        self._branches: list[Branch] = []
        self._loops: list[LoopFrame | None] = []
        self._while_conditions: list[Expr] = []
        self._runs_body = True
        self._ended: Branch | None = None

    # -- places and names ------------------------------------------------------------------------
    def at(self, number: int, names: tuple[str, ...] = ()) -> None:
        """The statement that runs next, and the names of what it makes."""
        place = self._locations[number]
        self._tracer.location = replace(place, calls=self._calls) if self._calls else place
        self._tracer.names = list(names)

    def read(self, name: str, value: object) -> object:
        """The value of a name that is assigned in a region; an error after the region."""
        scope = self._scopes.get(name)
        if scope is not None and name not in self._refs and scope not in self._tracer.regions:
            raise self._tracer.dead_name(name, scope.describe())
        return value

    def bind(self, name: str, value: object, carried: bool = False) -> object:
        """``name = value``: a store for a variable, else an immutable snapshot."""
        ref = self._refs.get(name)
        if isinstance(value, VarRef) and value.fresh:
            value.fresh = False
            self._refs[name] = value
            self._scopes[name] = self._tracer.region
            return value
        if isinstance(ref, Element):
            ref.store(value)
            return ref
        if carried and name in self._scopes:
            self._check_carried(name)
        self._refs.pop(name, None)
        self._scopes[name] = self._tracer.region
        for branch in self._branches:
            branch.assigned.add(name)
        if isinstance(value, (RegionRef, Vector)):
            return value.snapshot(name)
        return snapshot(name, value)

    def _check_carried(self, name: str) -> None:
        """Refuse to change a name from before the loop: each iteration would see it."""
        regions, scope = self._tracer.regions, self._scopes[name]
        inside = regions.index(scope) + 1 if scope in regions else self._base
        if scope is not None and scope not in regions:
            return
        loop = next((r for r in regions[inside:] if r.kind in _LOOPS), None)
        if loop is not None:
            raise ProgramValueError(
                f"`{name}` is an immutable value from before the {loop.describe()} and is changed "
                "in it; make it a T.alloc_var to carry a value from one iteration to the next"
            )

    def augmented(self, current: object) -> object:
        """``current``, of which an augmented assignment makes the new value."""
        if isinstance(current, BufferRef):
            raise ProgramTypeError(
                f"`{current.name}` is a buffer; update its elements, as in {current.name}[i, j] "
                "+= ..."
            )
        return current

    def read_now(self, name: str, value: object) -> object:
        """A value as it is before the other assignments of the same statement."""
        if isinstance(value, VarRef) and value.fresh:
            return value
        if isinstance(value, Value) and has_load(value.expr) and self._tracer.launch is not None:
            return bind(name, value.expr)
        return value

    def annotated(self, value: object, annotation: Callable[[], object]) -> object:
        """``name: annotation = value``: a scalar is converted to an annotated dtype."""
        kind = annotation()
        is_dtype = isinstance(kind, (str, OpenDType))
        if is_scalar(value) and is_dtype and not isinstance(value, VarRef):
            return Value(fold.cast(to_expr(value), as_dtype(kind)))
        return value

    def declare(self, name: str, annotation: object) -> object:
        """``name: annotation``: the type of a parameter."""
        if self._declare_parameter is None:
            raise ProgramSyntaxError(
                f"`{name}: ...` without a value is only for parameters of the program"
            )
        return self._declare_parameter(name, annotation)

    def builtin(self, function: object) -> object:
        if function is builtins.range:
            return range_
        if function is builtins.min:
            return partial(_extreme, builtins.min, minimum)
        if function is builtins.max:
            return partial(_extreme, builtins.max, maximum)
        return Inspections(self._tracer).stand_in(function)

    # -- expressions -----------------------------------------------------------------------------
    def and_(self, left: object, right: Callable[[], object]) -> object:
        return self._lazy_logic("land", left, right) if _symbolic(left) else left and right()

    def or_(self, left: object, right: Callable[[], object]) -> object:
        return self._lazy_logic("lor", left, right) if _symbolic(left) else left or right()

    def _lazy_logic(self, op: str, left: object, right: Callable[[], object]) -> object:
        other = self._lazily(right)
        return Value(
            fold.binary(op, fold.truth(to_expr(left)), fold.truth(to_expr(other, "a condition")))
        )

    def _lazily(self, thunk: Callable[[], object]) -> object:
        """Evaluate an operand that may not be needed at run time, so it may not use macros."""
        self._tracer.lazy_depth += 1
        try:
            return thunk()
        finally:
            self._tracer.lazy_depth -= 1

    def not_(self, value: object) -> object:
        return Value(fold.unary("not", to_expr(value))) if _symbolic(value) else not value

    def choose(self, cond: object, a: Callable[[], object], b: Callable[[], object]) -> object:
        if not _symbolic(cond):
            return a() if cond else b()
        x, y = self._lazily(a), self._lazily(b)
        return Value(fold.select(to_expr(cond), to_expr(x), to_expr(y)))

    def compare(
        self, ops: tuple[Callable[..., object], ...], operands: tuple[object, ...]
    ) -> object:
        """``a < b < c``."""
        result: object = True
        for op, a, b in zip(ops, operands, operands[1:], strict=False):
            new = op(a, b)
            result = self.and_(result, lambda new=new: new)  # type: ignore[misc]
            if not _symbolic(result) and not result:
                return result
        return result

    def check(self, cond: object, message: Callable[[], object]) -> None:
        tracer = self._tracer
        if not _symbolic(cond):
            if not cond:
                where = f"\n  at {tracer.location.render()}" if tracer.location is not None else ""
                raise AssertionError(f"{self._message(message)}{where}")
            return
        text = self._message(message)
        expr = fold.truth(to_expr(cond))
        if tracer.launch is None:
            tracer.check_expr_alive(expr)
            tracer.host_asserts.append(Assert(expr, text, host=True, loc=tracer.location))
        else:
            tracer.emit(Assert(expr, text))

    def _message(self, message: Callable[[], object]) -> str:
        self._tracer.in_message = True
        try:
            return printable(str(message()))
        finally:
            self._tracer.in_message = False

    def launcher(self, kernel: object, grid: object) -> Callable[..., object]:
        """``kernel[grid]`` where it is called."""
        return launcher(kernel, grid)

    def descriptor(self, function: object) -> Callable[..., object]:
        """A function that by its name makes a descriptor, where it is called."""
        return descriptor_maker(function)

    # -- branches ----------------------------------------------------------------------------------
    def then(self, cond: object, names: Mapping[str, object] | None = None) -> bool:
        """Start an ``if``; True if its first branch runs."""
        branch = Branch(self._tracer, cond, names, self._scopes, symbolic=_symbolic(cond))
        self._branches.append(branch)
        return branch.begin_then()

    def middle(self, names: Mapping[str, object]) -> None:
        """Between the branches of an ``if`` that assigns names."""
        self._branches[-1].after_then = dict(names)

    def restores(self, name: str) -> bool:
        """True if ``name`` gets its value from before the ``if`` back, for the second branch."""
        return self._branches[-1].restores(name)

    def before(self, name: str) -> object:
        """The value of ``name`` before the ``if``."""
        branch = self._branches[-1]
        if name in branch.scopes:
            self._scopes[name] = branch.scopes[name]
        return branch.before[name]

    def otherwise(self) -> bool:
        """Start the second branch; True if it runs."""
        return self._branches[-1].begin_else()

    def end_if(self, names: Mapping[str, object] | None = None) -> None:
        self._ended = branch = self._branches.pop()
        branch.after_else = dict(names or {})
        branch.end()

    def merges(self, name: str) -> bool:
        """True if ``name`` gets the value that the condition selects; else it ends here."""
        branch = self._ended
        assert branch is not None
        if branch.merges(name):
            return True
        if branch.closed is not None and name in branch.assigned and name not in self._refs:
            self._scopes[name] = branch.closed
        return False

    def merged(self, name: str) -> object:
        """The value of ``name`` after an ``if`` on sizes."""
        assert self._ended is not None
        self._scopes[name] = self._tracer.region
        return self._ended.merged(name)

    # -- loops -------------------------------------------------------------------------------------
    def begin_for(self, loop: object, names: tuple[str, ...]) -> tuple[object, ...]:
        """Start a ``for``; the values of its variables."""
        if isinstance(loop, builtins.range):
            loop = serial(loop.start, loop.stop, loop.step)
        if not isinstance(loop, LoopFrame):
            raise not_a_loop(loop)
        values = loop.open(self._tracer, names)
        self._loops.append(loop)
        for name in names:
            self._refs.pop(name, None)
            self._scopes[name] = self._tracer.region
        return values

    def end_for(self) -> None:
        loop = self._loops.pop()
        assert loop is not None
        loop.close(self._tracer)

    def before_while(self) -> None:
        """Before the condition of a ``while``: what it records belongs into the loop."""
        self._tracer.require_launch("`while`")
        self._tracer.open_region("while")

    def begin_while(self, cond: object) -> bool:
        """Start a ``while``; False if its body never runs."""
        tracer = self._tracer
        self._loops.append(None)
        known = cond if is_scalar(cond) else bool(cond)
        expr = fold.truth(to_expr(known, "the condition of `while`"))
        if isinstance(expr, Const) and expr.value:
            raise ProgramError("the condition of `while` is always true")
        tracer.check_expr_alive(expr)
        if tracer.regions[-1].statements:
            # The condition needs statements of its own: test it inside the loop.
            tracer.emit(If(fold.unary("not", expr), (Break(loc=tracer.location),)))
            expr = fold.const(True)
        self._while_conditions.append(expr)
        return not (isinstance(expr, Const) and not expr.value)

    def end_while(self) -> None:
        """End a ``while`` and record it."""
        self._loops.pop()
        cond = self._while_conditions.pop()
        region = self._tracer.close_region()
        if not (isinstance(cond, Const) and not cond.value):
            self._tracer.emit(While(cond, region.body, loc=region.loc))

    def break_(self) -> None:
        self._jump("break", Break())

    def continue_(self) -> None:
        self._jump("continue", Continue())

    def _jump(self, what: str, stmt: Stmt) -> None:
        if self._loops and (loop := self._loops[-1]) is not None and loop.kind == "parallel":
            raise ProgramValueError(
                f"`{what}` cannot leave a T.Parallel loop, whose iterations have no order"
            )
        self._tracer.emit(stmt)

    # -- blocks ------------------------------------------------------------------------------------
    def enter(self, context: object) -> object:
        """The context manager of a ``with``."""
        if isinstance(context, (KernelFrame, ExternFrame)) and self._tracer.skip_bodies:
            self._runs_body = False
        if not hasattr(context, "__enter__"):
            if context is None:
                return nullcontext()
            raise ProgramTypeError(
                "`with` needs T.Kernel or another context manager", found=describe(context)
            )
        return context

    def runs_body(self) -> bool:
        """False where a launch is recorded without its statements."""
        runs, self._runs_body = self._runs_body, True
        return runs

    def leave(self, value: object) -> object:
        """``return value``; only outside regions and run-time conditions."""
        if len(self._tracer.regions) > self._base or any(b.symbolic for b in self._branches):
            raise ProgramSyntaxError(
                "`return` cannot stand inside a loop, a T.Kernel block or a condition that is "
                "known only at run time"
            )
        self._branches.clear()
        return value


def _symbolic(value: object) -> bool:
    """True for a value that is known only at run time."""
    return isinstance(value, Value) and not isinstance(value.expr, Const)


def _extreme(
    python: Callable[..., object],
    language: Callable[[object, object], object],
    *args: Any,  # noqa: ANN401
    **kwargs: object,
) -> object:
    """``min`` and ``max`` of the language for scalars, one by one or as a list; else Python's."""
    items = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
    is_ours = any(isinstance(a, Value) for a in items) or all(
        isinstance(a, (bool, int, float)) for a in items
    )
    if is_ours and items and not kwargs and (len(items) > 1 or items is not args):
        return reduce(language, items)
    return python(*args, **kwargs)
