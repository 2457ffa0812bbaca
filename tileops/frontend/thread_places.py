"""Which elements the threads of a block touch, tried thread by thread."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

from tileops.frontend.thread_variation import Variation
from tileops.ir import fold, walk
from tileops.ir.expr import Expr, Load, Var, const_value
from tileops.ir.stmt import Bind, Body, For
from tileops.language.index_arithmetic import constant_difference
from tileops.language.tracer import ThreadIndices

_Indices = tuple[Expr, ...]
_Offsets = list[frozenset[tuple[int, ...]]]  # of each thread
_MOST_POINTS = 1 << 14


class Meeting(Enum):
    """Whether one thread touches, in one access, what another one touches in a second."""

    NEVER = 0
    MAYBE = 1
    SOMEWHERE = 2


class Places:
    """The places that threads touch.

    Threads that differ in an index that the program does not ask for touch the same places.
    Two indices of one access or of two are compared as of one iteration of each loop around them.
    For an access of an iteration before, ``earlier`` gives the variables other names.
    """

    def __init__(self, indices: ThreadIndices, body: Body, variation: Variation) -> None:
        lanes = indices.lanes
        points = itertools.product(*(range(count) for _, count in lanes))
        self._threads: list[dict[int, Expr]] = [
            {var.id: fold.const(n) for (var, _), n in zip(lanes, point, strict=True)}
            for point in points
        ]
        self._has_likes = len(self._threads) < indices.count
        self._lanes = {var.id for var, _ in lanes}
        self._variation = variation
        self._loops = {s.var.id: s for s in walk.walk(body) if isinstance(s, For)}
        self._earlier: set[int] = set()
        self._known: dict[tuple[_Indices, _Indices, frozenset[int]], _Offsets | None] = {}

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
        found = list(range(len(self._threads)))
        for condition in conditions:
            found = [n for n in found if self._at(condition, n) != fold.const(False)]
        return frozenset(found)

    def meeting(self, a: _Indices, b: _Indices, running: frozenset[int]) -> Meeting:
        """How the threads ``running`` meet at the elements ``a`` and ``b`` of one buffer."""
        if len(a) != len(b):
            return Meeting.MAYBE
        # Iterations of one loop that differ: each has all the values of the loop's variable.
        free = frozenset(n for m in self._earlier_in((*a, *b)) for n in (m, -1 - m))
        # A dimension whose places are not known tells nothing; the others may.
        dims = [d for d in range(len(a)) if self._offsets(a[d : d + 1], a[d : d + 1], free)
                and self._offsets(b[d : d + 1], a[d : d + 1], free)]  # fmt: skip
        base = tuple(a[d] for d in dims)
        first = self._offsets(base, base, free)
        second = self._offsets(tuple(b[d] for d in dims), base, free)
        if not dims or first is None or second is None:
            return Meeting.MAYBE
        holders: dict[tuple[int, ...], set[int]] = {}
        for n in running:
            for place in first[n]:
                holders.setdefault(place, set()).add(n)
        for n in running:
            itself = set() if self._has_likes else {n}
            if any(holders.get(place, set()) - itself for place in second[n]):
                return Meeting.SOMEWHERE if len(dims) == len(a) else Meeting.MAYBE
        return Meeting.NEVER

    def _offsets(self, places: _Indices, base: _Indices, free: frozenset[int]) -> _Offsets | None:
        """Each thread's ``places`` less those of thread 0 at ``base``; None if not known."""
        key = places, base, free
        if key not in self._known:
            self._known[key] = self._found(places, base, free)
        return self._known[key]

    def _found(self, places: _Indices, base: _Indices, free: frozenset[int]) -> _Offsets | None:
        if any(map(self._is_opaque, (*places, *base))):
            return None
        turns, turns_of_base = self._turns(places, free), self._turns(base, free)
        if turns is None or turns_of_base is None:
            return None
        zero = [self._at(e, 0, turns_of_base[0]) for e in base]
        found: _Offsets = []
        for n in range(len(self._threads)):
            of_thread = set()
            for turn in turns:
                gaps = [constant_difference(self._at(e, n, turn), z)
                        for e, z in zip(places, zero, strict=True)]  # fmt: skip
                known = tuple(gap for gap in gaps if gap is not None)
                if len(known) < len(gaps):
                    return None
                of_thread.add(known)
            found.append(frozenset(of_thread))
        return found

    def _is_opaque(self, expr: Expr) -> bool:
        """True for an index whose value may differ between threads in more than their number."""
        for e in walk.walk_expr(expr):
            if isinstance(e, Load):
                return True
            if isinstance(e, Var) and e.id not in self._lanes and self._variation.reads((e,)):
                return True
        return False

    def _turns(self, places: _Indices, free: frozenset[int]) -> list[dict[int, Expr]] | None:
        """The values of the variables ``free`` that ``places`` use; None for too many."""
        used = (e.id for expr in places for e in walk.walk_expr(expr) if isinstance(e, Var))
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
        return [
            {number: fold.const(value) for number, value in zip(ids, values, strict=True)}
            for values in itertools.product(*spans)
        ] or None

    def _earlier_in(self, places: _Indices) -> Iterator[int]:
        for expr in places:
            for e in walk.walk_expr(expr):
                if isinstance(e, Var) and e.id in self._earlier:
                    yield e.id

    def _at(self, expr: Expr, thread: int, turn: Mapping[int, Expr] | None = None) -> Expr:
        return fold.substitute(expr, {**self._threads[thread], **(turn or {})})
