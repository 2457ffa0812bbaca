"""The canonical text of a program: same program, same text, on every machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tileops.ir.expr import Expr
from tileops.ir.program import Program
from tileops.ir.stmt import Body


def print_expr(expr: Expr) -> str:
    """The canonical text of one expression."""
    return expr.text()


def print_body(body: Body, indent: int = 0) -> list[str]:
    """The text of a statement list, one string a line."""
    pad = "  " * indent
    lines: list[str] = []
    for stmt in body:
        lines.append(pad + stmt.text())
        for number, name in enumerate(stmt.BODIES):
            inner = getattr(stmt, name)
            if number and inner:
                lines.append(pad + "else:")
            lines += print_body(inner, indent + 1)
    return lines


def print_program(program: Program) -> str:
    """The canonical text of a program: what ``program.txt`` holds and what the cache key hashes."""
    lines = [f"program {program.name}"]
    lines += [f"size {s.var}: {s.var.dtype.short} {s.kind}" for s in program.sizes]
    lines += [param.text() for param in program.params]
    for variable in program.dtype_vars:
        allowed = ", ".join(dtype.short for dtype in variable.dtypes)
        lines.append(f"dtype {variable.name} of {', '.join(variable.params)} in {allowed}")
    lines += [f"workspace {b.declaration}" for b in program.workspaces]
    lines += [f"option {name} = {value}" for name, value in program.options]
    lines += print_body(program.host_asserts)
    lines += _launch_lines(program)
    returned = ", ".join(map(str, program.returns))
    lines.append(f"return {'tuple ' if program.returns_tuple else ''}[{returned}]")
    return "\n".join(lines) + "\n"


def _launch_lines(program: Program) -> list[str]:
    if not program.externs:
        return print_body(program.launches)
    lines: list[str] = []
    for number in range(len(program.launches) + 1):
        lines += [line for e in program.externs if e.after == number for line in e.lines()]
        lines += print_body(program.launches[number : number + 1])
    return lines


# The texts of a program by pass, in the order in which the passes run; None if nobody asks.
Dumps = list[tuple[str, str]]
_dumps: ContextVar[Dumps | None] = ContextVar("tileops_dumps", default=None)


@contextmanager
def collected_dumps() -> Iterator[Dumps]:
    """Collect what each pass makes while the block runs."""
    dumps: Dumps = []
    token = _dumps.set(dumps)
    try:
        yield dumps
    finally:
        _dumps.reset(token)


def dump(name: str, program: Program) -> None:
    """Add what pass ``name`` made, if somebody collects it; ``name`` is a verb phrase."""
    dumps = _dumps.get()
    if dumps is not None:
        dumps.append((name, print_program(program)))
