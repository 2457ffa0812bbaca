"""Owns the short way from a test's program to the text of its body."""

from __future__ import annotations

import textwrap
from types import FunctionType

from tileops.frontend import trace
from tileops.ir.printer import print_body, print_program
from tileops.ir.program import Program
from tileops.ir.verifier import verify


def program_of(
    func: FunctionType, consts: dict[str, int] | None = None, **static: object
) -> Program:
    """The verified program of an eager function."""
    program = trace(func, name=func.__name__, static=static, consts=consts)
    verify(program)
    return program


def body_of(func: FunctionType, consts: dict[str, int] | None = None, **static: object) -> str:
    """The printed statements of all launches, without the allocations."""
    program = program_of(func, consts, **static)
    lines = [line for launch in program.launches for line in print_body(launch.body)]
    return "\n".join(line for line in lines if not line.strip().startswith("alloc"))


def text_of(func: FunctionType, consts: dict[str, int] | None = None, **static: object) -> str:
    """The printed program."""
    return print_program(program_of(func, consts, **static))


def lines(text: str) -> str:
    """An expected text, written indented in a test."""
    return textwrap.dedent(text).strip("\n")
