"""Macros, size variables, and the decorator T.prim_func."""

from __future__ import annotations

import functools
import itertools
import sys
import warnings
from types import FunctionType

from tileops.dtypes import DType
from tileops.errors import NoBuilderError, ProgramTypeError, ProgramValueError
from tileops.ir.expr import Var
from tileops.language.tracer import Tracer, active_tracer, iter_names, require_tracer
from tileops.language.value import Value, as_dtype

__all__ = ["const", "dynamic", "macro", "prim_func", "symbolic"]


class Macro:
    """A function that is traced into its caller, with its own names. Made by ``@T.macro``."""

    def __init__(self, func: FunctionType) -> None:
        self.func = func
        functools.update_wrapper(self, func)

    def __get__(self, instance: object, owner: object = None) -> object:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Trace the body into the running program and give what it returns."""
        tracer = require_tracer(f"the macro {self.func.__name__}")
        if tracer.lazy_depth:
            raise ProgramValueError(
                f"the macro {self.func.__name__} cannot be inside `and`, `or` or a conditional "
                "expression whose condition is known only at run time"
            )
        assert tracer.inline is not None
        return tracer.inline(self.func, args, kwargs)


def macro(func: FunctionType | None = None, **options: object) -> object:
    """Decorator: a function with control flow that is inlined where it is called."""
    return Macro if func is None else Macro(func)


def const(name: str, dtype: object = "int32") -> object:
    """Size constants ``"M, N"``: one kernel for each combination of their values (eager mode).

    Each must be an entry of some tensor's shape or strides. One name gives one value, several a
    tuple.
    """
    tracer = active_tracer()
    if tracer is None:
        raise NoBuilderError(
            "T.const was used outside a program; call it inside a function decorated with "
            "@tileops.jit"
        )
    out = tuple(_one_const(tracer, n, as_dtype(dtype)) for n in iter_names(name))
    return out[0] if len(out) == 1 else out


def _one_const(tracer: Tracer, name: str, dtype: DType) -> object:
    if tracer.launch is not None:
        raise ProgramValueError("T.const must be outside `with T.Kernel`")
    if tracer.consts is None:
        return Value(tracer.size(name, dtype, "const"))
    if name not in tracer.consts:
        raise ProgramValueError(
            f"no value was given for the size constant `{name}`",
            expected=f"a value for {name}",
            found=f"values for {', '.join(tracer.consts) or 'none'}",
        )
    return int(tracer.consts[name])


_foreign_ids = itertools.count(-2, -1)


def dynamic(name: str, dtype: object = "int32") -> object:
    """Run-time sizes ``"M, N"``, bound from tensor shapes at each call; one kernel serves all.

    One name gives one value, several a tuple.
    """
    tracer = active_tracer()
    kind = as_dtype(dtype)
    if not kind.is_integer:
        raise ProgramTypeError("a size must have an integer dtype", found=str(kind))
    if tracer is not None and tracer.wide_sizes and kind == "int32":
        kind = DType("int64")
    out = []
    for n in iter_names(name):
        if tracer is not None:
            out.append(Value(tracer.size(n, kind, "dynamic")))
        else:
            # Made outside a trace: a program that uses it gives it an id of its own.
            out.append(Value(Var(kind, next(_foreign_ids), n), foreign=True))
    return out[0] if len(out) == 1 else tuple(out)


def symbolic(name: str, dtype: object = "int32") -> object:
    """Deprecated alias of ``dynamic``."""
    warnings.warn("T.symbolic is deprecated; use T.dynamic", DeprecationWarning, stacklevel=2)
    return dynamic(name, dtype)


def prim_func(func: FunctionType | None = None, **options: object) -> object:
    """Decorator: trace a function with annotated parameters at once and give its PrimFunc.

    Raises located ProgramErrors if the function breaks a rule of the language.
    """
    # Imported late: the front end imports the language's other modules.
    from tileops.frontend import make_prim_func

    make = functools.partial(make_prim_func, names_in_scope=sys._getframe(1).f_locals)
    return make if func is None else make(func)
