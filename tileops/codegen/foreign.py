"""Launches of foreign kernels among those of a generated text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tileops.codegen.kernel_code import (
    ForeignKernel,
    KernelCode,
    KernelParam,
    LaunchCode,
    Specialization,
    TensorMapSpec,
    scalar_type,
)
from tileops.errors import InternalError
from tileops.ir.expr import Buffer, Const, Expr, Var
from tileops.ir.extern import DIVISIBLE, ONE, WIDE, Extern, ExternArg, TensorMap
from tileops.ir.program import Program

# Triton's names of types where those of parameters differ.
_TYPES = {"u1": "i1", "fp16": "f16", "fp32": "f32", "fp64": "f64"}


def with_foreign(
    write: Callable[[Program], KernelCode], program: Program, spec: Specialization
) -> KernelCode:
    """The text that ``write`` makes of the tile launches, and all launches in program order.

    The passes and generators see a program of tile launches only. What a foreign kernel reads and
    writes is in tensors that the program has anyway.
    """
    if not program.externs:
        return write(program)
    if program.launches:
        code = write(replace(program, externs=()))
    else:
        code = KernelCode("triton", f'"""Foreign kernels of the program {program.name}."""\n', ())
    launches: list[LaunchCode] = []
    for number in range(len(program.launches) + 1):
        here = (e for e in program.externs if e.after == number)
        launches += [_launch(program, extern, spec) for extern in here]
        launches += code.launches[number : number + 1]
    return replace(code, launches=tuple(launches))


def _launch(program: Program, extern: Extern, spec: Specialization) -> LaunchCode:
    if extern.language in ("cuda", "ptx", "cubin"):
        return _device_launch(program, extern, spec)
    params, constants = [], []
    for arg in extern.args:
        match arg.kind:
            case "constant":
                constants.append((arg.name, str(arg.value)))
            case "choice":
                is_bool = isinstance(arg.value, Expr) and arg.value.dtype.is_bool
                constants.append((arg.name, str(bool(arg.fact) if is_bool else arg.fact)))
            case "int" if arg.fact == ONE:
                constants.append((arg.name, "1"))
            case _:
                params.append(_param(program, arg, spec, extern.language))
    options = dict(extern.options)
    return LaunchCode(
        entry=extern.name,
        params=tuple(params),
        grid=extern.grid[0],
        num_warps=int(options.pop("num_warps", 4)),
        num_stages=int(options.pop("num_stages", 3)),
        language=extern.language,
        cluster=int(options.pop("num_ctas", 1)),
        dependent=options.get("launch_pdl") == "True",
        cooperative=options.get("launch_cooperative_grid") == "True",
        foreign=ForeignKernel(
            extern.digest,
            tuple(constants),
            frozenset(a.name for a in extern.args if a.is_written),
            tuple(sorted(options.items())),
            program.name,
            extern.loc,
        ),
        more_grid=extern.grid[1:],
    )


def _device_launch(program: Program, extern: Extern, spec: Specialization) -> LaunchCode:
    """A kernel whose compiled code tells how wide its arguments are."""
    options = dict(extern.options)
    return LaunchCode(
        entry=extern.name,
        params=tuple(
            KernelParam(arg.name, "null", 0, "ptr")
            if arg.kind == "constant"
            else _param(program, arg, spec, extern.language)
            for arg in extern.args
        ),
        grid=extern.grid[0],
        language=extern.language,
        cluster=int(options["cluster"]),
        dependent=options["dependent"] == "True",
        cooperative=options["cooperative"] == "True",
        foreign=ForeignKernel(
            extern.digest,
            written=frozenset(a.name for a in extern.args if a.is_written),
            options=extern.options,
            program=program.name,
            place=extern.loc,
        ),
        more_grid=extern.grid[1:],
    )


def _descriptor(pointer: KernelParam, seen: TensorMap, language: str) -> KernelParam:
    described = TensorMapSpec(
        seen.box, seen.shape, seen.strides, seen.swizzle,
        foreign=language if language in ("triton", "gluon") else "cuda",
        layout=seen.layout, nans=seen.nans, tf32=seen.tf32,
    )  # fmt: skip
    return replace(pointer, kind="tensormap", type="tensordesc", aligned=False, tensormap=described)


def _param(program: Program, arg: ExternArg, spec: Specialization, language: str) -> KernelParam:
    if isinstance(arg.value, Buffer):
        pointer = _pointer(program, arg.name, arg.value, spec)
        return pointer if arg.map is None else _descriptor(pointer, arg.map, language)
    if not isinstance(arg.value, Expr):
        raise InternalError(f"codegen: {arg.text()} is no argument of a launch")
    value, declared = arg.value, _TYPES.get(arg.type, arg.type)
    if arg.kind == "float" and isinstance(value, Const):
        return KernelParam(arg.name, "number", 0, declared or "f32", number=float(value.value))
    if isinstance(value, Var) and arg.kind in ("float", "bool"):
        numbers = [s.var.id for s in program.scalars()]
        if value.id in numbers:
            kind = declared or ("f32" if arg.kind == "float" else scalar_type(value.dtype))
            return KernelParam(arg.name, "scalar", numbers.index(value.id), kind)
    if arg.kind == "bool":
        return KernelParam(arg.name, "host", 0, declared or "i1", value=value)
    if arg.kind != "int":
        raise InternalError(f"codegen: {arg.text()} is no scalar of the program")
    fact = arg.fact or 0
    kind = declared or ("i64" if fact & WIDE else "i32")
    is_aligned = bool(fact & DIVISIBLE)
    return KernelParam(arg.name, "host", 0, kind, aligned=is_aligned, value=value)


def _pointer(program: Program, name: str, buffer: Buffer, spec: Specialization) -> KernelParam:
    dtype = str(buffer.dtype)
    for index, param in enumerate(program.tensors()):
        if param.buffer.id == buffer.id:
            # What the call allocates is aligned always.
            is_aligned = spec.fast or param.allocated
            return KernelParam(name, "tensor", index, "ptr", dtype, is_aligned)
    for index, workspace in enumerate(program.workspaces):
        if workspace.id == buffer.id:
            return KernelParam(name, "workspace", index, "ptr", dtype, aligned=True)
    raise InternalError(f"codegen: {buffer.name} is no tensor of the program")
