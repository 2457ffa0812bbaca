"""``tilelang.lower`` and ``tilelang.engine``: a program's text and source without a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from tileops.dialect.called_module import let_module_stand_for
from tileops.errors import ArgumentTypeError, UnsupportedConstructError
from tileops.ir.program import Program
from tileops.jit import JITKernel, compile
from tileops.jit.kernel import KernelParam

__all__ = [
    "CompiledArtifact",
    "KernelParam",
    "lower",
    "register_c_postproc",
    "register_c_postproc_callback",
    "register_cuda_postproc",
    "register_cuda_postproc_callback",
    "register_hip_postproc",
    "register_hip_postproc_callback",
]


@dataclass(frozen=True)
class CompiledArtifact:
    """What a program became: ``device_mod`` is its text, ``kernel_source`` the generated source."""

    kernel: JITKernel
    device_mod: Program
    host_mod: str
    params: list[KernelParam]
    kernel_source: str


def lower(
    func_or_mod: Any,  # noqa: ANN401
    target: Any = "auto",  # noqa: ANN401
    target_host: object = None,
    params: object = None,
    runtime_only: bool = False,
    enable_host_codegen: bool = False,
    enable_device_compile: bool = False,
    pass_configs: Any = None,  # noqa: ANN401
) -> CompiledArtifact:
    """Compile a ``@T.prim_func`` or a traced program and show what was made of it.

    ``target`` and ``pass_configs`` are those of ``tileops.compile``; the other arguments change
    nothing. ArgumentTypeError for anything that is not one program.
    """
    if isinstance(func_or_mod, (str, list, tuple, dict)):
        raise ArgumentTypeError(f"lower: expected one program, got {func_or_mod!r}")
    kernel = compile(func_or_mod, target=getattr(target, "own", target), pass_configs=pass_configs)
    return CompiledArtifact(
        kernel,
        kernel.prim_func,
        kernel.get_host_source(),
        kernel.params,
        kernel.get_kernel_source(),
    )


def _refusal(name: str) -> Any:  # noqa: ANN401
    def register(*args: object, **kwargs: object) -> NoReturn:
        raise UnsupportedConstructError(
            f"{name}: tileops generates Triton for GPUs and C++ for CPUs, and runs no function "
            "over that text; kernel.get_kernel_source() shows it, and T.Extern launches CUDA C++ "
            "of your own (docs/kernels.md)"
        )

    register.__name__ = register.__qualname__ = name
    register.__doc__ = "UnsupportedConstructError: generated text cannot be changed here."
    return register


register_cuda_postproc = _refusal("register_cuda_postproc")
register_cuda_postproc_callback = _refusal("register_cuda_postproc_callback")
register_hip_postproc = _refusal("register_hip_postproc")
register_hip_postproc_callback = _refusal("register_hip_postproc_callback")
register_c_postproc = _refusal("register_c_postproc")
register_c_postproc_callback = _refusal("register_c_postproc_callback")

__path__: list[str] = []  # imports of what is below it come here
let_module_stand_for(__name__, lower)
