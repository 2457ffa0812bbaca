"""The functions that make programs and kernels: jit, compile, par_compile."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any, overload

from tileops import frontend, settings
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.ir.program import Program
from tileops.jit.compiling import run_all
from tileops.jit.definition import Definition, JitOptions, with_options
from tileops.jit.impl import JITImpl
from tileops.jit.kernel import JITKernel, make_kernel
from tileops.jit.lazy import program_of
from tileops.jit.provider import Build
from tileops.jit.targets import TargetLike, requested_target
from tileops.op.transforms import autocast_dtypes
from tileops.pass_configs import options_of

OutIdx = list[int] | int | None
PassConfigs = Mapping[Any, object] | None
CompileFlags = Sequence[str] | str | None


# Ways to launch a kernel. Accepted for compatibility; all behave identically.
EXECUTION_BACKENDS = (
    "auto", "tvm_ffi", "dlpack", "ctypes", "cython", "nvrtc", "torch", "cutedsl",
)  # fmt: skip


@overload
def jit(func: Callable[..., Any], /) -> JITImpl: ...


@overload
def jit(
    func: None = None,
    /,
    *,
    out_idx: OutIdx = None,
    target: TargetLike = None,
    target_host: object = None,
    execution_backend: str | None = None,
    verbose: bool | None = None,
    pass_configs: PassConfigs = None,
    debug_root_path: str | None = None,
    compile_flags: CompileFlags = None,
    mutates: Sequence[str] | None = None,
    name: str | None = None,
    differentiable: bool | None = None,
    autocast: object = None,
    contiguous: str = "require",
    cpu: JITImpl | None = None,
) -> Callable[[Callable[..., Any]], JITImpl]: ...


def jit(
    func: Callable[..., Any] | None = None,
    /,
    *,
    out_idx: OutIdx = None,
    target: TargetLike = None,
    target_host: object = None,
    execution_backend: str | None = None,
    verbose: bool | None = None,
    pass_configs: PassConfigs = None,
    debug_root_path: str | None = None,
    compile_flags: CompileFlags = None,
    mutates: Sequence[str] | None = None,
    name: str | None = None,
    differentiable: bool | None = None,
    autocast: object = None,
    contiguous: str = "require",
    cpu: JITImpl | None = None,
) -> JITImpl | Callable[[Callable[..., Any]], JITImpl]:
    """Make a tile program of a function; usable with and without parentheses.

    ``out_idx`` (lazy functions): parameters of the prim_func that a kernel allocates and returns.
    ``target``: ``cuda:sm_90``, ``cpu``, ``interpreter``, ...; by default the tensors decide.
    ``pass_configs``: keys of ``PassConfigKey``. ``compile_flags``: for the compiler of the target.
    ``debug_root_path``: a folder that gets a copy of each compiled program. ``mutates``: names of
    the tensors that the program writes, if one trace cannot tell. ``name``: of the op, by
    default the function's. ``differentiable=False``: results never require grad; those of other
    programs without a gradient refuse a backward pass. ``autocast`` (eager programs): the dtype to
    which floating tensors are cast where autocast is on, or a mapping from device type (``cpu``,
    ``cuda``) to dtype.
    ``contiguous="copy"`` (eager programs): tensors that are not contiguous are copied, and what the
    program writes is copied back; by default they are refused. ``cpu`` (eager programs): another
    program with the same parameters and results, which is the op's code for CPU tensors, where this
    one launches foreign kernels. ``target_host`` and
    ``execution_backend``, one of ``EXECUTION_BACKENDS``, mean nothing here: one C++ call path
    launches every kernel.
    """
    _check_texts(name, debug_root_path)
    _check_choice("execution_backend", execution_backend, EXECUTION_BACKENDS)
    _check_choice("contiguous", contiguous, ("require", "copy"))
    options = JitOptions(
        out_idx=out_idx,
        target=target,
        target_host=target_host,
        execution_backend=execution_backend,
        verbose=_verbose(verbose),
        pass_configs=pass_configs,
        debug_root_path=debug_root_path,
        compile_flags=compile_flags,
        mutates=_mutates(mutates),
        name=name,
        differentiable=differentiable,
        autocast=autocast_dtypes(autocast),
        contiguous=contiguous,
        cpu=_twin(cpu),
    )
    if func is not None:
        return _decorate(func, options)
    return functools.partial(_decorate, options=options)


def _decorate(func: Callable[..., Any], options: JitOptions) -> JITImpl:
    if isinstance(func, JITImpl):
        raise ArgumentTypeError(f"{func.func.__name__} is decorated with jit already")
    if not isinstance(func, FunctionType):
        raise ArgumentTypeError(f"jit takes a function, got {type(func).__name__}")
    return JITImpl(Definition(func, options))


def _check_texts(name: object, debug_root_path: object) -> None:
    if not isinstance(name, str | None):
        raise ArgumentTypeError(f"name: expected a str, got {type(name).__name__}")
    if not isinstance(debug_root_path, str | os.PathLike | None):
        raise ArgumentTypeError(
            f"debug_root_path: expected a path, got {type(debug_root_path).__name__}"
        )


def _check_choice(name: str, value: str | None, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise ArgumentError(f"{name}: expected one of {', '.join(choices)}, got {value!r}")


def _twin(program: object) -> Definition | None:
    if program is None:
        return None
    if not isinstance(program, JITImpl) or program.definition.signature.mode != "eager":
        raise ArgumentTypeError(
            f"cpu: expected an eager program of @tileops.jit, got {type(program).__name__}"
        )
    return program.definition


def _mutates(names: Sequence[str] | None) -> tuple[str, ...] | None:
    if names is None:
        return None
    if isinstance(names, str):
        return (names,)
    if not isinstance(names, Iterable):
        raise ArgumentTypeError(f"mutates: expected names of tensors, got {type(names).__name__}")
    return tuple(names)


def _verbose(verbose: bool | None) -> bool | None:
    return settings.current().verbose if verbose is None else verbose


def compile(
    func: object = None,
    out_idx: OutIdx = None,
    execution_backend: str | None = None,
    target: TargetLike = None,
    target_host: object = None,
    verbose: bool | None = None,
    pass_configs: PassConfigs = None,
    compile_flags: CompileFlags = None,
) -> JITKernel:
    """Compile a ``T.prim_func``, or a traced program, to a kernel.

    Compiling for a GPU does not need one: ``compile(f, target="cuda:sm_90")``. ArgumentError if
    both the program's body and the caller give ``out_idx``, and for an unknown
    ``execution_backend`` (see ``jit``).
    """
    _check_choice("execution_backend", execution_backend, EXECUTION_BACKENDS)
    build = Build(requested_target(target), bool(_verbose(verbose)))
    options = options_of(pass_configs, compile_flags)
    match func:
        case frontend.PrimFunc():
            if build.is_interpreted:
                func = func.for_interpreter()
            program = program_of(func, out_idx=out_idx, options=options)
        case Program():
            if out_idx is not None:
                func = frontend.with_out_idx(func, out_idx)
            program = with_options(func, options)
        case JITImpl():
            raise ArgumentTypeError(
                "compile takes a T.prim_func or a traced program; for a jit function call "
                f"{func.func.__name__}.compile(...), or pass {func.func.__name__}.get_tir(...)"
            )
        case _:
            raise ArgumentTypeError(f"compile takes a T.prim_func, got {type(func).__name__}")
    return make_kernel(program.name, program, build)


def par_compile(
    funcs: Iterable[object],
    out_idx: OutIdx = None,
    execution_backend: str | None = None,
    target: TargetLike = None,
    target_host: object = None,
    verbose: bool | None = None,
    pass_configs: PassConfigs = None,
    compile_flags: CompileFlags = None,
    num_workers: int | None = None,
    ignore_error: bool = False,
) -> list[JITKernel | None]:
    """``compile`` for several functions in a pool of threads; the order is kept.

    The first failure raises; with ``ignore_error`` each is logged and gives None.
    """
    one = functools.partial(
        compile,
        out_idx=out_idx,
        execution_backend=execution_backend,
        target=target,
        target_host=target_host,
        verbose=verbose,
        pass_configs=pass_configs,
        compile_flags=compile_flags,
    )
    return run_all([functools.partial(one, func) for func in funcs], num_workers, ignore_error)
