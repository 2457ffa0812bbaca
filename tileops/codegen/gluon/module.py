"""The text of a launch in roles: a function a role, and the entry that starts them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tileops.codegen.gluon.layouts import Layouts
from tileops.codegen.gluon.maps import Maps
from tileops.codegen.gluon.state import RoleState, load_in_role
from tileops.codegen.kernel_code import KernelParam, LaunchCode, Specialization
from tileops.codegen.triton.expressions import emit_expr
from tileops.codegen.triton.grid import emit_block_numbers, emit_block_vars, flat_grid
from tileops.codegen.triton.module import Lines, Written
from tileops.codegen.triton.statements import emit_body
from tileops.codegen.triton.storage import NeedsMemory
from tileops.codegen.triton.text import Val, infix, triton_type
from tileops.codegen.triton.writer import Names
from tileops.dtypes import INT32
from tileops.ir import fold
from tileops.ir.expr import Expr, HostAttr
from tileops.ir.program import Program
from tileops.ir.schedule import Added, Ring, Schedule, swizzle_of
from tileops.ir.stmt import Body, Gemm, Launch
from tileops.ir.walk import walk
from tileops.passes.context import Context
from tileops.passes.hopper import Unfit
from tileops.target import Target

# What Triton's language and Gluon's both have, under Gluon's own name for tiles with a layout.
_GLUON = (
    "abs arange associative_scan assume atomic_add atomic_and atomic_cas atomic_max "
    "atomic_min atomic_or atomic_xchg atomic_xor cast ceil cos device_assert device_print "
    "div_rn erf exp exp2 expand_dims fdiv floor fma full gather join load log log2 max "
    "maximum min minimum num_programs permute program_id reduce reshape rsqrt sin split sqrt "
    "sqrt_rn static_range store sum umulhi where xor_sum bfloat16 float16 float32 float64 "
    "float8e4nv float8e5 int1 int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
)
_NAME = re.compile(rf"\btl\.({'|'.join(_GLUON.split())})\b")
_HELPERS = """

@gluon.jit
def _laid(x, layout: tl.constexpr):
    if isinstance(x.type.layout, gl.AutoLayout):
        return gl.set_auto_layout(x, layout)
    else:
        return gl.convert_layout(x, layout)"""
# Of a module with a quotient whose divisor many lanes share.
_QUOTIENT = """

@gluon.jit
def _divided(a, b):
    # a / b by 1 / b: a correctly rounded reciprocal and one step with an exact remainder give the
    # correctly rounded quotient (Markstein, IBM J. Res. Dev. 34, 1990). The scale keeps 1 / b
    # normal. Without a finite remainder, or with none, the first quotient stands.
    size = gl.abs(b)
    scale = gl.where(size > 1.8446744073709552e19, 5.421010862427522e-20, 1.0)
    scale = gl.where(size < 5.421010862427522e-20, 1.8446744073709552e19, scale)
    a, b = a * scale, b * scale
    inverse = gl.div_rn(1.0, b)
    quotient = a * inverse
    error = gl.fma(quotient, -b, a)
    nearer = gl.fma(error, inverse, quotient)
    size = gl.abs(error)
    return gl.where((size > 0.0) & (size < float("inf")), nearer, quotient)"""
_HEAD = """from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

tma_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
tma_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global"""

# Triton 3.6 and 3.7 have the operation in their dialect, and no function for it.
_ADD = """from triton._C.libtriton import ir as triton_ir
from triton.experimental.gluon.language._core import builtin


@builtin
def _added(descriptor, coordinates, tile, _semantic=None):
    coordinates = _semantic._convert_to_ir_values(coordinates, require_i64=False)
    add = triton_ir.DESCRIPTOR_REDUCE_KIND.ADD
    _semantic.builder.create_async_tma_reduce(add, descriptor.handle, coordinates, tile.handle)


tma_add = getattr(tma, "async_atomic_add", None) or _added"""


def emit_roles(
    program: Program,
    launch: Launch,
    schedule: Schedule,
    target: Target,
    spec: Specialization,
    entry: str,
) -> Written:
    """A launch under ``schedule``; Unfit where a statement has no such form."""
    names = Names()
    layouts = _layouts(entry, schedule)
    maps = Maps(schedule, names)
    roles = [
        _role(program, launch, body, schedule, layouts, maps, target, spec)
        for body in (schedule.math, schedule.load)
    ]
    params = _params(program, maps, roles)
    shared = [maps.slots(b) for r in schedule.rings for b in r.buffers]
    shared += [maps.tile(b) for b in schedule.shared]
    shared += [maps.staging(d) for d in schedule.staging.values()]
    shared += [f"{r}_{side}" for r in schedule.rings for side in ("full", "empty")]
    arguments = ", ".join([*(p.name for p in params), *shared])
    lines: Lines = []
    grouped = schedule.groups > 1
    for name, role in zip(("math", "load"), roles, strict=True):
        own = ", group: tl.constexpr" if grouped and role is roles[0] else ""
        signature = f"def {entry}_{name}({arguments}{own}):"
        lines += [("", None), ("", None), ("@gluon.jit", None), (signature, launch.origin)]
        lines += [(_in_gluon(text), number) for text, number in role.writer.finish()]
    lines += _entry(entry, params, arguments, schedule, maps, layouts, launch)
    code = LaunchCode(
        entry, tuple(params), _grid(launch, schedule), schedule.warps, 1, language="gluon",
        notes=("\n".join(schedule.text()),),
    )  # fmt: skip
    head: Lines = [("", None), *((_in_gluon(text), None) for text in layouts.lines())]
    adds = any(isinstance(s, Added) for s in walk(schedule.math))
    imports = (_HEAD, _ADD, _HELPERS) if adds else (_HEAD, _HELPERS)
    if any(role.shares_divisors for role in roles):
        imports = (*imports, _QUOTIENT)
    helpers = frozenset[str]().union(*(role.helpers for role in roles))
    return Written([*head, *lines], code, helpers=helpers, imports=imports)


def _layouts(entry: str, schedule: Schedule) -> Layouts:
    gemm = next(s for s in walk(schedule.math) if isinstance(s, Gemm))
    return Layouts(entry, schedule, gemm)


def _role(
    program: Program,
    launch: Launch,
    body: Body,
    schedule: Schedule,
    layouts: Layouts,
    maps: Maps,
    target: Target,
    spec: Specialization,
) -> RoleState:
    own = replace(launch, body=body)
    program = replace(program, launches=(own,))
    known = Context(target)
    state = RoleState(program, own, known, spec, load_in_role, emit_body, frozenset())
    state.enter(schedule, layouts, maps)
    try:
        with _blocks(state, schedule):
            emit_body(state, body, frozenset())
        if body is schedule.math and schedule.staged:
            state.writer.line("tma.store_wait(0)")
    except NeedsMemory as request:
        raise Unfit(f"`{request}` must be in memory", launch.loc) from None
    return state


@contextmanager
def _blocks(state: RoleState, schedule: Schedule) -> Iterator[None]:
    """The text of one block, or the loop over the blocks of a program that stays."""
    if not schedule.persistent:
        emit_block_vars(state)
        _count_down(state, schedule)
        yield
        return
    pid = Val(state.names.fresh("pid"), INT32)
    total = emit_expr(state, flat_grid(state.launch)).text
    span = f"gl.program_id(0), {total}, gl.num_programs(0)"
    with state.writer.block(f"for {pid.text} in range({span}):"):
        emit_block_numbers(state, pid)
        _count_down(state, schedule)
        yield


def _count_down(state: RoleState, schedule: Schedule) -> None:
    for var, extent in zip(state.launch.block_vars, state.launch.grid, strict=True):
        if var in schedule.backwards:
            last = infix("-", infix("-", emit_expr(state, extent), 1), state.vars[var.id])
            state.vars[var.id] = state.temporary(var.name, last)


def _grid(launch: Launch, schedule: Schedule) -> Expr:
    blocks = flat_grid(launch)
    if not schedule.persistent:
        return blocks
    return fold.binary("min", blocks, HostAttr(fold.INT32, "sm_count"))


def _params(program: Program, maps: Maps, roles: list[RoleState]) -> list[KernelParam]:
    """Descriptors, then what either role uses."""
    found: dict[str, KernelParam] = {}
    for role in roles:
        for param in role.params.finish(()):
            if found.setdefault(param.name, param) != param:
                raise Unfit("the roles take different parameters")
    return [*maps.params(program), *found.values()]


def _entry(
    entry: str,
    params: list[KernelParam],
    arguments: str,
    schedule: Schedule,
    maps: Maps,
    layouts: Layouts,
    launch: Launch,
) -> Lines:
    """The function that makes barriers and slots and starts the roles."""
    out = ["", "", "@gluon.jit", f"def {entry}({', '.join(p.name for p in params)}):"]
    for ring in schedule.rings:
        for buffer, (slot, swizzle) in zip(ring.buffers, ring.slots, strict=True):
            laid = layouts.shared(len(slot), swizzle, buffer.dtype.bits)
            shape = [ring.depth, *slot]
            kind = triton_type(buffer.dtype)
            out.append(
                f"    {maps.slots(buffer)} = gl.allocate_shared_memory({kind}, {shape}, {laid})"
            )
    for tile in schedule.shared:
        rows, columns = tile.static_shape() or (0, 0)
        swizzle = swizzle_of(columns * tile.dtype.bytes)
        laid = layouts.shared(2, swizzle, tile.dtype.bits)
        kind = triton_type(tile.dtype)
        out.append(
            f"    {maps.tile(tile)} = gl.allocate_shared_memory({kind}, {[rows, columns]}, {laid})"
        )
    for box in schedule.staging.values():
        laid = layouts.shared(len(box.box), box.swizzle, box.tensor.dtype.bits)
        kind = triton_type(box.tensor.dtype)
        shape = [schedule.groups, *box.box] if schedule.groups > 1 else list(box.box)
        out.append(f"    {maps.staging(box)} = gl.allocate_shared_memory({kind}, {shape}, {laid})")
    for ring in schedule.rings:
        out += _barriers(ring, schedule.groups)
    more = range(1, schedule.groups)
    own = (
        f"{arguments}, {n}" if schedule.groups > 1 else arguments for n in range(schedule.groups)
    )
    registers = [*(schedule.math_registers for _ in more), schedule.load_registers]
    out += [
        "    hopper.fence_async_shared()",
        "    gl.warp_specialize([",
        *(f"        ({entry}_math, ({given}))," for given in own),
        f"        ({entry}_load, ({arguments})),",
        f"    ], {[*(schedule.warps for _ in more), 1]}, {registers})",
    ]
    return [(_in_gluon(text), launch.origin if text.startswith("def ") else None) for text in out]


def _barriers(ring: Ring, groups: int) -> list[str]:
    layout = f"gl.allocate_shared_memory(gl.int64, [{ring.depth}, 1], mbarrier.MBarrierLayout())"
    return [
        f"    {ring}_full = {layout}",
        f"    {ring}_empty = {layout}",
        f"    for i in gl.static_range({ring.depth}):",
        f"        mbarrier.init({ring}_full.index(i), count={groups if ring.is_exchange else 1})",
        f"        mbarrier.init({ring}_empty.index(i), count={groups})",
    ]


def _in_gluon(text: str) -> str:
    """The line with Gluon's functions in the place of Triton's."""
    return _NAME.sub(r"gl.\1", text)
