"""Kernel parameters as Triton's compiler takes them, and as the code that it makes expects them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tileops.codegen.kernel_code import KernelParam, LaunchCode
from tileops.compiler.artifact import StageError
from tileops.dtypes import DType
from tileops.errors import InternalError

# Triton's spellings of types, where they are not those of printed IR.
_SPELLINGS = {
    "bool": "i1",
    "f16": "fp16",
    "f32": "fp32",
    "tf32": "fp32",
    "f64": "fp64",
    "f8e4m3fn": "fp8e4nv",
    "f8e5m2": "fp8e5",
}
# Triton names element types as the PTX instruction `tensormap.replace` counts them. The driver
# (CUtensorMapDataType) counts the other kinds of f32, f64 and bf16 in another order.
_DRIVER_TYPES = {8: 10, 9: 8, 10: 9}
_TF32 = 11


def signature_of(launch: LaunchCode) -> dict[str, str]:
    """The type of each parameter by name, as Triton writes it; InternalError for a bad tensor map.

    The layouts of a cluster say which block holds which part of a box, and those here do not.
    """
    own = any(p.tensormap is not None and not p.tensormap.foreign for p in launch.params)
    if launch.cluster > 1 and own:
        raise InternalError(f"{launch.entry}: a launch of clusters takes no tensor map")
    return {param.name: _type_text(param) for param in launch.params}


def _type_text(param: KernelParam) -> str:
    if param.type == "ptr":
        return "*" + _element_text(param)
    if param.type == "tensordesc":
        return _descriptor_text(param)
    return _SPELLINGS.get(param.type, param.type)


def _element_text(param: KernelParam) -> str:
    return spelled(DType(param.dtype or "").short)


def spelled(short: str) -> str:
    """Triton's name of a type."""
    return _SPELLINGS.get(short, short)


def _descriptor_text(param: KernelParam) -> str:
    spec = param.tensormap
    if spec is None or param.dtype is None:
        raise InternalError(f"parameter {param.name} has no tensor map or no dtype")
    if spec.foreign:
        layout = f",{spec.layout}" if spec.layout else ""
        return f"tensordesc<{_element_text(param)}{list(spec.box)}{layout}>"
    from triton.experimental.gluon.language import NVMMASharedLayout

    if (problem := spec.problem(param.dtype)) is not None:
        raise InternalError(f"parameter {param.name}: {problem}")
    layout = NVMMASharedLayout(spec.swizzle, DType(param.dtype).bits, rank=len(spec.box))
    return f"tensordesc<{_element_text(param)}{list(spec.box)},{layout!r}>"


def tensor_maps(launch: LaunchCode, metadata: Mapping[str, Any]) -> tuple[dict[str, object], ...]:
    """For each map in order: the box, swizzle and element type with which it must be encoded.

    The box may be smaller than the declared one, because a box is at most 256 elements in each
    dimension and its inner row at most the swizzle: Triton then copies several. ``swizzle`` and
    ``elem_type`` are the driver's numbers. A foreign kernel for a GPU without the copy engine gets
    a pointer, extents, strides and ``flags`` truth values instead of each map.
    """
    specs = [p.tensormap for p in launch.params if p.tensormap is not None]
    found = metadata.get("tensordesc_meta") or ()
    if specs and not found and all(spec.foreign for spec in specs):
        return tuple({"flags": _flag_count()} for _ in specs)
    declared = len(specs)
    if len(found) != declared or None in found:
        raise StageError(
            f"{launch.entry}: Triton describes {len(found)} tensor maps, {declared} were declared"
        )
    return tuple(
        {
            "box": list(one["block_size"]),
            "swizzle": one["swizzle"],
            "elem_type": _TF32 if spec.tf32 else driver_type(one["elem_type"]),
            **({"nans": True} if spec.nans else {}),
        }
        for one, spec in zip(found, specs, strict=True)
    )


def driver_type(tritons: int) -> int:
    """The driver's number of an element type from Triton's."""
    return _DRIVER_TYPES.get(tritons, tritons)


def _flag_count() -> int:
    """The truth values after a decomposed map: NaN outside, and in newer versions tf32."""
    from dataclasses import fields

    from triton.tools.tensor_descriptor import TensorDescriptor

    return 1 + any(field.name == "round_f32_to_tf32" for field in fields(TensorDescriptor))


def widths(launch: LaunchCode, maps: Sequence[Mapping[str, object]]) -> list[int]:
    """How many parameters of the machine code each parameter of the launch is."""
    described = iter(maps)
    found = []
    for param in launch.params:
        flags = next(described).get("flags") if param.tensormap is not None else None
        decomposed = (
            int(str(flags)) + 2 * len(param.tensormap.box) if flags and param.tensormap else 0
        )
        found.append(param.width + decomposed)
    return found


def hidden_pointers(
    launch: LaunchCode, ptx: str | None, maps: Sequence[Mapping[str, object]] = ()
) -> tuple[str, ...]:
    """The pointers that Triton appended, counted in the PTX, where they are parameters."""
    names = ("global_scratch", "profile_scratch")
    if ptx is None:
        return names
    start = ptx.index(".entry")
    extra = ptx.count(".param ", start, ptx.index("{", start))
    extra -= sum(widths(launch, maps))
    if not 0 <= extra <= len(names):
        raise StageError(f"{launch.entry}: PTX has {extra} parameters more than were declared")
    return names[:extra]
