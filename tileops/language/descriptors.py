"""Descriptors of tensors, for kernels that copy boxes of them with the GPU's copy engine."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tileops.errors import ProgramTypeError, ProgramValueError, UnsupportedConstructError
from tileops.ir.expr import Const, Expr
from tileops.ir.extern import ExternArg, TensorMap
from tileops.language.buffers import BufferRef
from tileops.language.extern import Recorder, open_recorder
from tileops.language.value import as_int, as_tuple, describe

__all__ = ["tensor_map"]

_ALIGNED = 16  # bytes: strides, and the row of a box
_MOST_DIMENSIONS = 5
_MOST_ELEMENTS = 256  # of a box along a dimension, where Triton does not divide it
_SWIZZLES = (0, 32, 64, 128)


@dataclass(frozen=True, eq=False)
class Descriptor:
    """What a launch gets for a tensor map: the tensor and how the map sees it."""

    base: BufferRef
    map: TensorMap

    def argument(self, recorder: Recorder, name: str, what: str) -> ExternArg:
        """The argument that it is for the parameter ``name``."""
        found = recorder.tensor(name, self.base, what)
        if found.value in recorder.tracer.workspaces:
            raise UnsupportedConstructError(
                f"{what} is a descriptor of the workspace {self.base.name}; describe a parameter "
                "or an output, or pass the workspace as a pointer"
            )
        return replace(found, kind="descriptor", map=self.map)

    def describe(self) -> str:
        """The text in error messages."""
        return f"a tensor map of {self.base.describe()}"


def tensor_map(
    tensor: BufferRef,
    box: object,
    *,
    shape: object = None,
    strides: object = None,
    swizzle: int = 0,
    nans: bool = False,
) -> Descriptor:
    """A ``CUtensorMap`` of ``tensor`` for a kernel in CUDA C++, PTX or a cubin, made at each call.

    ``box`` is what one copy moves, in elements, outermost dimension first. ``shape`` and
    ``strides``, in elements, are the tensor's if not given. ``swizzle`` is 0, 32, 64 or 128 bytes.
    Elements outside are 0, or NaN with ``nans``. The kernel takes it as
    ``const __grid_constant__ CUtensorMap``.
    """
    made = _made("T.tensor_map", tensor, box, shape, strides)
    bits = tensor.dtype.bits
    if swizzle not in _SWIZZLES or (swizzle and made.map.box[-1] * bits > 8 * swizzle):
        raise ProgramValueError(
            "the swizzle of T.tensor_map",
            expected="0, 32, 64 or 128 bytes, at least a row of the box",
            found=f"{swizzle} for a row of {made.map.box[-1] * bits // 8} bytes",
        )
    if max(made.map.box) > _MOST_ELEMENTS:
        raise ProgramValueError(
            "the box of T.tensor_map",
            expected=f"at most {_MOST_ELEMENTS} elements along a dimension",
            found=str(list(made.map.box)),
        )
    return Descriptor(tensor, replace(made.map, swizzle=swizzle, nans=bool(nans)))


def descriptor_maker(function: Any) -> Callable[..., object]:  # noqa: ANN401
    """What a program calls where it calls ``function``: Triton's descriptors are made of tensors.

    Other functions are themselves.
    """
    if not str(getattr(function, "__module__", "")).startswith("triton."):
        return function  # type: ignore[no-any-return]
    name = getattr(function, "__qualname__", "")
    if name.startswith("TensorDescriptorIm2Col"):
        raise UnsupportedConstructError(f"{name}: a descriptor by im2col for a foreign kernel")
    if name not in ("TensorDescriptor", "TensorDescriptor.from_tensor"):
        return function  # type: ignore[no-any-return]
    signature = inspect.signature(function)

    def make(*args: object, **kwargs: object) -> Descriptor:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ProgramTypeError(f"{name}: {error}") from None
        bound.apply_defaults()
        return _of_triton(name, bound.arguments)

    return make


def _of_triton(name: str, given: dict[str, Any]) -> Descriptor:
    tensor = given.get("base", given.get("tensor"))
    made = _made(name, tensor, given["block_shape"], given.get("shape"), given.get("strides"))
    box = made.map.box
    if any(n & (n - 1) for n in box):
        raise ProgramValueError(
            f"the block_shape of {name}", expected="powers of 2", found=str(list(box))
        )
    padding, layout = given["padding"], given.get("layout")
    if padding not in ("zero", "nan"):
        raise ProgramValueError(
            f"the padding of {name}", expected="zero or nan", found=repr(padding)
        )
    if getattr(layout, "fp4_padded", False):
        raise UnsupportedConstructError(f"{name}: a layout with fp4_padded for a foreign kernel")
    changed = replace(
        made.map,
        nans=padding == "nan",
        layout="" if layout is None else repr(layout),
        tf32=bool(given.get("round_f32_to_tf32", False)),
    )
    return Descriptor(made.base, changed)


def _made(name: str, tensor: object, box: object, shape: object, strides: object) -> Descriptor:
    recorder = open_recorder(f"the descriptor of {name}", "made")
    if not isinstance(tensor, BufferRef):
        raise ProgramTypeError(
            f"{name} describes a tensor of the program, whole", found=describe(tensor)
        )
    recorder.tensor("", tensor, f"the tensor of {name}")
    if tensor.dtype.bits % 8 or tensor.dtype == "bool":
        raise UnsupportedConstructError(f"{name} of a tensor of {tensor.dtype}")
    extents = tensor.shape if shape is None else as_tuple(shape)
    steps = tensor.strides if strides is None else as_tuple(strides)
    numbers = [as_int(n) for n in as_tuple(box)]
    known = tuple(n for n in numbers if n is not None and n > 0)
    sizes = (len(known), len(numbers), len(extents), len(steps))
    if len(set(sizes)) != 1 or not 1 <= len(known) <= _MOST_DIMENSIONS:
        raise ProgramValueError(
            f"{name} of `{tensor.name}`",
            expected=f"1 to {_MOST_DIMENSIONS} numbers in the box, which are known here, and as "
            "many extents and strides",
            found=f"the box {', '.join(map(describe, as_tuple(box)))}, {len(extents)} extents and "
            f"{len(steps)} strides",
        )
    width = tensor.dtype.bits // 8
    if known[-1] * width % _ALIGNED:
        raise ProgramValueError(
            f"a row of the box of {name}",
            expected=f"a multiple of {_ALIGNED} bytes",
            found=f"{known[-1]} elements of {tensor.dtype}, {known[-1] * width} bytes",
        )
    found = TensorMap(
        known,
        tuple(recorder.integer(n, f"an extent of {name}") for n in extents),
        tuple(recorder.integer(n, f"a stride of {name}") for n in steps),
    )
    _check_strides(name, tensor, found.strides, width)
    return Descriptor(tensor, found)


def _check_strides(name: str, tensor: BufferRef, strides: tuple[Expr, ...], width: int) -> None:
    if not isinstance(strides[-1], Const) or int(strides[-1].value) != 1:
        raise ProgramValueError(
            f"the last stride of {name} of `{tensor.name}`", expected="1", found=str(strides[-1])
        )
    for dim, stride in enumerate(strides[:-1]):
        if isinstance(stride, Const) and int(stride.value) * width % _ALIGNED:
            raise ProgramValueError(
                f"stride {dim} of {name} of `{tensor.name}`",
                expected=f"a multiple of {_ALIGNED} bytes",
                found=f"{stride} elements of {width} bytes",
            )
