"""Calls under the interpreter: text is generated and interpreted, and nothing is compiled."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from tileops.codegen.kernel_code import KernelCode, Specialization
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.interpreter.executor import interpret
from tileops.ir.program import Program, ScalarParam, TensorParam
from tileops.jit.compiling import checked, generate
from tileops.jit.definition import Definition
from tileops.jit.provider import Build, reaches_index64
from tileops.jit.specialising import specialise
from tileops.jit.targets import default_target
from tileops.op import call_inputs, gradient
from tileops.op.fake import fake_of
from tileops.op.spec import spec_of, written_parameters
from tileops.op.variant import variant_of


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
    copies = definition.options.contiguous == "copy"
    return run(definition.title, program, code, values, device, copies_inputs=copies)


def run(
    title: str,
    program: Program,
    code: KernelCode,
    values: Mapping[str, Any],
    device: torch.device | str | None = None,
    *,
    copies_inputs: bool = False,
) -> Any:  # noqa: ANN401
    """The outputs of ``program`` for arguments by name; tensors may be on any device.

    Arguments are refused as a call of an op refuses them; ``title`` begins the errors. One output
    is returned alone unless the program returns a tuple. Outputs are on ``device``, by default that
    of the first tensor. With an input that requires grad they have a node that refuses a backward
    pass.
    """
    names = [p.name for p in program.tensors() if not p.allocated]
    functorch: Any = torch._C._functorch
    if torch._C._len_torch_dispatch_stack() or functorch.peek_interpreter_stack() is not None:
        raise ArgumentError(
            f"{title}: torch cannot trace or transform calls of target 'interpreter' (make_fx, "
            "export, fake tensors, torch.func); use another target there"
        )
    given = _checked(title, program, values, copies_inputs=copies_inputs)
    tensors = [given[name] for name in names]
    written = written_parameters(program)
    _refuse_overlaps(title, written, dict(zip(names, tensors, strict=True)))

    @torch.no_grad()
    def interpreted(tensors: Sequence[torch.Tensor]) -> Any:  # noqa: ANN401
        arguments = {**given, **dict(zip(names, tensors, strict=True))}
        return _run(program, code, arguments, written, device)

    if not gradient.is_wanted(tensors):
        return interpreted(tensors)
    for name in names:
        if name in written:
            gradient.refuse_leaf(title, name, given[name])
    changed = [n for n, t in enumerate(tensors) if names[n] in written and t.requires_grad]
    if not program.returns and not changed:
        return interpreted(tensors)
    return gradient.call_without_rule(title, interpreted, tensors, changed)


def _checked(
    title: str, program: Program, values: Mapping[str, Any], *, copies_inputs: bool
) -> dict[str, Any]:
    """The arguments by name, after the checks of a call; scalars as their dtypes hold them."""
    given: dict[str, Any] = {}
    for param in program.params:
        if isinstance(param, ScalarParam):
            where, dtype = f"{title}: argument '{param.name}'", param.var.dtype
            value = call_inputs.scalar(where, str(dtype), values[param.name])
            if not dtype.is_float and not dtype.is_bool:
                least, most = dtype.limits
                if not least <= value <= most:
                    raise ArgumentError(f"{where}: expected a value of {dtype}, got {value}")
            given[param.name] = value
        elif not param.allocated:
            given[param.name] = _tensor(title, param, values[param.name])
    if forward_ad._current_level >= 0:
        gradient.refuse_tangents(title, given.values())
    spec = spec_of(program, namespace="tileops", name=program.name, copies_inputs=copies_inputs)
    variant = variant_of(program, spec, ())
    with torch.no_grad():
        fake_of(spec, lambda static: variant)(**given)
    return given


def _tensor(title: str, param: TensorParam, value: object) -> torch.Tensor:
    where = f"{title}: argument '{param.name}'"
    if not isinstance(value, torch.Tensor):
        raise ArgumentTypeError(f"{where}: expected a tensor, got {call_inputs.shown(value)}")
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.is_meta:
        kind = "a meta tensor" if value.is_meta else type(value).__name__
        raise ArgumentTypeError(
            f"{where}: target 'interpreter' expects a plain tensor with data, got {kind}"
        )
    return value


def _refuse_overlaps(
    title: str, written: Iterable[str], tensors: Mapping[str, torch.Tensor]
) -> None:
    spans = {name: _span(tensor) for name, tensor in tensors.items()}
    for name in sorted(written):
        for other, (start, end) in spans.items():
            if other != name and max(start, spans[name][0]) < min(end, spans[name][1]):
                raise ArgumentError(
                    f"{title}: argument '{name}' is written and shares memory with '{other}'; pass "
                    "a clone()"
                )


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses of a tensor's first byte and of the one after its last."""
    if tensor.numel() == 0:
        return 0, 0
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.data_ptr()
    return start, start + (reach + 1) * tensor.element_size()


def _run(
    program: Program,
    code: KernelCode,
    values: Mapping[str, Any],
    written: Container[str],
    device: torch.device | str | None,
) -> Any:  # noqa: ANN401
    given: list[Any] = []
    moved: list[tuple[torch.Tensor, torch.Tensor]] = []
    for param in program.params:
        if not isinstance(param, TensorParam):
            given.append(values[param.name])
        elif not param.allocated:
            tensor = values[param.name]
            here = tensor.detach().resolve_neg().cpu()
            if param.buffer.strides is None and not param.raw:
                here = here.contiguous()
            given.append(here)
            device = tensor.device if device is None else device
            if param.name in written and here.data_ptr() != tensor.data_ptr():
                moved.append((tensor, here))
    outputs = interpret(code, program, *given)
    for tensor, here in moved:
        tensor.copy_(here)
    results = tuple(t if device is None else t.to(device) for t in outputs)
    if program.returns_tuple:
        return results
    return results[0] if results else None
