"""Triton's compiler stages, run from memory for one function."""

# ruff: noqa: ANN401 - Triton's objects have no types that could be named here.
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tileops.codegen.kernel_code import LaunchCode
from tileops.compiler import ptx_repairs
from tileops.target import Target


def stages_of(
    function: Any,
    launch: LaunchCode,
    target: Target,
    types: Mapping[str, str],
    constants: Mapping[tuple[int], Any],
    options: Mapping[str, Any],
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The text or bytes that each of Triton's stages makes of ``function``, and its metadata.

    ``types`` are those of all parameters in order, "constexpr" where ``constants`` has the value,
    by the parameter's number; ``options`` are all that change code.
    """
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    gpu = GPUTarget(
        target.kind, target.capability if target.kind == "cuda" else target.arch, target.warp_size
    )
    backend = make_backend(gpu)
    parsed = backend.parse_options(dict(options))
    numbers = {name: number for number, name in enumerate(types)}
    aligned = [numbers[p.name] for p in launch.params if p.aligned]
    attributes = {(n,): [["tt.divisibility", 16]] for n in aligned}
    text = _source_class(launch.language)(function, dict(types), dict(constants), attributes)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = text.make_ir(
        gpu, parsed, backend.get_codegen_implementation(parsed), backend.get_module_map(), context
    )
    stages: dict[str, Any] = {}
    backend.add_stages(stages, parsed, text.language)
    metadata: dict[str, Any] = {"num_warps": launch.num_warps, "num_ctas": launch.cluster}
    found: dict[str, bytes] = {}
    for name, run in stages.items():
        module = run(module, metadata)
        if name == "ptx":
            module = ptx_repairs.repaired(module)
        found[name] = module if isinstance(module, bytes) else str(module).encode()
    return found, metadata


def _source_class(language: str) -> Any:
    """Triton's class for functions of ``language``, which also chooses the stages."""
    if language == "gluon":
        from triton.experimental.gluon._runtime import GluonASTSource

        from tileops.compiler.triton_environment import clear_gluon_at_exit

        clear_gluon_at_exit()
        return GluonASTSource
    from triton.compiler.compiler import ASTSource

    return ASTSource
