"""Runs an eager program of a test on each executor; programs stand in modules that tests import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tileops.codegen import triton as codegen
from tileops.codegen.kernel_code import Specialization
from tileops.compiler import compile_kernel
from tileops.target import parse_target
from tileops.testing.interpreter import interpret

SM_90 = parse_target("cuda:sm_90")
EXECUTORS = ("cpu", "interpreter")


def run(
    executor: str,
    impl: Any,
    *inputs: Any,
    reachable: Sequence[torch.Tensor] = (),
    **options: Any,
) -> tuple[torch.Tensor, ...]:
    """The outputs of one call, as a tuple; tensors that the program writes change in place.

    ``reachable`` are the tensors that tables of addresses among the inputs point to.
    """
    if executor == "interpreter":
        program = impl.get_tir(*inputs, **options)
        code = codegen.generate(program, SM_90, Specialization(fast=False))
        return interpret(code, program, *inputs, reachable=reachable)
    if executor == "gpu":
        moved = tuple(x.cuda() if isinstance(x, torch.Tensor) else x for x in inputs)
        out = _as_tuple(impl(*moved, **options))
        for before, after in zip(inputs, moved, strict=True):
            if isinstance(before, torch.Tensor):
                before.copy_(after)
        return tuple(x.cpu() for x in out)
    return _as_tuple(impl(*inputs, **options))


def _as_tuple(out: Any) -> tuple[torch.Tensor, ...]:
    if out is None:
        return ()
    return (out,) if isinstance(out, torch.Tensor) else tuple(out)


def compile_for(target: str, impl: Any, *inputs: Any, **options: Any) -> str:
    """Compile the program of a call for a GPU; its ``kernel.py``."""
    program = impl.get_tir(*inputs, **options)
    chosen = parse_target(target)
    code = codegen.generate(program, chosen, Specialization(fast=True))
    artifact = compile_kernel(code, chosen, dict(program.options))
    assert all(artifact.files[launch.image] for launch in artifact.launches)
    return code.source
