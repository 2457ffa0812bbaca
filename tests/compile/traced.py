"""Traces of the example programs, specialised to the sizes of given inputs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from tileops.frontend.signature import signature_of
from tileops.frontend.trace import trace
from tileops.ir.expr import Var
from tileops.ir.program import Program

ROOT = Path(__file__).resolve().parents[2]
for folder in ("tests/programs", "examples"):
    if str(ROOT / folder) not in sys.path:
        sys.path.insert(0, str(ROOT / folder))


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
