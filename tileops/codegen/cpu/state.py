"""The text of one launch under generation, and what is known where the next line goes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tileops.errors import InternalError
from tileops.ir.expr import Buffer, Expr, Load, Var
from tileops.ir.stmt import Stmt
from tileops.passes.analyze_index import needs_guard
from tileops.passes.analyze_ranges import ANY, Interval, Ranges


class Writer:
    """Collects lines; ``statement`` is the number recorded for those written while it is set."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.statements: dict[int, int] = {}
        self.statement: int | None = None
        self._depth = 0
        self._names = 0

    def line(self, text: str) -> None:
        """Append one line at the current depth."""
        self.lines.append("  " * self._depth + text if text else "")
        if self.statement is not None:
            self.statements[len(self.lines)] = self.statement

    @contextmanager
    def block(self, head: str = "", end: str = "}") -> Iterator[None]:
        """``head {`` ... ``end`` with the lines between one level deeper."""
        self.line(f"{head} {{" if head else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line(end)

    def fresh(self, stem: str) -> str:
        """A local name that no other line uses."""
        self._names += 1
        return f"{stem}{self._names}"

    @contextmanager
    def nested(self, heads: Sequence[str]) -> Iterator[None]:
        """A block inside a block, the first head outermost."""
        with ExitStack() as stack:
            for head in heads:
                stack.enter_context(self.block(head))
            yield


def identifier(name: str, number: int) -> str:
    """A C++ identifier for a user's name: unique by number, never a keyword."""
    clean = re.sub(r"[^0-9A-Za-z_]", "_", name).strip("_") or "v"
    tail = str(number) if number >= 0 else f"x{-number}"
    return f"{clean}_{tail}" if not clean[0].isdigit() else f"v{clean}_{tail}"


@dataclass(frozen=True)
class Place:
    """Where a buffer is: a pointer, and extents and strides as 64-bit C++ expressions."""

    pointer: str
    extents: tuple[str, ...]
    strides: tuple[str, ...]


@dataclass(frozen=True)
class Condition:
    """That an index is not below 0 (``is_lower``), or that it is below an extent."""

    index: Expr
    extent: Expr
    is_lower: bool
    bound: str = field(compare=False)  # the extent's text

    def test(self, index: str) -> str:
        """The test as text; ``index`` is that of the index."""
        return f"{index} >= 0" if self.is_lower else f"{index} < {self.bound}"


@dataclass
class LaunchState:
    """Everything that the text of one launch depends on."""

    writer: Writer
    ranges: Ranges
    gemm_space: str
    places: dict[int, Place] = field(default_factory=dict)
    roots: Mapping[int, Buffer] = field(default_factory=dict)  # of views: whose storage they name
    names: dict[int, str] = field(default_factory=dict)
    safe_values: dict[int, Expr] = field(default_factory=dict)
    hosts: dict[str, str] = field(default_factory=dict)
    proven: frozenset[Condition] = frozenset()
    hoisted: dict[Load, str] = field(default_factory=dict)
    # Emitters of statements that have another text in some launches, by kind.
    steps: Mapping[type[Stmt], Callable[[LaunchState, Any], None]] = field(default_factory=dict)
    tile_atomics: str = "plain"  # the prefix of functions that update elements on chip
    wraps: bool = True  # whether the compiler lets operators on signed integers wrap

    def place(self, buffer: Buffer) -> Place:
        """Where ``buffer`` is; InternalError if it was never allocated."""
        if buffer.id not in self.places:
            raise InternalError(f"buffer {buffer.name} is used before its allocation")
        return self.places[buffer.id]

    def conditions(
        self, buffer: Buffer, indices: tuple[Expr, ...], ranges: Ranges
    ) -> Iterator[Condition]:
        """What must hold for an element of a global buffer to exist and ``ranges`` do not show."""
        extents = self.place(buffer).extents
        for at, extent, bound in zip(indices, buffer.shape, extents, strict=True):
            may_break = zip((True, False), needs_guard(at, extent, ranges), strict=True)
            yield from (Condition(at, extent, lower, bound) for lower, may in may_break if may)

    def root(self, buffer: Buffer) -> int:
        """The id of the buffer whose storage ``buffer`` names: its own, or a view's source."""
        return self.roots.get(buffer.id, buffer).id

    def name(self, var: Var) -> str:
        """The C++ name of a variable in scope."""
        if var.id not in self.names:
            raise InternalError(f"variable {var.name} is used outside its scope")
        return self.names[var.id]

    def declare(self, var: Var, interval: Interval = ANY) -> str:
        """Give ``var`` its C++ name and its interval, cut to what its integer dtype can hold."""
        self.names[var.id] = name = identifier(var.name, var.id)
        if var.dtype.is_integer:
            least, most = var.dtype.limits
            bounded = Interval(
                max(least, min(interval.lo, most)), min(most, max(interval.hi, least))
            )
            self.ranges = replace(self.ranges, intervals={**self.ranges.intervals, var.id: bounded})
        return name

    def number(self, stmt: Stmt) -> int:
        """The number under which a failure of ``stmt`` is reported; -1 where it has none."""
        return -1 if stmt.origin is None else stmt.origin

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Names, ranges, proofs and hoisted values of the block are forgotten at its end."""
        saved = (dict(self.names), self.ranges, self.proven, dict(self.hoisted))
        yield
        self.names, self.ranges, self.proven, self.hoisted = saved
