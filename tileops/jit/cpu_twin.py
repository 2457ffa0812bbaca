"""The CPU twin of a program: another program that is its op's code on the CPU."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import replace
from itertools import zip_longest

from tileops.errors import ProgramTypeError
from tileops.ir.printer import print_program
from tileops.ir.program import Program
from tileops.jit.definition import Definition
from tileops.location import Location
from tileops.op.spec import written_parameters

# A variable or tensor with its number in the trace.
_NUMBERED = re.compile(r"%?\b([A-Za-z_]\w*)\.\d+")


def trace_twin(
    definition: Definition,
    program: Program,
    values: Mapping[str, object],
    given: Container[str],
    consts: Mapping[str, int],
    *,
    wide_sizes: bool,
) -> Program:
    """The trace of the twin of ``definition`` that stands for its trace ``program``.

    ``values`` are those of that trace. A compile-time value reaches a parameter of the twin by name
    if it is ``given`` by the call or the parameter has no default. ProgramTypeError where calls
    would notice: other parameters, sizes or results, or a tensor that the op does not write.
    """
    twin = definition.options.cpu
    assert twin is not None
    own, theirs = definition.parameters, twin.parameters
    inputs = {n: v for n, v in values.items() if n not in own or n in twin.inputs}
    shared = [n for n in values if n in theirs and n not in inputs]
    statics = twin.static_values(
        {n: values[n] for n in shared if n in given or n not in twin.defaults}
    )
    found = twin.trace({**statics, **inputs}, consts, wide_sizes=wide_sizes)
    found = replace(found, name=program.name)
    _require_alike(definition.name, twin, program, found)
    return found


def _require_alike(name: str, twin: Definition, program: Program, found: Program) -> None:
    place = Location(twin.func.__code__.co_filename, twin.func.__code__.co_firstlineno)
    expected, came = _seen_by_calls(program), _seen_by_calls(found)
    if expected != came:
        pairs = zip_longest(expected, came, fillvalue="nothing")
        first, other = next((a, b) for a, b in pairs if a != b)
        raise ProgramTypeError(
            f"op {name}: its CPU program {twin.name} must have the parameters, sizes and results "
            "of the op, in the same order",
            location=place,
            expected=first,
            found=other,
        )
    if more := sorted(written_parameters(found) - written_parameters(program)):
        raise ProgramTypeError(
            f"op {name}: its CPU program {twin.name} writes tensor `{more[0]}`, which {name} does "
            "not",
            location=place,
        )


def _seen_by_calls(program: Program) -> list[str]:
    """What a call sees of a program: sizes, parameters, results, a line each."""
    outer = replace(program, launches=(), externs=(), workspaces=(), options=(), host_asserts=())
    return _NUMBERED.sub(r"\1", print_program(outer)).splitlines()
