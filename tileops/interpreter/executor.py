"""Runs of a generated ``kernel.py`` on the CPU: arguments, launches, results, prints."""

from __future__ import annotations

import builtins
import math
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from tileops.codegen.kernel_code import KernelCode, KernelParam, LaunchCode
from tileops.dtypes import DType
from tileops.errors import ArgumentError, InternalError
from tileops.interpreter import process
from tileops.ir.expr import Buffer, Expr, Region, Var
from tileops.ir.printer import print_expr
from tileops.ir.program import STATUS_ID, Program, TensorParam
from tileops.ir.stmt import AddressView, Inspect
from tileops.ir.walk import walk, walk_expr
from tileops.location import Location
from tileops.op.fake import bound
from tileops.op.host_program import HostProgramBuilder, SlotValue
from tileops.op.spec import spec_of
from tileops.op.variant import pack_of, variant_of
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
    workspaces = [_workspace(b, values) for b in buffers]
    known: dict[str, Sequence[torch.Tensor | float]] = {
        "tensor": tensors,
        "workspace": workspaces,
        "size": [values[size.var.id] for size in program.sizes],
        "scalar": [values[scalar.var.id] for scalar in program.scalars()],
    }
    by_buffer = {p.buffer.id: t for p, t in zip(program.tensors(), tensors, strict=True)}
    show = partial(_show, program, code, by_buffer)
    for launch in code.launches:
        grid = int(evaluate(launch.grid, values))
        if grid > 0:
            operands = [_operand(p, known, values) for p in launch.params]
            tables = _tables(program, launch)
            job = process.Job(code.source, launch, grid, operands, tables, reachable, show)
            try:
                process.running().run(job, repaired)
            except process.FailedAssertionError as failure:
                _raise_report(program, code.statements.get(failure.line, -1), 0)
    _raise_status(program, buffers, workspaces)
    outputs = (program.params[n] for n in program.returns)
    return tuple(by_buffer[p.buffer.id] for p in outputs if isinstance(p, TensorParam))


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
    spec = spec_of(program, namespace="tileops", name=program.name)
    names = [a.name for a in spec.inputs()]
    if len(args) != len(names):
        raise ArgumentError(f"{program.name}: expected {len(names)} arguments, got {len(args)}")
    given: dict[str, Any] = dict(zip(names, args, strict=True))
    for tensor in program.tensors():
        if not tensor.allocated and not isinstance(given[tensor.name], torch.Tensor):
            raise ArgumentError(f"{program.name}: argument '{tensor.name}': expected a tensor")
    for scalar in program.scalars():
        if isinstance(value := given[scalar.name], torch.Tensor):
            given[scalar.name] = value.item()
    sizes, made = bound(spec, variant_of(program, spec, ()), given)
    values = {s.var.id: value for s, value in zip(program.sizes, sizes, strict=True)}
    values |= {s.var.id: given[s.name] for s in program.scalars()}
    outputs = iter(made)
    tensors = [
        _poisoned(next(outputs), p.buffer.dtype) if p.allocated else given[p.name]
        for p in program.tensors()
    ]
    return values, tensors


def _workspace(buffer: Buffer, values: Values) -> torch.Tensor:
    if buffer.id == STATUS_ID:
        return torch.zeros(1, dtype=torch.int64)
    *outer, last = (int(evaluate(e, values)) for e in buffer.shape)
    shape = (*outer, last // pack_of(buffer.dtype))
    return _poisoned(torch.empty(shape, dtype=buffer.dtype.as_torch()), buffer.dtype)


def _poisoned(made: torch.Tensor, dtype: DType) -> torch.Tensor:
    """``made``, a tensor for elements of ``dtype``, filled with what no program means to write."""
    if dtype.bits < 8 or dtype.is_fp8:
        made.view(torch.uint8).fill_(0x77 if dtype.bits < 8 else 0x7F)
        return made
    if dtype.is_float:
        return made.fill_(math.nan)
    return made.fill_(1 if dtype.is_bool else torch.iinfo(made.dtype).max)


def _operand(
    param: KernelParam, known: Mapping[str, Sequence[torch.Tensor | float]], values: Values
) -> torch.Tensor | float:
    """What a launch gets for ``param``; ``known`` are the operands of each kind but host's."""
    if param.kind in known:
        return known[param.kind][param.index]
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


# -- prints and breakpoints ------------------------------------------------------------------------
def _show(
    program: Program,
    code: KernelCode,
    operands: Mapping[int, torch.Tensor],
    line: int,
    values: Sequence[torch.Tensor],
) -> None:
    """Print the values, or stop where the program says ``breakpoint()``.

    ``line`` is the line of ``kernel.py`` that shows them; ``operands`` are tensors by the ids of
    their buffers.
    """
    found = {s.origin: s for s in walk(program.launches) if isinstance(s, Inspect)}
    stmt = found.get(code.statements.get(line))
    if stmt is None:
        raise InternalError(f"program {program.name}: line {line} shows nothing")
    shown = [_shown(arg, v, operands) for arg, v in zip(stmt.args, values, strict=True)]
    if stmt.names is None:
        sys.stdout.write(stmt.message.format(*shown))
        sys.stdout.flush()
    else:
        where = stmt.loc or Location("kernel.py", line)
        _stop(where, program.name, dict(zip(stmt.names, shown, strict=True)))


def _shown(arg: Expr | Region, value: torch.Tensor, operands: Mapping[int, torch.Tensor]) -> object:
    """A tile as a tensor of its own extents, a scalar as Python's number."""
    if not isinstance(arg, Region):
        return value.reshape(-1)[0].item()
    operand = operands.get(arg.buffer.id)
    if operand is not None:
        if arg.dtype.bits < 8 or value.element_size() != operand.element_size():
            return value  # decoded elements, in the tensor's own shape
        return torch.as_strided(value.view(operand.dtype), operand.shape, operand.stride())
    if arg.dtype.bits >= 8:  # a pass may have widened or narrowed the tile
        value = value.to(arg.dtype.as_torch())
    extents = arg.static_extents()
    if extents is None:
        return value
    # What is the same along a dimension has extent 1 there; padding follows the elements.
    inner = [extents[d] for d in arg.squeezed()]
    value = value.reshape(value.shape if value.dim() == len(inner) else [1] * len(inner))
    for d, extent in enumerate(inner):
        value = value.narrow(d, 0, min(extent, value.shape[d]))
    return value.expand(inner).reshape(extents)


def _stop(where: Location, name: str, values: dict[str, object]) -> None:
    """Call ``breakpoint()`` as if at ``where``, with ``values`` as the variables."""
    text = "\n" * (where.line - 1) + "breakpoint()"
    code = compile(text, where.file, "exec").replace(co_name=name)
    exec(code, {"__builtins__": builtins, "__name__": name, **values})


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
