"""Runs of a generated ``kernel.py`` on the CPU: arguments, launches, results, prints."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from tileops.codegen.kernel_code import KernelCode, KernelParam, LaunchCode
from tileops.errors import ArgumentError, InternalError
from tileops.interpreter import process
from tileops.interpreter.inspections import Inspections
from tileops.ir.expr import Buffer, Const, Expr, Var
from tileops.ir.printer import print_expr
from tileops.ir.program import STATUS_ID, Program, TensorParam
from tileops.ir.stmt import AddressView
from tileops.ir.walk import walk, walk_expr
from tileops.op.host_program import HostProgramBuilder, SlotValue
from tileops.op.leading import one_stride
from tileops.op.variant import pack_of
from tileops.passes import pipeline
from tileops.passes.context import Context
from tileops.passes.report_checks import decode, reports
from tileops.target import parse_target

# Facts of a device; any value must give the same results.
_HOST_FACTS = {"host:sm_count": 4}

Values = dict[int, int | float | bool]


def interpret(
    code: KernelCode,
    program: Program,
    *args: torch.Tensor | float,
    repaired: bool = True,
    reachable: Sequence[torch.Tensor] = (),
) -> tuple[torch.Tensor, ...]:
    """Run all launches of ``code``; the outputs, in the caller's order.

    ``args`` are the tensors (on the CPU) and scalars of ``program`` in order, without the outputs
    that it allocates; tensors that the program writes are changed in place. Outputs and workspaces
    start as NaN (or the largest integer), so that unwritten elements show. ``reachable`` are the
    tensors that tables of pointers point to: the interpreter's process has copies at other
    addresses and reaches no other memory. ``repaired=False`` runs Triton's interpreter as it is.
    Raises ArgumentError for wrong arguments and for a failed check or assertion of the program,
    naming its line, and InternalError for any other failure.
    """
    values, tensors = _bind(program, args)
    buffers = (*program.workspaces, *code.workspaces)
    workspaces = [
        torch.zeros(1, dtype=torch.int64) if b.id == STATUS_ID else _poisoned(b, values)
        for b in buffers
    ]
    for launch in code.launches:
        grid = int(evaluate(launch.grid, values))
        if grid > 0:
            operands = [_operand(p, program, values, tensors, workspaces) for p in launch.params]
            tables = _tables(program, launch)
            show = Inspections(program, code, launch, operands).show
            job = process.Job(code.source, launch, grid, operands, tables, reachable, show)
            try:
                process.running().run(job, repaired)
            except process.FailedAssertionError as failure:
                _raise_report(program, code.statements.get(failure.line, -1), 0)
    _raise_status(program, buffers, workspaces)
    position = {id(t): n for n, t in enumerate(program.tensors())}
    made = [position[id(program.params[n])] for n in program.returns]
    leading = _leading_dims(program, tensors)
    return tuple(
        tensors[n].reshape((*leading, *tensors[n].shape[1:]))
        if program.tensors()[n].leading
        else tensors[n]
        for n in made
    )


def _leading_dims(program: Program, tensors: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """The leading dimensions of the arguments; none where no parameter has any."""
    for param, tensor in zip(program.tensors(), tensors, strict=True):
        if param.leading and not param.allocated:
            return tuple(tensor.shape[: tensor.dim() - param.buffer.ndim + 1])
    return ()


def _raise_status(
    program: Program, buffers: Sequence[Buffer], workspaces: Sequence[torch.Tensor]
) -> None:
    """Raise what a failed check left in the status word, if there is one."""
    for buffer, tensor in zip(buffers, workspaces, strict=True):
        found = decode(int(tensor)) if buffer.id == STATUS_ID else None
        if found is not None:
            _raise_report(program, *found)


def _raise_report(program: Program, number: int, value: int) -> None:
    checked = pipeline.run(pipeline.CHECKS, program, Context(parse_target("cuda:sm_80")))
    said = next((r.text(value) for r in reports(checked) if r.number == number), "a check failed")
    raise ArgumentError(f"{program.name}: {said}")


# -- arguments ---------------------------------------------------------------------------------
def _bind(
    program: Program, args: Sequence[torch.Tensor | float]
) -> tuple[Values, list[torch.Tensor]]:
    """The values of sizes and scalars, and all tensors with the allocated ones made."""
    values: Values = {}
    given = list(args)
    tensors: list[torch.Tensor | None] = []
    for param in program.params:
        if isinstance(param, TensorParam) and param.allocated:
            tensors.append(None)
            continue
        if not given:
            raise ArgumentError(f"no argument for parameter {param.name!r}")
        value = given.pop(0)
        if isinstance(param, TensorParam):
            if not isinstance(value, torch.Tensor):
                raise ArgumentError(f"parameter {param.name!r} is a tensor")
            _bind_shape(param, value, values)
            tensors.append(value)
        else:
            values[param.var.id] = value.item() if isinstance(value, torch.Tensor) else value
    if given:
        raise ArgumentError(f"{len(given)} arguments too many")
    made = [
        t if t is not None else _poisoned(p.buffer, values)
        for p, t in zip(program.tensors(), tensors, strict=True)
    ]
    return values, made


def _bind_shape(param: TensorParam, tensor: torch.Tensor, values: Values) -> None:
    if param.raw:
        return
    least = param.buffer.ndim - param.leading
    if tensor.dim() != least and not (param.leading and tensor.dim() > least):
        raise ArgumentError(f"parameter {param.name!r} has {param.buffer.ndim} dimensions")
    extents, steps = list(tensor.shape), list(tensor.stride())
    if param.leading:
        count = len(extents) - least
        step = one_stride(extents[:count], steps[:count])
        if step is None and tensor.numel() > 0:
            raise ArgumentError(f"parameter {param.name!r}: its leading dimensions have no stride")
        extents = [math.prod(extents[:count]), *extents[count:]]
        steps = [1 if step is None else step, *steps[count:]]
    if (pack := pack_of(param.buffer.dtype)) > 1:
        extents[-1] *= pack
        steps[:-1] = [step * pack for step in steps[:-1]]
    entries = list(zip(param.buffer.shape, extents, strict=True))
    if param.buffer.strides is not None:
        entries += list(zip(param.buffer.strides, steps, strict=True))
    for extent, size in entries:
        if isinstance(extent, Var):
            values.setdefault(extent.id, size)
    for extent, size in entries:
        if isinstance(extent, (Var, Const)) and evaluate(extent, values) != size:
            raise ArgumentError(f"parameter {param.name!r}: a size is {size}, not as traced")


def _poisoned(buffer: Buffer, values: Values) -> torch.Tensor:
    shape = [int(evaluate(e, values)) for e in buffer.shape]
    dtype = buffer.dtype.as_torch()
    if (pack := pack_of(buffer.dtype)) > 1:
        shape[-1] //= pack
        return torch.full(shape, 0x77, dtype=torch.uint8).view(dtype)
    if buffer.dtype.is_fp8:
        return torch.full(shape, 0x7F, dtype=torch.uint8).view(dtype)
    if buffer.dtype.is_float:
        return torch.full(shape, math.nan, dtype=dtype)
    worst = 1 if buffer.dtype.is_bool else torch.iinfo(dtype).max
    return torch.full(shape, worst, dtype=dtype)


def _operand(
    param: KernelParam,
    program: Program,
    values: Values,
    tensors: list[torch.Tensor],
    workspaces: list[torch.Tensor],
) -> torch.Tensor | float:
    if param.kind == "tensor":
        return tensors[param.index]
    if param.kind == "workspace":
        return workspaces[param.index]
    if param.kind == "size":
        return values[program.sizes[param.index].var.id]
    if param.kind == "scalar":
        return values[program.scalars()[param.index].var.id]
    if param.kind == "host" and param.value is not None:
        value: float = evaluate(param.value, values)
        return value
    raise InternalError(f"the interpreter has no parameter of kind {param.kind!r}")


def _tables(program: Program, launch: LaunchCode) -> frozenset[int]:
    """The numbers of parameters that are tables of addresses."""
    views = (s for s in walk(program.launches) if isinstance(s, AddressView))
    ids = {s.table.id for s in views if s.table is not None}
    tensors = [n for n, t in enumerate(program.tensors()) if t.buffer.id in ids]
    return frozenset(
        n for n, p in enumerate(launch.params) if p.kind == "tensor" and p.index in tensors
    )


# -- host expressions --------------------------------------------------------------------------
def evaluate(expr: Expr, values: Values) -> SlotValue:
    """The value of an integer expression over sizes, scalars and device facts.

    UnsupportedConstructError for what is not a host expression, ArgumentError for a size without a
    value.
    """
    builder = HostProgramBuilder(
        {e.id: f"var:{e.id}" for e in walk_expr(expr) if isinstance(e, Var)}
    )
    reference = builder.add(expr)
    program = builder.finish()
    known = {**_HOST_FACTS, **{f"var:{n}": value for n, value in values.items()}}
    missing = [name for name in program.inputs if name not in known]
    if missing:
        raise ArgumentError(f"a size or scalar of {print_expr(expr)} has no value")
    return program.evaluate(known)[builder.slot(reference)]
