"""Traces of a test's programs, and their printed text."""

from __future__ import annotations

import textwrap
from types import FunctionType
from typing import Any

import torch

from tileops.frontend.signature import signature_of
from tileops.frontend.trace import trace
from tileops.ir.expr import Var
from tileops.ir.printer import print_body, print_program
from tileops.ir.program import Program
from tileops.ir.verifier import verify


def specialise(impl: Any, args: tuple[Any, ...], **options: Any) -> Program:
    """The program that a call of ``impl`` with ``args`` compiles: size constants are numbers."""
    func = impl.func
    static = static_values(func, options)
    symbolic = trace(func, name=func.__name__, static=static, consts=None)
    sizes: dict[int, int] = {}
    given = iter(args)
    for param in symbolic.params:
        if getattr(param, "allocated", False):
            continue
        value = next(given)
        if isinstance(value, torch.Tensor):
            for extent, size in zip(param.buffer.shape, value.shape, strict=True):
                if isinstance(extent, Var):
                    sizes[extent.id] = size
    consts = {s.var.name: sizes[s.var.id] for s in symbolic.sizes if s.kind == "const"}
    return trace(func, name=func.__name__, static=static, consts=consts)


def static_values(func: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The compile-time parameters of a program: given ones, and defaults for the rest."""
    values = {p.name: p.default for p in signature_of(func).params if p.kind == "static"}
    return {**values, **options}


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
