"""A running ``if``: its branches as IR, and the names that it assigns."""

from __future__ import annotations

from collections.abc import Mapping

from tileops.errors import ProgramValueError
from tileops.ir import fold
from tileops.ir.stmt import Body, If
from tileops.language.buffers import VarRef
from tileops.language.tracer import OpenRegion, Tracer
from tileops.language.value import Value, is_scalar, to_expr


class Branch:
    """An ``if`` while its branches are traced.

    A condition that Python knows picks one branch. One over sizes (before T.Kernel, or over size
    constants of a symbolic trace) runs both in place, and names assigned in them become selections.
    Any other becomes an IR If.
    """

    def __init__(
        self,
        tracer: Tracer,
        cond: object,
        names: Mapping[str, object] | None,
        scopes: Mapping[str, OpenRegion | None],
        *,
        symbolic: bool,
    ) -> None:
        self._tracer = tracer
        self._cond = cond
        self._loc = tracer.location
        self.before = dict(names) if names is not None else {}
        self.scopes = dict(scopes) if symbolic else {}
        self.assigned: set[str] = set()
        self.closed: OpenRegion | None = None
        self._then: Body = ()
        # The names after each branch.
        self.after_then: Mapping[str, object] = {}
        self.after_else: Mapping[str, object] = {}
        self._const_only = (
            symbolic and isinstance(cond, Value) and tracer.depends_on_consts_only(cond.expr)
        )
        # A symbolic trace never becomes code: the specialised one knows which branch it takes.
        self._records = symbolic and not self._const_only and tracer.launch is not None
        self._selects = symbolic and not self._records
        self.symbolic = symbolic

    def begin_then(self) -> bool:
        """Start the first branch; True if it runs."""
        if self.symbolic:
            self._open("then")
            return True
        return bool(self._cond)

    def begin_else(self) -> bool:
        """Start the second branch; True if it runs."""
        if self.symbolic:
            self._then = self._close()
            self._open("else")
            return True
        return not self._cond

    def end(self) -> None:
        """Finish the second branch and record the ``if``."""
        orelse = self._close() if self.symbolic else ()
        if self._records and (self._then or orelse):
            cond = fold.truth(to_expr(self._cond))
            self._tracer.emit(If(cond, self._then, orelse, loc=self._loc))

    def _open(self, kind: str) -> None:
        if self._records:
            self._tracer.open_region(kind).loc = self._loc
        elif not self._const_only:
            self._tracer.conditional_depth += 1

    def _close(self) -> Body:
        if self._records:
            self.closed = self._tracer.close_region()
            return self.closed.body
        if not self._const_only:
            self._tracer.conditional_depth -= 1
        return ()

    def restores(self, name: str) -> bool:
        """True if ``name`` must get its old value back before the second branch."""
        return self.symbolic and name in self.before and not isinstance(self.before[name], VarRef)

    def merges(self, name: str) -> bool:
        """True if ``name`` was assigned in a branch on sizes and has a value after it."""
        return self._selects and (name in self.after_then or name in self.after_else)

    def merged(self, name: str) -> object:
        """What ``name`` is after an ``if`` on sizes."""
        a = self.after_then.get(name, self.after_else.get(name))
        b = self.after_else.get(name, a)
        if a is b:
            return a
        if is_scalar(a) and is_scalar(b):
            return Value(fold.select(to_expr(self._cond), to_expr(a), to_expr(b)))
        if self._const_only:
            return a
        raise ProgramValueError(
            f"`{name}` is not a number and differs between the branches of a condition on "
            "run-time sizes",
            location=self._loc,
        )
