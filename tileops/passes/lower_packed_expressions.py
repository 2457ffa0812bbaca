"""Owns expressions of encoded dtypes: rewritten over carriers, from codes where memory is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager

from tileops.dtypes import DType
from tileops.errors import UnsupportedConstructError
from tileops.ir import fold
from tileops.ir.expr import Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var
from tileops.ir.stmt import Bind, Stmt
from tileops.ir.walk import map_children
from tileops.passes.encode_values import canonical, constant, decode, encode, to_encoded
from tileops.passes.packed_types import BYTE, CARRIERS, Form, half, parity

NIBBLE = "nibble"  # Call(uint8, NIBBLE, (byte, k)): the half of ``byte`` that holds element k
# Operators whose result on carriers is a value of the dtype whenever the operands are.
_CLOSED = ("and", "or", "xor", "min", "max")


class Expressions:
    """Rewrites expressions; ``forms`` by buffer id, ``names`` the dtypes that are lowered.

    Arithmetic on codes uses a value several times; ``bound`` lets it have a name.
    """

    def __init__(
        self,
        names: frozenset[str],
        forms: Mapping[int, Form],
        even: Set[int],
        fresh: Callable[[Var], Var],
    ) -> None:
        self._names, self._forms, self._even, self._fresh = names, forms, even, fresh
        self._binds: list[Stmt] | None = None
        self._at: Stmt | None = None

    @contextmanager
    def bound(self, binds: list[Stmt] | None, at: Stmt | None = None) -> Iterator[None]:
        """Names for values used several times go to ``binds``; with None there are no names.

        ``at`` is the statement whose expressions these are.
        """
        before = self._binds, self._at
        self._binds, self._at = binds, at
        yield
        self._binds, self._at = before

    def once(self, name: str, value: Expr) -> Expr:
        """``value`` under a name where one can be given here, so that it is computed once."""
        if self._binds is None or self._at is None or isinstance(value, (Var, Const)):
            return value
        var = self._fresh(Var(value.dtype, 0, name))
        self._binds.append(Bind(var, value, **self._at.provenance))
        return var

    def is_encoded(self, dtype: DType) -> bool:
        """True for a dtype that this pass replaces."""
        return str(dtype) in self._names

    def __call__(self, expr: Expr) -> Expr:
        """``expr`` over ordinary dtypes: a value of an encoded dtype becomes one of its carrier."""
        match expr:
            case Load():
                return self._load(expr)
            case Cast(dtype=dtype, a=a):
                value = self(a)
                if self.is_encoded(dtype):
                    return to_encoded(self.once("value", value), dtype)
                return fold.cast(value, dtype)
            case Call(name="reinterpret", args=(a,)):
                return self._reinterpret(expr.dtype, a)
            case Select(dtype=dtype, cond=cond, a=a, b=b):
                carrier = CARRIERS[str(dtype)] if self.is_encoded(dtype) else dtype
                condition = self(cond)
                with self.bound(None):  # what the branch not taken reads must not be read before
                    return Select(carrier, condition, self(a), self(b))
            case Binary(op="land" | "lor"):
                with self.bound(None):
                    return map_children(expr, self)
            case _ if self.is_encoded(expr.dtype):
                return self._encoded(expr)
            case Call(name="popcount" | "clz" as name, args=(a,)) if self.is_encoded(a.dtype):
                return self._bit_count(name, a, expr.dtype)
            case _:
                return map_children(expr, self)

    def _encoded(self, expr: Expr) -> Expr:
        carrier = CARRIERS[str(expr.dtype)]
        match expr:
            case Const(value=value):
                return constant(value, expr.dtype)
            case Var():
                return dataclasses.replace(expr, dtype=carrier)
            case Binary(op=op, a=a, b=b):
                out: Expr = Binary(carrier, op, self(a), self(b))
                return out if op in _CLOSED else self._canonical(out, expr.dtype)
            case Unary(op=op, a=a):
                return self._canonical(Unary(carrier, op, self(a)), expr.dtype)
            case Call(name="popcount" | "clz" as name, args=(a,)):
                return canonical(self._bit_count(name, a, carrier), expr.dtype)
            case Call(name=name, args=args):
                return self._canonical(Call(carrier, name, tuple(map(self, args))), expr.dtype)
            case _:
                raise UnsupportedConstructError(
                    f"an expression of {expr.dtype}: {type(expr).__name__}"
                )

    def _canonical(self, value: Expr, dtype: DType) -> Expr:
        return canonical(self.once("value", value), dtype)

    def _bit_count(self, name: str, a: Expr, dtype: DType) -> Expr:
        count: Expr = Call(BYTE, name, (encode(self(a), a.dtype),))
        if name == "clz":
            count = fold.sub(count, fold.const(8 - a.dtype.bits, BYTE))
        return fold.cast(count, dtype)

    def code(self, load: Load) -> Expr:
        """The code of an element of a packed or coded buffer."""
        form = self._forms[load.buffer.id]
        indices = tuple(map(self, load.indices))
        if form.kind == "coded":
            return Load(BYTE, form.buffer, indices)
        last = indices[-1]
        place = (*indices[:-1], half(last, self._even))
        byte = Load(BYTE, form.buffer, place)
        side = parity(last, self._even)
        if side == 0:
            return fold.binary("and", byte, fold.const(15, BYTE))
        if side == 1:
            return fold.binary("shr", byte, fold.const(4, BYTE))
        return Call(BYTE, NIBBLE, (byte, last))

    def _load(self, load: Load) -> Expr:
        form = self._forms.get(load.buffer.id)
        if form is None:
            return map_children(load, self)
        if form.kind == "plain":
            return Load(form.buffer.dtype, form.buffer, tuple(map(self, load.indices)))
        return decode(self.once("code", self.code(load)), load.dtype)

    def _reinterpret(self, dtype: DType, a: Expr) -> Expr:
        if not self.is_encoded(dtype) and not self.is_encoded(a.dtype):
            return Call(dtype, "reinterpret", (self(a),))
        if not self.is_encoded(a.dtype):
            source = self(a)
            code = source if a.dtype == BYTE else Call(BYTE, "reinterpret", (source,))
        elif isinstance(a, Load) and self._forms[a.buffer.id].kind != "plain":
            code = self.code(a)
        else:
            code = encode(self.once("value", self(a)), a.dtype)
        if self.is_encoded(dtype):
            return decode(code, dtype)
        return code if dtype == BYTE else Call(dtype, "reinterpret", (code,))
