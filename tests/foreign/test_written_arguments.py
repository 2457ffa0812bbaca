"""What a Triton kernel writes, found in its IR."""

from __future__ import annotations

from typing import Any

import pytest
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import ASTSource, make_backend

from tests.foreign import kernels
from tileops.compiler.written_arguments import written_arguments

POINTERS = ["X", "Y", "Z", "W", "R", "x", "y", "z", "a", "b", "c", "Bias"]


def ttir(function: Any, constants: dict[str, Any], types: dict[str, str]) -> str:
    target = GPUTarget("cuda", 90, 32)
    backend = make_backend(target)
    options = backend.parse_options({"enable_fp_fusion": True})
    signature, values = {}, {}
    for param in function.params:
        if param.name in constants or param.is_constexpr:
            signature[param.name] = "constexpr"
            values[(param.num,)] = constants[param.name]
        else:
            default = "*fp32" if param.name in POINTERS else "i32"
            signature[param.name] = types.get(param.name, default)
    source = ASTSource(function, signature, values, {})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = source.make_ir(
        target,
        options,
        backend.get_codegen_implementation(options),
        backend.get_module_map(),
        context,
    )
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, source.language)
    return str(stages["ttir"](module, {}))


@pytest.mark.parametrize(
    ("function", "constants", "types", "written"),
    [
        (kernels.rms_fwd, {"BLOCK": 64}, {"eps": "fp32"}, {"Y", "R"}),
        (kernels.matmul, {"BM": 16, "BN": 16, "BK": 16, "EVEN_K": False}, dict.fromkeys("abc", "*fp16"), {"c"}),
        (kernels.optional_bias, {"BLOCK": 64}, {"scale": "fp32", "flag": "u1"}, {"Y"}),
        (kernels.stores_in_a_call, {}, {}, {"Y"}),
        (kernels.stores_after_loops, {"BLOCK": 64}, {}, {"Y", "Z"}),
        (kernels.stores_after_while, {"BLOCK": 64}, {"Z": "*i32"}, {"X", "Z"}),
        (kernels.stores_by_descriptor, {"BLOCK": 64}, {}, {"Y"}),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)  # fmt: skip
def test_written_pointers(
    function: Any, constants: dict[str, Any], types: dict[str, str], written: set[str]
) -> None:
    names = [p.name for p in function.params if not p.is_constexpr]
    found = written_arguments(ttir(function, constants, types))
    assert {names[n] for n in found} & set(POINTERS) == written
