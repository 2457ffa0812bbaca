"""The scalars of a program: values whose operators record expressions; numbers behind them."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from functools import reduce
from typing import Any, TypeVar

from tileops.dtypes import DType, dtype_of, is_dtype_like, promote, vector_parts
from tileops.errors import ProgramTypeError, ProgramValueError, UnsupportedConstructError
from tileops.ir import fold
from tileops.ir.expr import Const, Expr, Load, Var
from tileops.ir.printer import print_expr
from tileops.ir.stmt import Bind
from tileops.ir.walk import walk_expr
from tileops.language.index_arithmetic import fits_its_type
from tileops.language.tracer import active_tracer
from tileops.location import location_of_caller

__all__ = ["dtype"]

BOOL, INT32, INT64, FLOAT32 = fold.BOOL, fold.INT32, fold.INT64, fold.FLOAT32

_Function = TypeVar("_Function", bound=Callable[..., object])


def named(name: str, text: str, function: _Function) -> _Function:
    """``function``, one of a family, as the construct ``T.<name>`` with the docstring ``text``."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


_Operator = Callable[[Any, object], "Value"]


def operators(op: str) -> tuple[_Operator, _Operator]:
    """The methods for ``self op other`` and ``other op self``."""
    return lambda self, other: binary(op, self, other), lambda self, other: binary(op, other, self)


Number = bool | int | float

# -- the numbers behind values ---------------------------------------------------------------------
_OF_CONSTS = "use T functions (T.sqrt, T.log2) and operators, or compute it inside T.Kernel"
_CHOOSE = "write the choice with `if` or a conditional expression"
# What Python asks for, and what to write instead: for a value that only the running kernel knows,
# and for a size constant before its number is known.
_ASKED = {
    "number": (
        "its number",
        "use T functions (T.exp for math.exp, T.cast for int() and float()) and operators",
        _OF_CONSTS,
    ),
    "int": (
        "a Python int",
        "index tiles and tensors by it, not lists; loop over range(...) of it in the kernel "
        "function or in a @T.macro; T.cast replaces int()",
        _OF_CONSTS,
    ),
    "float": (
        "a Python float",
        "use T functions (T.exp for math.exp, T.cast for int() and float()) and operators",
        _OF_CONSTS,
    ),
    "truth": (
        "a Python truth value",
        "write the condition with `if`, `while`, `and`, `or`, `not` in the kernel function or in a "
        "T.macro, or use T.if_then_else",
        _OF_CONSTS,
    ),
    "hash": (
        "the hash (as a dict key, a member of a set or an argument of a cached function)",
        f"{_CHOOSE}, or make it a number that is known before: a T.const size, or a parameter "
        "such as n: int",
        f"{_CHOOSE}, look it up inside T.Kernel, or make it a parameter such as n: int",
    ),
    "text": (
        "a text (in an f-string or str.format)",
        "T.print(value, msg) shows it when the kernel runs; {value!r} is the text of its "
        "expression",
        "{value!r} is the text of its expression",
    ),
}


class ConstNeededError(ProgramTypeError):
    """Python needed the number behind a T.const during a symbolic trace; the front end retries."""


def number_of(expr: Expr, asked: str) -> Number:
    """The number of ``expr``, which Python asks for as ``asked``, a key of the table above.

    A symbolic trace that tries numbers for its size constants gives what follows from those.
    Located ProgramTypeError for what only the running kernel knows, ConstNeededError for what
    depends on size constants alone.
    """
    if isinstance(expr, Const):
        return expr.value
    tracer = active_tracer()
    what, instead, instead_before = _ASKED[asked]
    if tracer is None or not is_of_consts(expr):
        raise ProgramTypeError(
            f"Python asked for {what} of a value that is known only when the kernel runs; "
            f"{instead}",
            found=f"a run-time {expr.dtype}",
            location=location_of_caller() if tracer is None else None,
        )
    found = expr
    if tracer.tried is not None:
        sizes = {e.id: fold.const(tracer.tried, e.dtype) for e in walk_expr(expr) if type(e) is Var}
        found = fold.substitute(expr, sizes)
    if not isinstance(found, Const):
        raise ConstNeededError(
            f"Python asked for {what} of a size constant: `T.const` sizes have no value yet here; "
            f"{instead_before}",
            found=print_expr(expr),
        )
    return found.value


def is_of_consts(expr: Expr) -> bool:
    """True in a symbolic trace for what depends on its size constants alone."""
    tracer = active_tracer()
    return (
        tracer is not None and bool(tracer.const_locations) and tracer.depends_on_consts_only(expr)
    )


# -- values ----------------------------------------------------------------------------------------
class Value:
    """A scalar known only when the kernel runs. Its operators build expressions.

    ``foreign`` marks values made outside a trace (from T.dynamic), which a trace adopts at first
    use.
    """

    __slots__ = ("_expr", "foreign")

    def __init__(self, expr: Expr, foreign: bool = False) -> None:
        self._expr = expr
        self.foreign = foreign

    @property
    def expr(self) -> Expr:
        """The recorded expression."""
        tracer = active_tracer() if self.foreign else None
        return tracer.adopt(self._expr) if tracer is not None else self._expr

    @property
    def dtype(self) -> DType:
        """The scalar type of the value."""
        return dtype(self._expr.dtype)

    @property
    def value(self) -> bool | int | float:
        """The Python number of a constant; ProgramTypeError for a run-time value."""
        return number_of(self._expr, "number")

    def astype(self, dtype: object) -> Value:
        """The value converted to ``dtype``."""
        return Value(fold.settled(fold.cast(self.expr, as_dtype(dtype))))

    def __repr__(self) -> str:
        return f"<{self._expr.dtype} {print_expr(self._expr)}>"

    def __hash__(self) -> int:
        # That of the number, to which it is equal; an unknown number is not equal to anything yet.
        return hash(number_of(self._expr, "hash"))

    def __str__(self) -> str:
        return str(self._expr.value) if isinstance(self._expr, Const) else repr(self)

    def __format__(self, spec: str) -> str:
        tracer = active_tracer()
        is_code = tracer is not None and not tracer.in_message and not is_of_consts(self._expr)
        return (
            str(self) if not spec and not is_code else format(number_of(self._expr, "text"), spec)
        )

    # -- Python asks for a number ----------------------------------------------------------------
    def __bool__(self) -> bool:
        return bool(number_of(self._expr, "truth"))

    def __index__(self) -> int:
        number = number_of(self._expr, "int")
        if isinstance(number, int):
            return int(number)
        raise ProgramTypeError(
            "an index of Python must be an integer", found=f"a {self._expr.dtype}"
        )

    def __int__(self) -> int:
        return int(number_of(self._expr, "int"))

    def __float__(self) -> float:
        return float(number_of(self._expr, "float"))

    def __setitem__(self, key: object, value: object) -> None:
        raise ProgramTypeError(
            "a scalar value is immutable and cannot be stored to; use T.alloc_var for a scalar "
            "that changes"
        )

    # -- operators ---------------------------------------------------------------------------------
    __add__, __radd__ = operators("add")
    __sub__, __rsub__ = operators("sub")
    __mul__, __rmul__ = operators("mul")
    __truediv__, __rtruediv__ = operators("div")
    __floordiv__, __rfloordiv__ = operators("floordiv")
    __mod__, __rmod__ = operators("floormod")
    __and__, __rand__ = operators("and")
    __or__, __ror__ = operators("or")
    __xor__, __rxor__ = operators("xor")
    __lshift__, __rlshift__ = operators("shl")
    __rshift__, __rrshift__ = operators("shr")
    __lt__, __gt__ = operators("lt")[0], operators("gt")[0]
    __le__, __ge__ = operators("le")[0], operators("ge")[0]

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return binary("eq", self, other) if is_scalar(other) else NotImplemented

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return binary("ne", self, other) if is_scalar(other) else NotImplemented

    def __pow__(self, other: object) -> Value:
        return power(self, other)

    def __rpow__(self, other: object) -> Value:
        return power(other, self)

    def __neg__(self) -> Value:
        return unary("neg", self)

    def __pos__(self) -> Value:
        return self

    def __invert__(self) -> Value:
        return unary("invert", self)

    def __abs__(self) -> Value:
        return absolute(self)

    def __round__(self, ndigits: object = None) -> Value:
        if ndigits is not None:
            raise ProgramTypeError(
                "round() of a value of a program takes no number of digits; scale it, as in "
                "T.nearbyint(x * 100) / 100",
                found=f"{describe(ndigits)} digits",
            )
        return math_call("nearbyint", self)


def is_scalar(value: object) -> bool:
    """True for what can be in an expression: Python and numpy numbers and run-time values."""
    return isinstance(value, (Value, bool, int, float, numbers.Number))


def to_expr(value: object, what: str = "an operand") -> Expr:
    """The expression of a run-time value or Python number; ProgramTypeError for anything else."""
    if isinstance(value, Value):
        return value.expr
    if isinstance(value, (bool, int, float)):
        return fold.const(value)
    if isinstance(value, numbers.Number) and hasattr(value, "item"):
        return fold.const(value.item(), as_dtype(type(value)))
    raise ProgramTypeError(f"{what} must be a number or a scalar value", found=describe(value))


def describe(value: object) -> str:
    """A short text for a value in an error message."""
    if isinstance(value, Value):
        return f"a run-time {value.expr.dtype}"
    text = getattr(value, "describe", None)
    if callable(text):
        return str(text())
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    return f"a {type(value).__name__}"


def wrap(expr: Expr, *sources: object) -> Value:
    """A value for ``expr``; foreign if a source was, unless a running trace adopted it."""
    if active_tracer() is None:
        return Value(expr, any(isinstance(s, Value) and s.foreign for s in sources))
    return Value(expr)


def binary(op: str, a: object, b: object) -> Value:
    """``a op b`` as a value, with the language's promotion."""
    for side in (a, b):
        lanewise = getattr(side, "lanewise", None)
        if lanewise is not None:
            vector: Value = lanewise(op, a, b)
            return vector
    left, right = to_expr(a), to_expr(b)
    if op == "div" and _are_python_ints(left, right):
        left = fold.cast(left, FLOAT32)
    return wrap(fold.binary(op, left, right), a, b)


def _are_python_ints(*operands: Expr) -> bool:
    """True for Python ints of a specialised trace, whose ``/`` gives a float."""
    are_known = all(e.dtype.is_integer and is_of_consts(e) for e in operands)
    return are_known and any(isinstance(x, Var) for e in operands for x in walk_expr(e))


def unary(op: str, a: object) -> Value:
    """``neg``, ``not`` or ``invert`` of ``a``."""
    return wrap(fold.unary(op, to_expr(a)), a)


def math_call(name: str, a: object, *rest: object, dtype: DType | None = None) -> Value:
    """A math function of float arguments; integers become float32 first."""
    return wrap(fold.call(name, *float_arguments(name, a, *rest), dtype=dtype), a, *rest)


def float_arguments(name: str, *values: object) -> list[Expr]:
    """``values`` in one float dtype; integers become float32 first."""
    args = [to_expr(x, f"an argument of T.{name}") for x in values]
    args = [x if x.dtype.is_float else fold.cast(x, FLOAT32) for x in args]
    wide = reduce(promote, [x.dtype for x in args])
    return [fold.cast(x, wide) for x in args]


def absolute(x: object) -> Value:
    """``|x|`` of an integer or float."""
    expr = to_expr(x)
    if expr.dtype.is_bool:
        expr = fold.cast(expr, INT32)
    if isinstance(expr, Const):
        return wrap(fold.const(abs(expr.value), expr.dtype), x)
    return wrap(fold.call("abs", expr), x)


def power(x: object, y: object) -> Value:
    """``x ** y``: repeated products for integers with a constant exponent, ``pow`` otherwise."""
    base, exponent = to_expr(x), to_expr(y)
    if base.dtype.is_integer and isinstance(exponent, Const) and exponent.dtype.is_integer:
        count = int(exponent.value)
        if count < 0:
            raise ProgramValueError("an integer cannot be raised to a negative power")
        out: Expr = fold.const(1, base.dtype)
        for _ in range(count):
            out = fold.mul(out, base)
        return wrap(out, x, y)
    return math_call("pow", x, y)


def as_dtype(value: object) -> DType:
    """Convert what the language accepts as a dtype; ProgramTypeError naming it otherwise."""
    if type(value) is DType:
        return value
    if is_dtype_like(value):
        return dtype_of(value)
    if vector_parts(value) is not None:
        raise UnsupportedConstructError(
            f"{value} as the dtype of a buffer or parameter: tileops has vectors of scalars only",
            expected="a scalar dtype and one more dimension",
        )
    raise ProgramTypeError("not a dtype of the tile language", found=repr(value))


def as_tuple(value: object) -> tuple[object, ...]:
    """The items of a tuple or list; any other value is the only item."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def as_int(value: object) -> int | None:
    """The Python int behind an int or a constant integer value, else None."""
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, Value):
        expr = value.expr
        if isinstance(expr, Const) and isinstance(expr.value, int):
            return int(expr.value)
    return None


def index_expr(value: object, what: str = "an index") -> Expr:
    """An integer expression for an index or extent: int32, or int64 if the user made it so."""
    expr = to_expr(value, what)
    if expr.dtype == INT32 or expr.dtype == INT64:
        return expr
    if expr.dtype.is_float:
        raise ProgramTypeError(f"{what} must be an integer", found=describe(value))
    wide = expr.dtype.bits >= 32 and not expr.dtype.is_bool
    return fold.cast(expr, INT64 if wide else INT32)


def has_load(expr: Expr) -> bool:
    """True if the expression reads a buffer."""
    return any(isinstance(e, Load) for e in walk_expr(expr))


def unwrap_int(expr: Expr) -> int | Value:
    """A constant integer as a Python int, anything else as a value."""
    if isinstance(expr, Const) and isinstance(expr.value, int) and not isinstance(expr.value, bool):
        return expr.value
    return Value(expr)


# A pure integer expression up to this many nodes is repeated at each use of its name, so that index
# analysis sees it; longer ones, floats and everything that reads memory get a name of their own.
_INLINE_NODES = 12


def snapshot(name: str, value: object) -> object:
    """``value`` as it is now, for ``name = value``: bound to a variable if it could change."""
    tracer = active_tracer()
    if not isinstance(value, Value) or tracer is None:
        return value
    expr = value.expr
    if isinstance(expr, Const):
        return expr.value if expr.dtype == INT32 or expr.dtype.is_bool else Value(expr)
    if isinstance(expr, Var):
        return Value(expr)
    if _is_barrier(expr):
        return value
    loads = has_load(expr)
    if tracer.launch is None:
        if loads:
            raise ProgramValueError(
                "an element of a tensor can be read only inside `with T.Kernel`"
            )
        return Value(expr)
    is_short = all(n < _INLINE_NODES for n, _ in enumerate(walk_expr(expr)))
    if not loads and not expr.dtype.is_float and is_short:
        return Value(expr)
    return bind(name, expr)


def _is_barrier(expr: Expr) -> bool:
    """True for a barrier of an array at a place that stays: another name for it."""
    return (
        isinstance(expr, Load)
        and expr.buffer.scope == "barrier"
        and not any(map(has_load, expr.indices))
    )


def bind(name: str, expr: Expr) -> Value:
    """Record ``name = expr`` as a statement and return the variable."""
    tracer = active_tracer()
    assert tracer is not None
    var = tracer.new_var(name, expr.dtype)
    tracer.emit(Bind(var, expr))
    tracer.define(var, bounded=fits_its_type(tracer, expr))
    return Value(var)


class dtype(DType):
    """A scalar type: a ``str`` equal to its name that also casts, ``T.float32(x)``.

    ``T.dtype(x)`` converts a str, torch dtype, numpy dtype or Python scalar type.
    """

    __slots__ = ()

    def __new__(cls, value: object) -> dtype:
        """The type that ``value`` names; ProgramTypeError if it names none."""
        return super().__new__(cls, as_dtype(value).text)

    def __call__(self, value: object = None, *more: object) -> Value:
        """``value`` converted to this type; several values (a vector) are not supported."""
        if value is None:
            raise UnsupportedConstructError(
                f"T.{self!s}() without a value makes an unbound variable, which tileops does not "
                "have; T.alloc_var makes one that can be assigned"
            )
        if more:
            raise UnsupportedConstructError(
                f"T.{self!s}(...) of several values; a vector is T.{self!s}x{1 + len(more)}(...)"
            )
        return wrap(fold.settled(fold.cast(to_expr(value), DType(self))), value)

    def __eq__(self, other: object) -> bool:
        """By name; torch's, numpy's and Triton's dtypes too."""
        is_converted = not isinstance(other, str) and is_dtype_like(other)
        return str.__eq__(self, dtype_of(other) if is_converted else other)

    def __ne__(self, other: object) -> bool:
        found = self.__eq__(other)
        return found if found is NotImplemented else not found

    __hash__ = DType.__hash__

    @property
    def itemsize(self) -> int:
        """As torch's: the bytes of an element; ProgramTypeError where it has less than one."""
        if self.bits < 8:
            raise ProgramTypeError(f"an element of {self!s} is smaller than a byte")
        return self.bytes

    def __reduce__(self) -> tuple[object, ...]:
        return (dtype, (str(self),))
