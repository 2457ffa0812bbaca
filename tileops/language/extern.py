"""T.Extern, the block in which a program launches kernels that others wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

from tileops.dtypes import DType
from tileops.errors import ProgramTypeError, ProgramValueError, UnsupportedConstructError
from tileops.foreign.constants import text_of
from tileops.foreign.triton_source import EMPTY, Parameter, TritonKernel, is_launchable, kernel_of
from tileops.foreign.wrappers import unwrapped
from tileops.ir import fold
from tileops.ir.expr import Const, Expr, Var
from tileops.ir.extern import Extern as ExternLaunch
from tileops.ir.extern import ExternArg, fact_of
from tileops.language.buffers import BufferRef
from tileops.language.parameter_types import OpenDType
from tileops.language.tracer import Tracer, require_tracer
from tileops.language.value import (
    Value,
    as_tuple,
    describe,
    has_load,
    index_expr,
    is_scalar,
    number_of,
    to_expr,
)

__all__ = ["Extern"]

# What a launch takes besides its kernel's parameters, and the Python type of each.
OPTIONS: Mapping[str, type] = {
    "num_warps": int,
    "num_stages": int,
    "num_ctas": int,
    "maxnreg": int,
    "enable_fp_fusion": bool,
    "launch_cooperative_grid": bool,
    "launch_pdl": bool,
}
_FLOATS = ("fp16", "bf16", "fp32", "fp64")


@dataclass(eq=False)
class ExternFrame:
    """The context manager that T.Extern returns; its block launches foreign kernels."""

    tracer: Tracer
    writes: tuple[object, ...] = ()
    written: frozenset[int] = field(default_factory=frozenset)
    is_used: bool = False

    def __enter__(self) -> None:
        tracer = self.tracer
        if tracer.launch is not None or tracer.extern is not None:
            inside = "T.Kernel" if tracer.launch is not None else "T.Extern"
            raise ProgramValueError(f"T.Extern cannot be inside {inside}")
        if tracer.conditional_depth:
            raise ProgramValueError(
                "T.Extern cannot be under a condition that is known only at run time"
            )
        self.written = frozenset(
            _whole_tensor(tracer, w, "T.Extern(writes=)").node.id for w in self.writes
        )
        tracer.extern = self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            if (helper := _launching_function(traceback)) is not None:
                raise ProgramTypeError(
                    f"`{helper}` launches a kernel through Triton itself, while the program is "
                    "being traced",
                    expected="`kernel[grid](...)` as one expression in the block, and @T.macro "
                    "above a function that launches",
                    found=str(error),
                ) from error
            return  # the location of the error tells where it was
        self.tracer.extern = None
        if self.tracer.skip_bodies:
            self.tracer.emit_extern(ExternLaunch("unknown", "skipped", (), (fold.const(1),), ()))
        elif not self.is_used:
            raise ProgramValueError("the `with T.Extern()` block launches no kernel")


def Extern(*, writes: object = ()) -> ExternFrame:
    """A block of launches of foreign kernels: ``with T.Extern(): kernel[grid](X, Y, n)``.

    The block is plain Python, run each time that code is made for new ``T.const`` sizes, dtypes or
    compile-time parameters, which are numbers and dtypes in it. A ``@triton.jit`` kernel gets the
    tensors of the program, its sizes and scalars, and arithmetic on them. Outputs (``T.empty``) and
    workspaces may be written; ``writes`` names parameters that the kernels write besides those that
    ``jit(mutates=...)`` declares.
    """
    tracer = require_tracer("T.Extern")
    return ExternFrame(tracer, as_tuple(writes))


def _launching_function(traceback: TracebackType | None) -> str | None:
    """The function whose call went into Triton's launcher and failed there; None where none did."""
    caller = None
    while traceback is not None:
        frame = traceback.tb_frame
        if frame.f_globals.get("__name__") in ("triton.runtime.jit", "triton.runtime.autotuner"):
            return caller
        caller, traceback = frame.f_code.co_name, traceback.tb_next
    return None


def launcher(kernel: object, grid: object) -> Callable[..., object]:
    """What ``kernel[grid]`` is where a program calls it: a launch to record, or the item itself."""
    if not is_launchable(kernel):
        return kernel[grid]  # type: ignore[index,no-any-return]

    def launch(*args: object, **kwargs: object) -> None:
        open_recorder("a foreign kernel").record(kernel, grid, args, kwargs)

    return launch


def open_recorder(what: str, done: str = "launched") -> Recorder:
    """What records launches in the open block; ProgramValueError for ``what`` outside of one."""
    tracer = require_tracer(what)
    if not isinstance(tracer.extern, ExternFrame):
        raise ProgramValueError(f"{what} is {done} inside `with T.Extern():`")
    if tracer.conditional_depth:
        raise ProgramValueError(
            f"{what} cannot be {done} under a condition that is known only at run time"
        )
    return Recorder(tracer, tracer.extern)


@runtime_checkable
class Describing(Protocol):
    """A value that says itself which argument it is: a tensor map."""

    def argument(self, recorder: Recorder, name: str, what: str) -> ExternArg:
        """The argument for the parameter ``name``."""


@dataclass(frozen=True)
class Recorder:
    """Turns launches of foreign kernels into statements of the program."""

    tracer: Tracer
    frame: ExternFrame

    def record(
        self, function: object, grid: object, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> None:
        """Record ``function[grid](*args, **kwargs)`` of a kernel of Triton's or Gluon's."""
        if not hasattr(function, "params"):
            function, kwargs = unwrapped(function, args, kwargs)
            args = ()
        kernel = kernel_of(function)
        values, options = _bound(kernel, args, kwargs)
        extents = grid(dict(values)) if callable(grid) else grid
        self.add(
            ExternLaunch(
                kernel.language,
                kernel.name,
                kernel.parts,
                self.grid(kernel.name, extents),
                tuple(self._argument(kernel, p, values[p.name]) for p in kernel.params),
                tuple(sorted((name, _option(name, value)) for name, value in options.items())),
            )
        )

    def add(self, launch: ExternLaunch) -> None:
        """Record a launch that is complete."""
        self.frame.is_used = True
        self.tracer.emit_extern(launch)

    def grid(self, kernel: str, extents: object) -> tuple[Expr, ...]:
        """The extents of the grid of ``kernel``."""
        found = as_tuple(extents)
        if not 1 <= len(found) <= 3:
            raise ProgramValueError(
                f"the grid of {kernel} has {len(found)} extents", expected="1 to 3"
            )
        return tuple(self.integer(e, f"a grid extent of {kernel}") for e in found)

    def tensor(self, name: str, value: BufferRef, what: str) -> ExternArg:
        """A tensor that is the parameter ``name``."""
        buffer = _whole_tensor(self.tracer, value, what).node
        is_written = _is_own(self.tracer, buffer.id) or buffer.id in self.frame.written
        return ExternArg(name, "tensor", buffer, is_written=is_written)

    def integer(self, value: object, what: str) -> Expr:
        """An integer that sizes and scalars tell."""
        expr = index_expr(value, what)
        if has_load(expr):
            raise UnsupportedConstructError(
                f"{what} depends on an element of a tensor, which is not known before the launch"
            )
        self.tracer.check_expr_alive(expr)
        return expr

    def _argument(self, kernel: TritonKernel, param: Parameter, value: object) -> ExternArg:
        what = f"the argument `{param.name}` of {kernel.name}"
        if param.is_constexpr:
            return self._constant(param, value, what)
        if value is None:
            return ExternArg(param.name, "constant", "None")
        if isinstance(value, BufferRef):
            return self.tensor(param.name, value, what)
        if isinstance(value, Describing):
            return value.argument(self, param.name, what)
        if is_scalar(value):
            return self._number(param, value, what)
        if isinstance(value, str) or _is_tritons(value):
            return ExternArg(param.name, "constant", text_of(value, param.name))
        raise ProgramTypeError(
            f"{what} must be a tensor, a number or None, or the parameter a tl.constexpr",
            found=describe(value),
        )

    def _constant(self, param: Parameter, value: object, what: str) -> ExternArg:
        if isinstance(value, Value) and not isinstance(value.expr, Const):
            if value.expr.dtype.is_float:
                raise ProgramTypeError(
                    f"{what} is a tl.constexpr and gets a run-time float", found=describe(value)
                )
            expr = value.expr if value.expr.dtype.is_bool else self.integer(value, what)
            return ExternArg(param.name, "choice", expr)
        if isinstance(value, Value):
            value = number_of(value.expr, "number")
        if isinstance(value, BufferRef):
            raise ProgramTypeError(f"{what} is a tl.constexpr", found=describe(value))
        if isinstance(value, OpenDType):
            value = value.now()
        return ExternArg(param.name, "constant", text_of(value, param.name))

    def _number(self, param: Parameter, value: object, what: str) -> ExternArg:
        expr = to_expr(value, what)
        if expr.dtype.is_float or param.type in _FLOATS:
            return ExternArg(param.name, "float", _float(expr, param, what), type=param.type)
        if expr.dtype.is_bool:
            self.tracer.check_expr_alive(expr)
            return ExternArg(param.name, "bool", expr, type=param.type)
        expr = self.integer(value, what)
        fact = fact_of(int(expr.value), param.mask) if isinstance(expr, Const) else None
        return ExternArg(param.name, "int", expr, param.mask, fact, type=param.type)


def _float(expr: Expr, param: Parameter, what: str) -> Expr:
    if isinstance(expr, Const):
        return fold.const(
            float(expr.value), DType("float64") if param.type == "fp64" else fold.FLOAT32
        )
    if not isinstance(expr, Var) or not expr.dtype.is_float:
        raise ProgramTypeError(
            f"{what} is a float and must be a scalar parameter of the program or a number",
            found=f"an expression of type {expr.dtype}",
        )
    if expr.dtype.bits > 32 and not param.type:
        raise ProgramTypeError(
            f"{what} would lose bits: Triton passes floats as fp32",
            expected=f"{expr.name}: T.float32",
            found=str(expr.dtype),
        )
    return expr


def _bound(
    kernel: TritonKernel, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> tuple[dict[str, Any], dict[str, object]]:
    """The value of each parameter, and the options of the launch."""
    names = [p.name for p in kernel.params]
    if len(args) > len(names):
        raise ProgramTypeError(
            f"{kernel.name} takes {len(names)} arguments",
            expected=", ".join(names),
            found=f"{len(args)} positional arguments",
        )
    values = dict(zip(names, args, strict=False))
    options: dict[str, object] = {}
    for name, value in kwargs.items():
        if name in values:
            raise ProgramTypeError(f"{kernel.name} got its argument `{name}` twice")
        if name in names:
            values[name] = value
        elif name in OPTIONS:
            options[name] = value
        else:
            raise ProgramTypeError(
                f"{kernel.name} has no parameter `{name}`, nor has a launch such an option",
                expected=f"one of {', '.join([*names[len(args) :], *OPTIONS])}",
            )
    for param in kernel.params:
        if param.name not in values and param.default is not EMPTY:
            values[param.name] = param.default
    missing = [name for name in names if name not in values]
    if missing:
        raise ProgramTypeError(
            f"{kernel.name} takes {len(names)} arguments",
            expected=", ".join(names),
            found=f"none for {', '.join(missing)}",
        )
    return {name: values[name] for name in names}, options


def _option(name: str, value: object) -> str:
    """The text of an option's value, which is known when code is made."""
    if isinstance(value, Value):
        if not isinstance(value.expr, Const):
            raise ProgramTypeError(
                f"the option `{name}` of a launch must be known when code is made",
                expected="a number, from T.const sizes and compile-time parameters",
                found=describe(value),
            )
        value = number_of(value.expr, "int")
    kind = OPTIONS[name]
    if not isinstance(value, int) or (kind is bool) != isinstance(value, bool):
        needed = "True or False" if kind is bool else "an int"
        raise ProgramTypeError(
            f"the option `{name}` of a launch must be {needed}",
            found=describe(value),
        )
    return str(value)


def _whole_tensor(tracer: Tracer, value: object, what: str) -> BufferRef:
    views = {view.buffer.id for view in tracer.pending_views}
    is_whole = isinstance(value, BufferRef) and value.scope == "global"
    if not isinstance(value, BufferRef) or not is_whole or value.node.id in views:
        raise ProgramTypeError(
            f"{what} must be a tensor parameter, an output or a workspace of the program, whole",
            found=describe(value),
        )
    if value.dtype.bits < 8:
        raise UnsupportedConstructError(f"{what} has elements of {value.dtype.bits} bits")
    return value


def _is_own(tracer: Tracer, number: int) -> bool:
    """True for what the program allocates itself."""
    return any(number == b.id for b in (*(p.buffer for p in tracer.outputs), *tracer.workspaces))


def _is_tritons(value: object) -> bool:
    return type(value).__module__.startswith("triton.") or is_launchable(value)
