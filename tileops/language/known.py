"""Owns the numbers behind values: what Python learns when it asks for one, and the errors."""

from __future__ import annotations

from tileops.errors import ProgramTypeError
from tileops.ir import fold
from tileops.ir.expr import Const, Expr, Var
from tileops.ir.printer import print_expr
from tileops.ir.walk import walk_expr
from tileops.language.tracer import active_tracer
from tileops.location import location_of_caller

Number = bool | int | float

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
        "function or in a @T.macro; T.cast stands for int()",
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
    found = _under(tracer.tried, expr)
    if found is None:
        raise ConstNeededError(
            f"Python asked for {what} of a size constant, whose number the signature does not have "
            f"yet; {instead_before}",
            found=print_expr(expr),
        )
    return found


def _under(tried: int | None, expr: Expr) -> Number | None:
    """What ``expr`` is where each size constant is ``tried``; None where that tells nothing."""
    if tried is None:
        return None
    sizes = {e.id: fold.const(tried, e.dtype) for e in walk_expr(expr) if isinstance(e, Var)}
    found = fold.substitute(expr, sizes)
    return found.value if isinstance(found, Const) else None


def is_of_consts(expr: Expr) -> bool:
    """True in a symbolic trace for what depends on its size constants alone."""
    tracer = active_tracer()
    return tracer is not None and bool(tracer.const_ids) and tracer.depends_on_consts_only(expr)
