"""Python's ``print`` and ``breakpoint`` in a program: recorded for the interpreter alone.

Other targets get what Python does while the program is traced, and a warning that says so.
"""

from __future__ import annotations

import builtins
import sys
import warnings
from typing import Any

from tileops.errors import ProgramError, ProgramValueError
from tileops.ir.expr import Expr, Region
from tileops.ir.stmt import Inspect
from tileops.language.buffers import BufferRef, RegionRef
from tileops.language.operands import whole
from tileops.language.tracer import Tracer
from tileops.language.value import Value, is_scalar, to_expr
from tileops.location import printable


class Inspections:
    """What the names ``print`` and ``breakpoint`` stand for in one traced function."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def print(
        self,
        *values: object,
        sep: str | None = None,
        end: str | None = None,
        file: Any = None,  # noqa: ANN401
        flush: bool = False,
    ) -> None:
        """``print``: in a launch for the interpreter it prints when the program runs."""
        if not self._is_recorded("print"):
            if any(isinstance(v, (Value, BufferRef, RegionRef)) for v in values):
                self._warn("print")
            builtins.print(*values, sep=sep, end=end, file=file, flush=flush)
            return
        if file is not None:
            raise ProgramValueError("`print` of a running program writes to stdout alone")
        args: list[Expr | Region] = []
        pieces = []
        for value in values:
            if isinstance(value, (Value, BufferRef, RegionRef)):
                args.append(self._operand(value))
                pieces.append("{}")
            else:
                pieces.append(_literal(value))
        between, last = " " if sep is None else sep, "\n" if end is None else end
        message = _literal(between).join(pieces) + _literal(last)
        self._tracer.emit(Inspect(printable(message), tuple(args)))

    def breakpoint(self) -> None:
        """``breakpoint``: in a launch for the interpreter it stops when the program runs."""
        names: list[str] = []
        values: list[Expr | Region] = []
        for name, value in sys._getframe(1).f_locals.items():
            if name.startswith("__") or not (is_scalar(value) or isinstance(value, BufferRef)):
                continue
            operand = self._operand(value)
            try:
                self._tracer.check_alive(Inspect("", (operand,)))
            except ProgramError:
                continue  # its loop or block has ended
            names.append(name)
            values.append(operand)
        self._tracer.emit(Inspect("", tuple(values), tuple(names)))

    def stand_in(self, function: object) -> object:
        """What ``print`` or ``breakpoint`` of a program is; other functions as they are."""
        if function is builtins.print:
            return self.print
        if function is builtins.breakpoint:
            if self._is_recorded("breakpoint"):
                return self.breakpoint
            self._warn("breakpoint")
        return function

    def _is_recorded(self, what: str) -> bool:
        tracer = self._tracer
        if not tracer.for_interpreter or tracer.launch is None:
            return False
        if tracer.in_parallel:
            raise ProgramValueError(
                f"`{what}` goes between tile operations and not inside T.Parallel, whose "
                "iterations have no order; use it before or after the loop"
            )
        return True

    def _operand(self, value: object) -> Expr | Region:
        if isinstance(value, BufferRef):
            return whole(value)
        if not isinstance(value, RegionRef):
            return to_expr(value)
        if not value.region.buffer.is_on_chip:
            raise ProgramValueError(
                "`print` shows a whole tensor or an element of one; T.copy a part of it to a tile "
                "first"
            )
        return value.region

    def _warn(self, what: str) -> None:
        place = self._tracer.location
        if place is not None and not self._tracer.for_interpreter:
            warnings.warn_explicit(
                f"`{what}` runs while the program is traced and its tiles have no values; compiled "
                "with target='interpreter' it runs with the program",
                UserWarning,
                place.file,
                place.line,
            )


def _literal(value: object) -> str:
    return str(value).replace("{", "{{").replace("}", "}}")
