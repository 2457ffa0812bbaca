"""A stand-in for ``tileops.jit`` that runs the Triton path's text under the interpreter."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from tileops.codegen.kernel_code import Specialization
from tileops.codegen.triton import generate
from tileops.compiler import compile_kernel
from tileops.dtypes import by_storage
from tileops.frontend import signature_of, trace, with_out_idx
from tileops.ir.expr import Var
from tileops.ir.program import Program
from tileops.target import parse_target
from tileops.testing.interpreter import interpret

runs = 0  # how many programs ran
TARGET = parse_target("cuda:sm_90")
Run = Callable[..., Any]


def jit(func: Any = None, out_idx: Any = None, **options: Any) -> Any:
    """The decorator: calls trace, generate ``kernel.py`` and run it under the repaired interpreter."""
    if func is None:
        return functools.partial(jit, out_idx=out_idx, **options)
    signature = signature_of(func)
    if signature.mode == "lazy":
        return lambda *args, **kwargs: _kernel(func(*args, **kwargs).program, out_idx)
    kinds = {param.name: param.kind for param in signature.params}

    def call(*args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(func).bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        static = {name: value for name, value in given.items() if kinds[name] == "static"}
        inputs = [value for name, value in given.items() if kinds[name] != "static"]
        symbolic = trace(func, name=func.__name__, static=static, consts=None)
        consts = _consts(symbolic, inputs)
        dtypes = {
            v.name: by_storage(v.dtypes)[str(given[v.params[0]].dtype).removeprefix("torch.")]
            for v in symbolic.dtype_vars
        }
        program = trace(func, name=func.__name__, static=static, consts=consts, dtypes=dtypes)
        return _run(program, inputs)

    return call


def _kernel(program: Program, out_idx: Any) -> Run:
    if out_idx is not None:
        program = with_out_idx(program, out_idx)
    return lambda *inputs: _run(program, inputs)


def _consts(program: Program, inputs: list[Any]) -> dict[str, int]:
    given = [p for p in program.params if not getattr(p, "allocated", False)]
    sizes: dict[int, int] = {}
    for param, value in zip(given, inputs, strict=True):
        if isinstance(value, torch.Tensor) and not param.raw:
            last = param.buffer.shape[param.leading :]
            shape = value.shape[value.dim() - len(last) :]
            for extent, size in zip(last, shape, strict=True):
                if isinstance(extent, Var):
                    sizes[extent.id] = size
    return {s.var.name: sizes[s.var.id] for s in program.sizes if s.kind == "const"}


def _run(program: Program, inputs: Any) -> Any:
    global runs
    runs += 1
    code = generate(program, TARGET, Specialization())
    compile_kernel(code, TARGET, {})
    outputs = interpret(code, program, *inputs)
    return outputs[0] if len(outputs) == 1 else outputs or None
