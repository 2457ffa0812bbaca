"""Calls under the interpreter: text is generated and interpreted, and nothing is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tileops.codegen.kernel_code import KernelCode, Specialization
from tileops.interpreter.executor import interpret
from tileops.ir.program import Program, TensorParam
from tileops.ir.walk import written_ids
from tileops.jit.checking import checked
from tileops.jit.compiling import generate
from tileops.jit.definition import Definition
from tileops.jit.provider import Build, reaches_index64
from tileops.jit.specialising import specialise
from tileops.jit.targets import default_target


def text_of(program: Program, build: Build) -> tuple[Program, KernelCode]:
    """The program with the checks that the settings ask for, and its generated text."""
    target = build.target or default_target()
    program = checked(program, target.text_target)
    spec = Specialization(index64=reaches_index64(program))
    return program, generate(program, target, spec)


def call(
    definition: Definition,
    build: Build,
    values: Mapping[str, Any],
    device: torch.device | str | None = None,
) -> Any:  # noqa: ANN401
    """What a call of an eager program with these arguments by name returns."""
    program, code = text_of(specialise(definition, (), values).program, build)
    return run(program, code, values, device)


@torch.no_grad()
def run(
    program: Program,
    code: KernelCode,
    values: Mapping[str, Any],
    device: torch.device | str | None = None,
) -> Any:  # noqa: ANN401
    """The outputs of ``program`` for arguments by name; tensors may be on any device.

    One output is returned alone unless the program returns a tuple. Outputs are on ``device``, by
    default that of the first tensor.
    """
    given: list[Any] = []
    moved: list[tuple[torch.Tensor, torch.Tensor]] = []
    written = written_ids(program.launches)
    for param in program.params:
        if not isinstance(param, TensorParam):
            given.append(values[param.name])
        elif not param.allocated:
            tensor = values[param.name]
            here = tensor.detach().cpu()
            if param.buffer.strides is None and not param.raw:
                here = here.contiguous()
            given.append(here)
            device = tensor.device if device is None else device
            if param.buffer.id in written and here.data_ptr() != tensor.data_ptr():
                moved.append((tensor, here))
    outputs = interpret(code, program, *given)
    for tensor, here in moved:
        tensor.copy_(here)
    results = tuple(t if device is None else t.to(device) for t in outputs)
    if program.returns_tuple:
        return results
    return results[0] if results else None
