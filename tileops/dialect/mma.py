"""``cuda.intrinsics``: layouts of shared tiles as hints, and the emitter of matrix instructions."""

from __future__ import annotations

from typing import Any, NoReturn

from tileops import language as T
from tileops.dialect.matrix_emitter import TensorCoreIntrinEmitter
from tileops.dtypes import DType, dtype_of
from tileops.errors import ArgumentError, UnsupportedConstructError
from tileops.layout import make_swizzled_layout

__all__ = [
    "TensorCoreIntrinEmitter",
    "get_mma_micro_size",
    "get_swizzle_layout",
    "make_mma_swizzle_layout",
]

_SEGMENT_BITS = 128  # a swizzle moves 16 bytes at a time
_ROWS = 8


def make_mma_swizzle_layout(shared_buf: object, is_smooth: bool = False) -> T.Layout:
    """The layout of a shared operand without bank conflicts, as a hint."""
    return make_swizzled_layout(shared_buf)


def get_swizzle_layout(
    row_idx: Any,  # noqa: ANN401
    col_idx: Any,  # noqa: ANN401
    row_size: int,
    dtype: object,
    swizzle_bytes: int | None = None,
) -> tuple[Any, Any, Any]:
    """Where an element is under a swizzle: the number of the column block, its row, its column.

    A swizzle of 32, 64 or 128 bytes exchanges segments of 16 bytes by the row's number. By default
    it is as wide as a row, at most 128 bytes. ArgumentError for a row that is no multiple of it.
    """
    bits = dtype_of(dtype).bits
    row_bytes = bits * row_size // 8
    width = min(128, row_bytes) if swizzle_bytes is None else int(swizzle_bytes)
    if width not in (32, 64, 128) or row_bytes % 32:
        raise ArgumentError(
            f"get_swizzle_layout: expected rows of a multiple of 32 bytes and a swizzle of 32, 64 "
            f"or 128 bytes, got {row_bytes} and {width}"
        )
    elements, segments = _SEGMENT_BITS // bits, width * 8 // _SEGMENT_BITS
    segment = col_idx // elements
    moved = (segment % segments) ^ ((row_idx % _ROWS) // (_ROWS // segments))
    return segment // segments, row_idx, moved * elements + col_idx % elements


def get_mma_micro_size(dtype: object) -> tuple[int, int, int]:
    """Rows, columns and depth of the tile that a warp multiplies at once: 256 bits deep."""
    kind: DType = dtype_of(dtype)
    if kind.bits == 64:
        return 8, 8, 4
    return 16, 16, 256 // kind.bits


def _refused(name: str) -> type:
    def refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
        raise UnsupportedConstructError(
            f"{name}: these matrix instructions by hand are not supported by tileops; write "
            "T.gemm(A_shared, B_shared, C_fragment), or TensorCoreIntrinEmitter"
        )

    doc = "UnsupportedConstructError when it is made: write T.gemm instead."
    return type(name, (), {"__init__": refuse, "__doc__": doc, "__module__": __name__})


_EMITTERS = (
    "TensorCoreIntrinEmitterWithLadderTransform",
    "INT4TensorCoreIntrinEmitter",
    "INT4TensorCoreIntrinEmitterWithLadderTransform",
    "SparseTensorCoreIntrinEmitter",
    "TensorCoreIntrinEmitterSM120",
)


def __getattr__(name: str) -> type:
    if name in _EMITTERS:
        return _refused(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__path__: list[str] = []  # imports of what is below it come here
