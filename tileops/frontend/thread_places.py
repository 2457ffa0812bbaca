"""Which elements the threads of a block touch, tried thread by thread."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tileops.frontend.thread_variation import Variation
from tileops.ir import walk
from tileops.ir.expr import Binary, Cast, Const, Expr, Load, Unary, Var, const_value
from tileops.ir.stmt import Bind, Body, For
from tileops.language.tracer import ThreadIndices

_Indices = tuple[Expr, ...]
_Numbers = Mapping[int, int]  # of variables, by id
_Place = tuple[int, ...]
_MOST_POINTS = 1 << 14

_OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    "floordiv": operator.floordiv, "floormod": operator.mod, "min": min, "max": max,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "shl": operator.lshift, "shr": operator.rshift,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge,
    "land": lambda a, b: a and b, "lor": lambda a, b: a or b,
}  # fmt: skip


class Meeting(Enum):
    """Whether one thread touches, in one access, what another one touches in a second."""

    NEVER = 0
    MAYBE = 1
    SOMEWHERE = 2


@dataclass(frozen=True)
class _Form:
    """An index: a number that thread and iteration decide, and terms that all threads share."""

    shared: frozenset[tuple[Expr, int]]
    numbers: tuple[tuple[Expr, int], ...]
    constant: int


class Places:
    """The places that threads touch.

    Threads that differ in an index that the program does not ask for touch the same places.
    Two indices of one access or of two are compared as of one iteration of each loop around them.
    For an access of an iteration before, ``earlier`` gives the variables other names.
    """

    def __init__(self, indices: ThreadIndices, body: Body, variation: Variation) -> None:
        lanes = indices.lanes
        ids = [var.id for var, _ in lanes]
        points = itertools.product(*(range(count) for _, count in lanes))
        self._threads: list[_Numbers] = [dict(zip(ids, p, strict=True)) for p in points]
        self._has_likes = len(self._threads) < indices.count
        self._lanes = frozenset(ids)
        self._variation = variation
        self._loops = {s.var.id: s for s in walk.walk(body) if isinstance(s, For)}
        self._earlier: set[int] = set()
        self._true_for: dict[Expr, frozenset[int]] = {}
        self._known: dict[tuple[object, ...], list[frozenset[_Place]] | None] = {}

    def earlier(self, loop: Body) -> Mapping[int, Expr]:
        """Other variables for those that ``loop``, a loop alone, defines for an iteration."""
        found: dict[int, Expr] = {}
        for stmt in walk.walk(loop):
            if isinstance(stmt, (For, Bind)):
                var = stmt.var
                found[var.id] = Var(var.dtype, -1 - var.id, var.name)
                self._earlier.add(-1 - var.id)
        return found

    def running(self, conditions: Sequence[Expr]) -> frozenset[int]:
        """The numbers of the threads for which no one of ``conditions`` is known to be false."""
        found = frozenset(range(len(self._threads)))
        for condition in conditions:
            if condition not in self._true_for:
                known = _evaluator(condition, self._lanes)
                self._true_for[condition] = frozenset(
                    n for n, numbers in enumerate(self._threads) if known is None or known(numbers)
                )
            found &= self._true_for[condition]
        return found

    def meeting(self, a: _Indices, b: _Indices, running: frozenset[int]) -> Meeting:
        """How the threads ``running`` meet at the elements ``a`` and ``b`` of one buffer."""
        if len(a) != len(b):
            return Meeting.MAYBE
        # Iterations of one loop that differ: each has all the values of the loop's variable.
        free = frozenset(n for m in self._earlier_in((*a, *b)) for n in (m, -1 - m))
        # A dimension whose places are not known tells nothing; the others may.
        forms = [(self._form(x, free), self._form(y, free)) for x, y in zip(a, b, strict=True)]
        pairs = [(x, y) for x, y in forms if x and y and x.shared == y.shared]
        first = self._places(tuple(x for x, _ in pairs), free)
        second = self._places(tuple(y for _, y in pairs), free)
        if not pairs or first is None or second is None:
            return Meeting.MAYBE
        holders: dict[_Place, set[int]] = {}
        for n in running:
            for place in first[n]:
                holders.setdefault(place, set()).add(n)
        for n in running:
            itself = set() if self._has_likes else {n}
            if any(holders.get(place, set()) - itself for place in second[n]):
                return Meeting.SOMEWHERE if len(pairs) == len(a) else Meeting.MAYBE
        return Meeting.NEVER

    def _form(self, expr: Expr, free: frozenset[int]) -> _Form | None:
        """The form of an index; None where a term differs between threads in an unknown way."""
        terms: dict[Expr, int] = {}
        constant = _linear(expr, 1, terms)
        own = self._lanes | free
        shared, numbers = set(), []
        for term, factor in terms.items():
            used = [e for e in walk.walk_expr(term) if isinstance(e, Var)]
            if {e.id for e in used} & own:
                if _evaluator(term, own) is None:
                    return None
                numbers.append((term, factor))
            elif self._variation.reads((term,)) or any(
                isinstance(e, Load) for e in walk.walk_expr(term)
            ):
                return None
            elif factor:
                shared.add((term, factor))
        return _Form(frozenset(shared), tuple(numbers), constant)

    def _places(
        self, forms: tuple[_Form, ...], free: frozenset[int]
    ) -> list[frozenset[_Place]] | None:
        """What each thread touches, less the shared terms; None for too many places."""
        key = (tuple((f.numbers, f.constant) for f in forms), free)
        if key not in self._known:
            self._known[key] = self._tried(forms, free)
        return self._known[key]

    def _tried(
        self, forms: tuple[_Form, ...], free: frozenset[int]
    ) -> list[frozenset[_Place]] | None:
        terms = [term for form in forms for term, _ in form.numbers]
        turns = self._turns(terms, free)
        if turns is None:
            return None
        own = self._lanes | free
        known = {term: _evaluator(term, own) for term in terms}

        def number(form: _Form, numbers: _Numbers) -> int:
            found = form.constant
            for term, factor in form.numbers:
                evaluated = known[term]
                assert evaluated is not None
                found += factor * evaluated(numbers)
            return found

        return [
            frozenset(tuple(number(form, {**thread, **turn}) for form in forms) for turn in turns)
            for thread in self._threads
        ]

    def _turns(self, terms: Sequence[Expr], free: frozenset[int]) -> list[_Numbers] | None:
        """The values of the variables ``free`` that ``terms`` use; None for too many."""
        used = (e.id for expr in terms for e in walk.walk_expr(expr) if isinstance(e, Var))
        ids = [n for n in dict.fromkeys(used) if n in free]
        spans = []
        for number in ids:
            loop = self._loops.get(max(number, -1 - number))
            first = None if loop is None else const_value(loop.start)
            last = None if loop is None else const_value(loop.stop)
            if first is None or last is None:
                return None
            spans.append(range(first, last))
        if math.prod(map(len, spans)) * len(self._threads) > _MOST_POINTS:
            return None
        return [dict(zip(ids, values, strict=True)) for values in itertools.product(*spans)] or None

    def _earlier_in(self, places: _Indices) -> Iterator[int]:
        for expr in places:
            for e in walk.walk_expr(expr):
                if isinstance(e, Var) and e.id in self._earlier:
                    yield e.id


def _linear(expr: Expr, scale: int, terms: dict[Expr, int]) -> int:
    """Add ``scale * expr`` to ``terms``; the constant part is returned."""
    match expr:
        case Const(value=value) if isinstance(value, int):
            return scale * value
        case Binary(op="add" | "sub" as op, a=a, b=b):
            sign = 1 if op == "add" else -1
            return _linear(a, scale, terms) + _linear(b, sign * scale, terms)
        case Binary(op="mul", a=a, b=Const(value=int(value))):
            return _linear(a, scale * value, terms)
        case Binary(op="mul", a=Const(value=int(value)), b=b):
            return _linear(b, scale * value, terms)
        case Unary(op="neg", a=a):
            return _linear(a, -scale, terms)
        case _:
            terms[expr] = terms.get(expr, 0) + scale
            return 0


def _evaluator(expr: Expr, known: Collection[int]) -> Callable[[_Numbers], int] | None:
    """The number of ``expr`` by those of its variables; None if it has others, or other parts."""
    match expr:
        case Const(value=value) if isinstance(value, int):
            return lambda numbers: value
        case Var(id=n) if n in known:
            return lambda numbers: numbers[n]
        case Cast(a=a, dtype=dtype) if dtype.is_integer and dtype.bits >= a.dtype.bits:
            return _evaluator(a, known)
        case Unary(op="not", a=a):
            inner = _evaluator(a, known)
            return None if inner is None else lambda numbers: not inner(numbers)
        case Binary(op=op, a=a, b=b) if op in _OPERATORS:
            left, right = _evaluator(a, known), _evaluator(b, known)
            if left is None or right is None or _may_fail(op, b):
                return None
            apply = _OPERATORS[op]
            return lambda numbers: apply(left(numbers), right(numbers))
    return None


def _may_fail(op: str, b: Expr) -> bool:
    """True for a division or shift by what is not a positive constant."""
    return op in ("floordiv", "floormod", "shl", "shr") and (const_value(b) or 0) < (
        0 if op in ("shl", "shr") else 1
    )
