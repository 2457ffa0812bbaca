"""What statements do that others see, and what groups that share work must not do twice."""

from __future__ import annotations

from collections.abc import Iterable

from tileops.ir.stmt import Assert, Check, Print, Stmt
from tileops.ir.walk import read_buffers, walk, written_buffers
from tileops.passes.hopper.unfit import Unfit

SPEAKING = (Print, Assert, Check)


def require_no_effect(stmt: Stmt, what: str) -> None:
    """Unfit for what each group would do to memory or say to people, and one should.

    Groups have different ``what``.
    """
    written = (b for s in walk((stmt,)) for b in written_buffers(s))
    if any(not b.is_on_chip for b in written):
        raise Unfit(f"memory is written without a {what}", stmt.loc)
    if any(isinstance(s, SPEAKING) for s in walk((stmt,))):
        raise Unfit(f"something is printed or checked without a {what}", stmt.loc)


def read_ids(body: Iterable[Stmt]) -> set[int]:
    """The ids of the buffers that ``body`` reads."""
    return {b.id for s in walk(tuple(body)) for b in read_buffers(s)}


def written_ids(body: Iterable[Stmt]) -> set[int]:
    """The ids of the buffers that ``body`` writes."""
    return {b.id for s in walk(tuple(body)) for b in written_buffers(s)}


def touched_ids(body: Iterable[Stmt]) -> set[int]:
    """The ids of the buffers that ``body`` reads or writes."""
    return read_ids(body) | written_ids(body)
