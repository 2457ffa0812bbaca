"""A running ``if``: its branches as IR, and the names that it assigns."""

from __future__ import annotations

from collections.abc import Mapping

from tileops.errors import ProgramValueError
from tileops.ir import fold
from tileops.ir.stmt import Body, If
from tileops.language.buffers import VarRef
from tileops.language.tracer import OpenRegion, Tracer
from tileops.language.value import Value, is_scalar, to_expr

_MISSING = object()


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
        self._after_then: dict[str, object] = {}
        self._after_else: dict[str, object] = {}
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

    def after_then(self, names: Mapping[str, object]) -> None:
        """Note what the first branch assigned."""
        self._after_then = dict(names)

    def begin_else(self) -> bool:
        """Start the second branch; True if it runs."""
        if self.symbolic:
            self._then = self._close()
            self._open("else")
            return True
        return not self._cond

    def end(self, names: Mapping[str, object] | None) -> None:
        """Finish the second branch and record the ``if``."""
        self._after_else = dict(names) if names is not None else {}
        if not self.symbolic:
            return
        orelse = self._close()
        if self._records and (self._then or orelse):
            self._tracer.emit(
                If(fold.truth(to_expr(self._cond)), self._then, orelse, loc=self._loc)
            )

    def _open(self, kind: str) -> None:
        if self._records:
            self._tracer.open_region(kind).loc = self._loc
        elif not self._const_only:
            self._tracer.conditional_depth += 1

    def _close(self) -> Body:
        if self._records:
            self.closed = self._tracer.region
            return self._tracer.close_region()
        if not self._const_only:
            self._tracer.conditional_depth -= 1
        return ()

    def restores(self, name: str) -> bool:
        """True if ``name`` must get its old value back before the second branch."""
        return self.symbolic and name in self.before and not isinstance(self.before[name], VarRef)

    def merges(self, name: str) -> bool:
        """True if ``name`` was assigned in a branch on sizes and has a value after it."""
        if not self._selects:
            return False
        return name in self._after_then or name in self._after_else

    def merged(self, name: str) -> object:
        """What ``name`` is after an ``if`` on sizes."""
        a = self._after_then.get(name, _MISSING)
        b = self._after_else.get(name, _MISSING)
        if a is b or b is _MISSING:
            return a
        if a is _MISSING:
            return b
        if is_scalar(a) and is_scalar(b):
            return Value(fold.select(to_expr(self._cond), to_expr(a), to_expr(b)))
        if self._const_only:
            return a
        raise ProgramValueError(
            f"`{name}` is not a number and differs between the branches of a condition on "
            "run-time sizes",
            location=self._loc,
        )
