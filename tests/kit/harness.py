"""Programs run on CPU tensors through ctypes: an independent check of the C++ runtime."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import tempfile
import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from tileops.codegen import cpu
from tileops.codegen.kernel_code import KernelCode, KernelParam, Specialization
from tileops.compiler import gxx
from tileops.ir.expr import Binary, Cast, Const, Expr, HostAttr, Unary, Var
from tileops.ir.printer import print_program
from tileops.ir.program import Program
from tileops.target import Target, parse_target


class Value(ctypes.Union):
    _fields_ = [("p", ctypes.c_void_p), ("i", ctypes.c_int64), ("f", ctypes.c_double)]


class Status(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_int32),
        ("statement", ctypes.c_int32),
        ("value", ctypes.c_int64),
        ("bound", ctypes.c_int64),
    ]


class KernelFailed(Exception):
    """A launch left a status; ``status`` holds it."""

    def __init__(self, status: Status) -> None:
        super().__init__(f"code {status.code} at statement {status.statement}")
        self.status = status


@dataclass
class Compiled:
    """A program compiled for the CPU, with its loaded entries."""

    program: Program
    code: KernelCode
    entries: list
    source: str

    def __call__(self, *inputs, threads: int = 1):
        return run(self, *inputs, threads=threads)


_OPERATORS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "ceildiv": lambda a, b: -(-a // b),
    "floormod": lambda a, b: a % b,
    "min": min,
    "max": max,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def evaluate(expr: Expr, env: dict[int, int]) -> int:
    """A host expression over sizes and scalars."""
    match expr:
        case Const(value=v):
            return int(v)
        case Var(id=n):
            return env[n]
        case HostAttr():
            return 4
        case Cast(a=a):
            return evaluate(a, env)
        case Unary(op="neg", a=a):
            return -evaluate(a, env)
        case Binary(op=op, a=a, b=b):
            return _OPERATORS[op](evaluate(a, env), evaluate(b, env))
    if type(expr).__name__ == "Select":
        return evaluate(expr.a if evaluate(expr.cond, env) else expr.b, env)
    raise AssertionError(expr)


@lru_cache(maxsize=256)
def _compiled(text: str, level: str, options: tuple) -> tuple:
    program, target = _PENDING[text], parse_target(f"cpu:{level}")
    code = cpu.generate(program, target, Specialization())
    artifact = gxx.compile_cpp(code, target, dict(options))
    with tempfile.TemporaryDirectory(prefix="tileops-test-") as folder:
        path = Path(folder) / (hashlib.sha256(text.encode()).hexdigest()[:12] + ".so")
        path.write_bytes(artifact.files[gxx.LIBRARY])
        return code, ctypes.CDLL(str(path))  # once it is loaded it needs no file


_PENDING: dict[str, Program] = {}


def build(program: Program, target: Target | None = None) -> Compiled:
    """Generate, compile and load a program."""
    target = target or parse_target("cpu")
    text = print_program(program)
    _PENDING[text] = program
    code, library = _compiled(text, target.arch, program.options)
    entries = []
    for launch in code.launches:
        entry = getattr(library, launch.entry)
        entry.restype = ctypes.c_int32
        entry.argtypes = [
            ctypes.POINTER(Value),
            ctypes.c_int64,
            ctypes.c_int64,
            ctypes.c_void_p,
            ctypes.POINTER(Status),
        ]
        entries.append(entry)
    return Compiled(program, code, entries, code.source)


def bind_sizes(program: Program, tensors: dict[str, torch.Tensor], env: dict[int, int]) -> None:
    """Give size variables that stand alone in a shape or stride their values."""
    for param in program.tensors():
        given = tensors.get(param.name)
        if given is None:
            continue
        for expr, actual in zip(param.buffer.shape, given.shape, strict=True):
            if isinstance(expr, Var):
                env.setdefault(expr.id, int(actual))
        for expr, actual in zip(param.buffer.strides or (), given.stride(), strict=False):
            if isinstance(expr, Var):
                env.setdefault(expr.id, int(actual))


def run(kernel: Compiled, *inputs, threads: int = 1):
    """Run all launches; ``inputs`` in the order of the program's parameters without the allocated ones."""
    program = kernel.program
    env: dict[int, int] = {}
    scalars: dict[str, object] = {}
    tensors: dict[str, torch.Tensor] = {}
    given = iter(inputs)
    for param in program.params:
        if getattr(param, "allocated", False):
            continue
        item = next(given)
        if isinstance(item, torch.Tensor):
            tensors[param.name] = item
        else:
            scalars[param.name] = item
            env[param.var.id] = int(item)
    bind_sizes(program, tensors, env)
    for param in program.tensors():
        if param.allocated:
            tensors[param.name] = _empty(param.buffer, env)
    workspaces = [_empty(b, env) for b in program.workspaces]
    for launch, entry in zip(kernel.code.launches, kernel.entries, strict=True):
        values = (Value * max(1, len(launch.params)))()
        for slot, param in zip(values, launch.params, strict=False):
            _fill(slot, param, program, tensors, workspaces, scalars, env)
        _run_blocks(entry, values, evaluate(launch.grid, env), launch.scratch_bytes, threads)
    outputs = [tensors[program.params[i].name] for i in program.returns]
    return tuple(outputs) if program.returns_tuple or len(outputs) != 1 else outputs[0]


def _empty(buffer, env) -> torch.Tensor:
    shape = [evaluate(e, env) for e in buffer.shape]
    out = torch.empty(shape, dtype=buffer.dtype.as_torch())
    return out.view(torch.uint8).fill_(0xA5).view(out.dtype) if out.numel() else out


def _fill(slot: Value, param: KernelParam, program, tensors, workspaces, scalars, env) -> None:
    if param.kind == "tensor":
        slot.p = tensors[program.tensors()[param.index].name].data_ptr()
    elif param.kind == "workspace":
        slot.p = workspaces[param.index].data_ptr()
    elif param.kind == "size":
        slot.i = env[program.sizes[param.index].var.id]
    elif param.kind == "scalar":
        value = scalars[program.scalars()[param.index].name]
        if param.type.startswith(("f", "bf")):
            slot.f = float(value)
        else:
            slot.i = int(value)
    else:
        slot.i = evaluate(param.value, env)


def _run_blocks(entry, values, grid: int, scratch_bytes: int, threads: int) -> None:
    failures: list[Status] = []

    def work(first: int, last: int) -> None:
        arena = torch.full(
            (scratch_bytes + 128,), 0x7F, dtype=torch.uint8
        )  # garbage: NaN in every float
        base = (arena.data_ptr() + 63) // 64 * 64
        status = Status()
        if entry(values, first, last, base, ctypes.byref(status)) != 0:
            failures.append(status)

    cuts = [grid * n // threads for n in range(threads + 1)]
    if threads == 1:
        work(0, grid)
    else:
        crew = [threading.Thread(target=work, args=(a, b)) for a, b in itertools.pairwise(cuts)]
        for t in crew:
            t.start()
        for t in crew:
            t.join()
    if failures:
        raise KernelFailed(failures[0])


def build_eager(
    func, *, consts: dict[str, int] | None = None, level: str = "", **static
) -> Compiled:
    """Trace an eager tile function with the given size constants and compile it."""
    from tileops.frontend.trace import trace

    program = trace(func, name=func.__name__, static=static, consts=consts or {})
    return build(program, parse_target(f"cpu:{level}" if level else "cpu"))
