"""Owns the canonical text of a program: same program, same text, on every machine."""

from __future__ import annotations

from tileops.errors import InternalError
from tileops.ir.expr import (
    Binary,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    HostAttr,
    Load,
    Region,
    Select,
    Unary,
    Var,
)
from tileops.ir.program import Program, ScalarParam, TensorParam
from tileops.ir.stmt import (
    AddressView,
    Alloc,
    Assert,
    Assume,
    Atomic,
    Bind,
    Body,
    Break,
    Check,
    Continue,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Im2col,
    Intrinsic,
    Launch,
    Parallel,
    Placement,
    Print,
    Reduce,
    Scan,
    Stmt,
    Store,
    Transpose,
    View,
    While,
)

_SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "floormod": "%",
    "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "land": "and", "lor": "or",
}  # fmt: skip


def print_expr(expr: Expr) -> str:
    """The canonical text of one expression."""
    match expr:
        case Const(value=value, dtype=dtype):
            if isinstance(value, bool):
                return "true" if value else "false"
            text = repr(value)
            return text if dtype in ("int32",) else f"{text}{dtype.short}"
        case Var(id=n, name=name):
            return f"{name}.{n}"
        case HostAttr(name=name):
            return f"host.{name}"
        case Binary(op=op, a=a, b=b):
            if op in _SYMBOLS:
                return f"({print_expr(a)} {_SYMBOLS[op]} {print_expr(b)})"
            return f"{op}({print_expr(a)}, {print_expr(b)})"
        case Unary(op=op, a=a):
            return f"{op}({print_expr(a)})"
        case Call(name=name, args=args, dtype=dtype):
            return f"{name}:{dtype.short}({', '.join(map(print_expr, args))})"
        case Cast(dtype=dtype, a=a):
            return f"{dtype.short}({print_expr(a)})"
        case Select(cond=c, a=a, b=b):
            return f"select({print_expr(c)}, {print_expr(a)}, {print_expr(b)})"
        case Load(buffer=buffer, indices=indices):
            return f"{_ref(buffer)}[{', '.join(map(print_expr, indices))}]"
        case _:
            raise InternalError(f"printer: unknown expression {type(expr).__name__}")


def _ref(buffer: Buffer) -> str:
    return f"%{buffer.name}.{buffer.id}"


def _decl(buffer: Buffer) -> str:
    shape = ", ".join(map(print_expr, buffer.shape))
    strides = ""
    if buffer.strides is not None:
        strides = f" strides [{', '.join(map(print_expr, buffer.strides))}]"
    return f"{_ref(buffer)}: {buffer.dtype.short}[{shape}] {buffer.scope}{strides}"


def print_region(region: Region) -> str:
    """``%A.0[start : +extent, ...]``."""
    parts = [
        f"{print_expr(s)} : +{print_expr(e)}"
        for s, e in zip(region.starts, region.extents, strict=True)
    ]
    return f"{_ref(region.buffer)}[{', '.join(parts)}]"


def _operand(value: Expr | Region | None) -> str:
    if value is None:
        return "none"
    return print_region(value) if isinstance(value, Region) else print_expr(value)


def _line(stmt: Stmt) -> str:
    """The one-line text of a statement without nested statements."""
    match stmt:
        case Alloc(buffer=b, init=init):
            return f"alloc {_decl(b)}" + ("" if init is None else f" = {print_expr(init)}")
        case AddressView(buffer=b, address=a):
            return f"view {_decl(b)} at {print_expr(a)}"
        case View(buffer=b, source=s):
            return f"view {_decl(b)} of {_ref(s)}"
        case Bind(var=v, value=value):
            return f"let {print_expr(v)}: {v.dtype.short} = {print_expr(value)}"
        case Store(buffer=b, indices=ix, value=v):
            return f"{_ref(b)}[{', '.join(map(print_expr, ix))}] = {print_expr(v)}"
        case Copy(src=s, dst=d):
            return f"copy {print_region(s)} -> {print_region(d)}"
        case Transpose(src=s, dst=d):
            return f"transpose {print_region(s)} -> {print_region(d)}"
        case Fill(dst=d, value=v):
            return f"fill {print_region(d)} = {print_expr(v)}"
        case Gemm():
            flags = "".join((" ta" if stmt.transpose_a else "", " tb" if stmt.transpose_b else ""))
            ops = ", ".join(print_region(r) for r in (stmt.a, stmt.b, stmt.c))
            return f"gemm {ops}{flags} clear {print_expr(stmt.clear)} {stmt.policy}"
        case Reduce():
            flags = (" clear" if stmt.clear else "") + (" nan" if stmt.nan_propagate else "")
            operands = f"{print_region(stmt.src)} -> {print_region(stmt.dst)}"
            return f"reduce.{stmt.kind} {operands} dim {stmt.dim}{flags}"
        case Scan():
            flags = " reverse" if stmt.reverse else ""
            operands = f"{print_region(stmt.src)} -> {print_region(stmt.dst)}"
            return f"scan.{stmt.kind} {operands} dim {stmt.dim}{flags}"
        case _:
            return _rare_line(stmt)


def _rare_line(stmt: Stmt) -> str:
    match stmt:
        case Im2col():
            steps = f"{print_expr(stmt.row_step)}, {print_expr(stmt.col_step)}"
            ints = f"k{stmt.kernel} s{stmt.stride} d{stmt.dilation} p{stmt.pad}"
            return f"im2col {_ref(stmt.image)} -> {print_region(stmt.dst)} at {steps} {ints}"
        case Atomic():
            result = "" if stmt.result is None else f"{print_expr(stmt.result)} = "
            operands = f"{print_region(stmt.dst)}, {_operand(stmt.value)}"
            return f"{result}atomic.{stmt.op} {operands} {stmt.order}"
        case Print(message=m, args=args):
            return f"print {m!r} {', '.join(map(_operand, args))}".rstrip()
        case Assert(cond=c, message=m, host=host):
            return f"{'host_assert' if host else 'assert'} {print_expr(c)} {m!r}"
        case Check(kind=kind, value=v, bound=b, when=c, what=what):
            return f"check.{kind} {print_expr(v)}, {print_expr(b)} when {print_expr(c)} {what!r}"
        case Assume(cond=c):
            return f"assume {print_expr(c)}"
        case Intrinsic(name=n, args=args):
            return f"intrinsic {n}({', '.join(map(print_expr, args))})"
        case Break():
            return "break"
        case Continue():
            return "continue"
        case _:
            raise InternalError(f"printer: unknown statement {type(stmt).__name__}")


def _head(stmt: Stmt) -> str | None:
    match stmt:
        case For():
            stages = f" stages {stmt.stages}" if stmt.stages else ""
            hints = "".join(f" {k}={v}" for k, v in stmt.hints)
            span = f"{print_expr(stmt.start)} .. {print_expr(stmt.stop)}"
            var = f"{print_expr(stmt.var)}: {stmt.var.dtype.short}"
            return f"{stmt.kind} {var} in {span}{stages}{hints}:"
        case Parallel(vars=vs, extents=es):
            names = ", ".join(map(print_expr, vs))
            return f"parallel {names} in [{', '.join(map(print_expr, es))}]:"
        case While(cond=c):
            return f"while {print_expr(c)}:"
        case If(cond=c):
            return f"if {print_expr(c)}:"
        case Launch():
            names = ", ".join(map(print_expr, stmt.block_vars))
            grid = ", ".join(map(print_expr, stmt.grid))
            attrs = "".join(f" {k}={v}" for k, v in stmt.attrs)
            safe = "".join(f" safe {_ref(b)}={print_expr(v)}" for b, v in stmt.safe_values)
            placed = "".join(map(_placement, stmt.placements))
            return f"launch {names} in [{grid}] threads {stmt.threads}{attrs}{safe}{placed}:"
        case _:
            return None


def _placement(placement: Placement) -> str:
    names = ", ".join(map(print_expr, placement.vars))
    places = ", ".join(map(print_expr, placement.indices))
    return f" place {_ref(placement.buffer)}[{names}] at [{places}]"


def print_body(body: Body, indent: int = 0) -> list[str]:
    """The text of a statement list, one string a line."""
    pad = "  " * indent
    lines: list[str] = []
    for stmt in body:
        head = _head(stmt)
        if head is None:
            lines.append(pad + _line(stmt))
            continue
        lines.append(pad + head)
        if isinstance(stmt, If):
            lines += print_body(stmt.then, indent + 1)
            if stmt.orelse:
                lines.append(pad + "else:")
                lines += print_body(stmt.orelse, indent + 1)
        elif isinstance(stmt, (For, Parallel, While, Launch)):
            lines += print_body(stmt.body, indent + 1)
    return lines


def print_program(program: Program) -> str:
    """The canonical text of a program: what ``program.txt`` holds and what the cache key hashes."""
    lines = [f"program {program.name}"]
    for size in program.sizes:
        lines.append(f"size {print_expr(size.var)}: {size.var.dtype.short} {size.kind}")
    for param in program.params:
        match param:
            case TensorParam(buffer=b, allocated=allocated, leading=leading):
                marks = (" leading" if leading else "") + (" allocated" if allocated else "")
                lines.append(f"tensor {_decl(b)}{marks}")
            case ScalarParam(var=v):
                lines.append(f"scalar {print_expr(v)}: {v.dtype.short}")
    for variable in program.dtype_vars:
        allowed = ", ".join(dtype.short for dtype in variable.dtypes)
        lines.append(f"dtype {variable.name} of {', '.join(variable.params)} in {allowed}")
    lines += [f"workspace {_decl(b)}" for b in program.workspaces]
    lines += [f"option {k} = {v}" for k, v in program.options]
    lines += print_body(program.host_asserts)
    lines += print_body(program.launches)
    returned = ", ".join(map(str, program.returns))
    lines.append(f"return {'tuple ' if program.returns_tuple else ''}[{returned}]")
    return "\n".join(lines) + "\n"
