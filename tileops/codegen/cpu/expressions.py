"""Expressions: a scalar of the tile IR as C++ text in its computing type."""

from __future__ import annotations

from tileops.codegen.cpu.functions import call_text, reinterpreted
from tileops.codegen.cpu.scalar_types import computing, is_narrow_float, literal, storage, widened
from tileops.codegen.cpu.state import LaunchState
from tileops.errors import InternalError
from tileops.ir import fold
from tileops.ir.expr import (
    Binary,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    HostAttr,
    Load,
    Region,
    Select,
    Unary,
    Var,
)
from tileops.ir.operators import COMPARISONS, INTEGER_DIVISIONS, LOGICAL, SYMBOLS
from tileops.ir.program import const_value
from tileops.ir.walk import children, walk_expr
from tileops.passes.analyze_index import cheap_ceildiv, needs_guard
from tileops.passes.analyze_ranges import is_exact


def value(state: LaunchState, expr: Expr) -> str:
    """``expr`` as C++ text of its computing type, in the program's own arithmetic."""
    match expr:
        case Const():
            return literal(expr)
        case Var():
            return state.name(expr)
        case HostAttr(name=name):
            return state.hosts[name]
        case Load():
            return load(state, expr)
        case Binary():
            return _binary(state, expr)
        case Unary():
            return _unary(state, expr)
        case Cast():
            return cast_text(value(state, expr.a), expr)
        case Select(cond=c, a=a, b=b):
            return f"({value(state, c)} ? {value(state, a)} : {value(state, b)})"
        case Call(name="reinterpret", args=(Load() as source,)) if is_narrow_float(source.dtype):
            return _reinterpreted_load(state, expr, source)
        case Call():
            return call_text(expr, [value(state, a) for a in expr.args])
        case _:
            raise InternalError(f"cpu code generation: unknown expression {type(expr).__name__}")


def stored(state: LaunchState, expr: Expr) -> str:
    """``expr`` in the storage form of its dtype, as an element is written."""
    kind = storage(expr.dtype)
    if isinstance(expr, Cast):
        return f"convert<{kind}>({value(state, expr.a)})"
    if expr.dtype.is_bool or is_narrow_float(expr.dtype):
        return f"encode<{kind}>({value(state, expr)})"
    return value(state, expr)


def index(state: LaunchState, expr: Expr) -> str:
    """An index as an exact int64 position.

    Its sums, products and widening conversions are computed in int64 from the start: the compiler
    then sees that ``base + j`` walks through memory in order. All other operations are those of
    values, which wrap in their dtype.
    """
    match expr if is_exact(expr) or isinstance(expr, Const) else None:
        case Const(value=number):
            return f"{int(number)}" if number >= 0 else f"({int(number)})"
        case Binary(op=op, a=a, b=b):
            return f"({index(state, a)} {SYMBOLS[op]} {index(state, b)})"
        case Unary(a=a):
            return f"(-{index(state, a)})"
        case Cast(a=a):
            return index(state, a)
        case _:
            return f"static_cast<i64>({value(state, expr)})"


def cast_text(text: str, expr: Cast) -> str:
    """The conversion of ``text``, the value of ``expr.a``, to ``expr``'s dtype."""
    kind = computing(expr.dtype)
    if kind == computing(expr.a.dtype) and not is_narrow_float(expr.dtype):
        return text
    if expr.dtype == "float64" or (expr.dtype == "float32" and expr.a.dtype.bits <= 64):
        return f"static_cast<{kind}>({text})"
    return f"round_to<{storage(expr.dtype)}>({text})"


def _binary(state: LaunchState, expr: Binary) -> str:
    op = expr.op
    if op == "ceildiv" and (cheap := cheap_ceildiv(expr, state.ranges)) is not None:
        return value(state, cheap)
    a, b = value(state, expr.a), value(state, expr.b)
    if op in COMPARISONS:
        return f"({a} {SYMBOLS[op]} {b})"
    if op in LOGICAL:
        short = "&&" if op == "land" else "||"
        return f"({a} {short[0] if is_harmless(state, expr.b) else short} {b})"
    if op in ("min", "max"):
        return _extreme(expr, a, b)
    if op in INTEGER_DIVISIONS:
        return _division(state, expr, a, b)
    if op in ("shl", "shr"):
        return _shift(state, expr, a, b)
    is_sum = op in ("add", "sub", "mul") and expr.dtype.is_integer
    if is_sum and not state.wraps and state.ranges.wraps(expr):
        return f"wrapping_{op}<{computing(expr.dtype)}>({a}, {b})"
    return _wrapped(f"({a} {SYMBOLS[op]} {b})", expr)


def _wrapped(text: str, expr: Expr) -> str:
    """A C++ result in its dtype: C++ computes small integers as int, narrow floats as float."""
    dtype = expr.dtype
    if is_narrow_float(dtype):
        return f"round_to<{storage(dtype)}>{text}"
    if dtype.is_bool or (dtype.is_integer and dtype.bits < 32):
        return f"static_cast<{computing(dtype)}>{text}"
    return text


def _extreme(expr: Binary, a: str, b: str) -> str:
    # For floats the operand that is not NaN wins; a constant number needs no test of its own.
    name = "least" if expr.op == "min" else "greatest"
    if expr.dtype.is_float and _is_number(expr.b):
        return f"{name}_of_known({a}, {b})"
    if expr.dtype.is_float and _is_number(expr.a):
        return f"{name}_of_known({b}, {a})"
    return f"{name}<{computing(expr.dtype)}>({a}, {b})"


def _is_number(expr: Expr) -> bool:
    return isinstance(expr, Const) and not fold.is_nan(expr)


def _division(state: LaunchState, expr: Binary, a: str, b: str) -> str:
    if expr.dtype.is_float:
        return _wrapped(f"({expr.op}({a}, {b}))", expr)
    name, divisor, is_signed = expr.op, const_value(expr.b) or 0, expr.dtype.is_signed
    is_count = state.ranges.is_non_negative(expr.a)
    symbol = "/" if name.endswith("div") else "%"
    if name == "ceildiv":
        if is_signed and is_count and state.ranges.of(expr.b).lo >= 1:
            name = "ceildiv_of_counts"
    elif divisor > 0 and (is_count or not is_signed):
        return _wrapped(f"({a} {symbol} {b})", expr)
    elif divisor > 0 and name.startswith("floor") and divisor & (divisor - 1) == 0:
        # Arithmetic shifts and masks are floor division by powers of two.
        if symbol == "/":
            return _wrapped(f"({a} >> {divisor.bit_length() - 1})", expr)
        return _wrapped(f"({a} & {divisor - 1})", expr)
    return f"{name}<{computing(expr.dtype)}>({a}, {b})"


def _shift(state: LaunchState, expr: Binary, a: str, b: str) -> str:
    count = const_value(expr.b)
    is_plain = state.wraps or expr.op == "shr"
    if is_plain and count is not None and 0 <= count < expr.dtype.bits:
        return _wrapped(f"({a} {'<<' if expr.op == 'shl' else '>>'} {count})", expr)
    name = "shift_left" if expr.op == "shl" else "shift_right"
    return f"{name}<{computing(expr.dtype)}>({a}, {b})"


def _unary(state: LaunchState, expr: Unary) -> str:
    a = value(state, expr.a)
    if expr.op == "not":
        return f"(!{a})"
    if expr.op == "neg" and expr.dtype.is_integer and not state.wraps:
        return f"wrapping_sub<{computing(expr.dtype)}>(0, {a})"
    if expr.op == "neg":
        return f"(-{a})" if is_narrow_float(expr.dtype) else _wrapped(f"(-{a})", expr)
    return f"(!{a})" if expr.dtype.is_bool else _wrapped(f"(~{a})", expr)


# -- element accesses ------------------------------------------------------------------------------
def offset(state: LaunchState, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
    """The position of an element in its buffer's storage, in elements."""
    place = state.place(buffer)
    terms = []
    for at, stride in zip(indices, place.strides, strict=True):
        if const_value(at) == 0 or stride == "0":
            continue
        text = index(state, at)
        terms.append(text if stride == "1" else f"{text} * {stride}")
    return " + ".join(terms) if terms else "0"


def element(state: LaunchState, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
    """The lvalue of an element."""
    return f"{state.place(buffer).pointer}[{offset(state, buffer, indices)}]"


def guards(state: LaunchState, buffer: Buffer, indices: tuple[Expr, ...]) -> list[str]:
    """The conditions under which an element of a global buffer exists; empty where proven."""
    if buffer.is_on_chip:
        return []
    needed = state.conditions(buffer, indices, state.ranges)
    return [c.test(index(state, c.index)) for c in needed if c not in state.proven]


def load(state: LaunchState, expr: Load) -> str:
    """The value of an element; 0 or the safe value where it does not exist."""
    known = state.hoisted.get(expr)
    if known is not None:
        return known
    text = element(state, expr.buffer, expr.indices)
    return _if_inside(state, expr, widened(text, expr.dtype), safe_value(state, expr.buffer))


def _reinterpreted_load(state: LaunchState, expr: Expr, source: Load) -> str:
    """The bits of a narrow float as stored; through float a NaN would lose its payload."""
    text = element(state, source.buffer, source.indices)
    blank = f"encode<{storage(source.dtype)}>({safe_value(state, source.buffer)})"
    text, blank = reinterpreted(text, expr.dtype), reinterpreted(blank, expr.dtype)
    return _if_inside(state, source, text, blank)


def _if_inside(state: LaunchState, expr: Load, text: str, blank: str) -> str:
    """``text`` where the element exists, else ``blank``."""
    conditions = " && ".join(guards(state, expr.buffer, expr.indices))
    return f"({conditions} ? {text} : {blank})" if conditions else text


def safe_value(state: LaunchState, buffer: Buffer) -> str:
    """What reads of ``buffer`` out of bounds give, in computing form."""
    found = state.safe_values.get(buffer.id)
    if found is None:
        return literal(fold.const(0, buffer.dtype))
    if found.dtype == buffer.dtype:
        return value(state, found)
    return cast_text(value(state, found), Cast(buffer.dtype, found))


def region_start(state: LaunchState, region: Region) -> str:
    """A pointer to the first element of a region; it may be outside the buffer."""
    place = state.place(region.buffer)
    at = offset(state, region.buffer, region.starts)
    return place.pointer if at == "0" else f"{place.pointer} + {at}"


# -- safety ----------------------------------------------------------------------------------------
def is_safe(state: LaunchState, expr: Load) -> bool:
    """True if the element can be read whatever the conditions around the load are."""
    if not expr.buffer.is_on_chip:
        return not guards(state, expr.buffer, expr.indices)
    return all(
        needs_guard(at, extent, state.ranges) == (False, False)
        for at, extent in zip(expr.indices, expr.buffer.shape, strict=True)
    )


def is_harmless(state: LaunchState, expr: Expr) -> bool:
    """True if evaluating ``expr`` where the program would not is free of effects and cheap."""
    for e in walk_expr(expr):
        match e:
            case Load() if not (e in state.hoisted or is_safe(state, e)):
                return False
            case Call() | Binary(op="land" | "lor"):
                return False
            case Binary(op=op) if op in INTEGER_DIVISIONS:
                return False
    return True


def safe_loads_in_branches(state: LaunchState, expr: Expr) -> list[Load]:
    """Loads under a Select that may be performed in any case, so that the choice has no branch."""
    found: dict[Load, None] = {}

    def visit(e: Expr, under: bool) -> None:
        if isinstance(e, Load):
            if under and e not in state.hoisted and is_safe(state, e):
                found[e] = None
            return
        inside = under or isinstance(e, Select)
        for child in children(e):
            visit(child, inside)

    visit(expr, False)
    return list(found)
