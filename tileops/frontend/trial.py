"""Signatures found by trying numbers: whether they agree, with each other and later.

Python code before T.Kernel may ask for the number of a size constant. A few numbers are tried; what
calls are checked by must not depend on which.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tileops.errors import ProgramValueError
from tileops.ir import fold
from tileops.ir.expr import Expr
from tileops.ir.printer import print_expr, print_program
from tileops.ir.program import Program, TensorParam
from tileops.ir.walk import written_ids


def agreed(outlines: Sequence[Program]) -> Program | None:
    """The first of ``outlines`` if there are several and all have its signature, else None."""
    texts = {_signature_text(p) for p in outlines}
    if len(outlines) < 2 or len(texts) > 1:
        return None
    return dataclasses.replace(outlines[0], is_tried=True)


def _signature_text(program: Program) -> str:
    """What calls see of ``program``: parameters, sizes, returns, and what it writes."""
    outer = dataclasses.replace(program, launches=(), workspaces=(), options=())
    return f"{print_program(outer)} {sorted(written_ids(program.launches))}"


def check_specialised(outline: Program, program: Program, consts: Mapping[str, int]) -> None:
    """ProgramValueError where ``program`` for ``consts`` has other tensors than ``outline`` says.

    ``outline`` is the signature that was found by trial.
    """
    named = {s.var.name: s.var for s in program.sizes}
    known: dict[int, Expr] = {}
    for size in outline.sizes:
        var = size.var
        is_const = size.kind == "const"
        known[var.id] = fold.const(consts[var.name], var.dtype) if is_const else named[var.name]
    for told, found in zip(outline.tensors(), program.tensors(), strict=True):
        expected = [fold.substitute(e, known) for e in _extents(told)]
        if list(map(print_expr, expected)) != list(map(print_expr, _extents(found))):
            raise ProgramValueError(
                f"the shape of `{found.name}` depends on the number of a size constant in a way "
                "that the signature cannot tell; write it with operators, `if` and conditional "
                "expressions on the size",
                expected=f"({', '.join(map(print_expr, expected))})",
                found=f"({', '.join(map(print_expr, _extents(found)))}) for "
                + ", ".join(f"{n} = {v}" for n, v in consts.items()),
                location=found.loc,
            )


def _extents(param: TensorParam) -> tuple[Expr, ...]:
    return (*param.buffer.shape, *(param.buffer.strides or ()))
