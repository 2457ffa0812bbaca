"""Matrix instructions by hand: T.ptx_mma and T.ptx_ldmatrix of the threads of a warp."""

from __future__ import annotations

from tileops.errors import ProgramTypeError, ProgramValueError, UnsupportedConstructError
from tileops.ir import fold
from tileops.ir.expr import Buffer, Region, const_value
from tileops.ir.stmt import LoadMatrix, Mma
from tileops.ir.threads import MMA_SUMS, MMA_WORDS
from tileops.language.asynchronous import AccessPointer
from tileops.language.buffers import BufferRef, DataPointer, Element
from tileops.language.operands import element_region, int_of, one_of
from tileops.language.tracer import Tracer, require_launch, require_tracer
from tileops.language.value import INT32, describe, to_expr

__all__ = ["ptx_ldmatrix", "ptx_mma"]

_WARP = 32
_ROW_BYTES = 16  # of a matrix of ldmatrix
_OWN = ("local", "fragment")
# Dtypes of factors to the shape of their instruction and the dtypes of its sums.
_FLOATS = ("float32", "float16", "bfloat16")
_FORMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "float16": ("m16n8k16", _FLOATS),
    "bfloat16": ("m16n8k16", _FLOATS),
    "float32": ("m16n8k8", ("float32",)),
    "tfloat32": ("m16n8k8", ("float32",)),
    "float8_e4m3fn": ("m16n8k32", _FLOATS),
    "float8_e5m2": ("m16n8k32", _FLOATS),
    "int8": ("m16n8k32", ("int32",)),
    "uint8": ("m16n8k32", ("int32",)),
}


def _tracer_of(construct: str) -> Tracer:
    tracer = require_tracer(construct)
    if require_launch(construct).thread_count % _WARP:
        raise ProgramValueError(
            f"{construct} needs whole warps", expected="T.Kernel(..., threads=) a multiple of 32"
        )
    if tracer.in_parallel:
        raise ProgramValueError(f"{construct} is for threads and cannot be inside T.Parallel")
    return tracer


def ptx_mma(
    dtype: object,
    shape: object,
    A_layout: object,
    B_layout: object,
    A_dtype: object,
    B_dtype: object,
    C_dtype: object,
    multiplicand_a: object,
    a_index: object,
    multiplicand_b: object,
    b_index: object,
    accumulator: object,
    c_index: object,
    saturate: object = False,
    operator: object = None,
) -> None:
    """``c += a @ b`` by mma.sync: each thread has 4 words of a, 2 of b and 4 sums, in own arrays.

    ``shape`` is m16n8k16 for floats of 16 bits and m16n8k32 for dtypes of 8 bits,
    m16n8k8 for float32, which is rounded to tfloat32. The indices are
    where the words start. The dtypes are those of the arrays.
    """
    construct = "T.ptx_mma"
    tracer = _tracer_of(construct)
    for what, layout, known in (("A_layout", A_layout, "row"), ("B_layout", B_layout, "col")):
        one_of(construct, what, layout, (known,))
    if operator is not None or (saturate is not False and not _is_false(saturate)):
        raise UnsupportedConstructError(f"{construct} with saturation or another operator")
    a, b, c = (
        _array(construct, name, given)
        for name, given in (
            ("multiplicand_a", multiplicand_a),
            ("multiplicand_b", multiplicand_b),
            ("accumulator", accumulator),
        )
    )
    kind, sums = _FORMS.get(a.dtype, ("", ()))
    mixes = a.dtype.bits == b.dtype.bits == 8
    if shape != kind or c.dtype not in sums or not (a.dtype == b.dtype or mixes):
        raise ProgramTypeError(
            f"{construct}: no instruction of this shape multiplies these dtypes",
            expected="; ".join(f"{s} of {d} into {' or '.join(r)}" for d, (s, r) in _FORMS.items()),
            found=f"{shape} of {a.dtype} and {b.dtype} into {c.dtype}",
        )
    if b.dtype not in _FORMS or _FORMS[b.dtype][1] != sums:
        raise ProgramTypeError(
            f"{construct}: the dtypes of A and B do not go together",
            found=f"{a.dtype} and {b.dtype}",
        )
    words = zip(((a, a_index), (b, b_index)), MMA_WORDS, strict=True)
    left, right = (
        _part(construct, ref, index, count * 32 // ref.dtype.bits) for (ref, index), count in words
    )
    tracer.emit(Mma(left, right, _part(construct, c, c_index, MMA_SUMS)))


def ptx_ldmatrix(
    dtype: object,
    trans: object,
    num: object,
    type: object,
    local_ptr: object,
    local_offset: object,
    smem_ptr: object,
    smem_offset: object = 0,
) -> None:
    """``num`` (1, 2 or 4) matrices of 8 rows of 16 bytes from shared memory, by ldmatrix.

    Lane 8 n + i gives the start of row i of matrix n, T.access_ptr or T.address_of of an element.
    Each thread gets a word of 4 bytes of each matrix at ``local_offset`` of its own array.
    """
    construct = "T.ptx_ldmatrix"
    tracer = _tracer_of(construct)
    one_of(construct, "type", type, (".b16", "b16"))
    count = int_of(construct, "num", num)
    if count not in (1, 2, 4):
        raise ProgramValueError(f"{construct}: wrong num", expected="1, 2 or 4", found=str(count))
    ref = _array(construct, "local_ptr", local_ptr)
    row = _row(construct, smem_ptr, smem_offset)
    if row.dtype != ref.dtype:
        raise ProgramTypeError(
            f"{construct}: the dtypes differ", expected=f"rows of {ref.dtype}",
            found=str(row.dtype),
        )  # fmt: skip
    transposed = not _is_false(trans)
    part = _part(construct, ref, local_offset, count * 32 // ref.dtype.bits)
    tracer.emit(LoadMatrix(row, part, transposed))


def _is_false(flag: object) -> bool:
    return fold.truth(to_expr(flag, "a flag")) == fold.const(False)


def _array(construct: str, what: str, value: object) -> Buffer:
    """A thread's own array of one dimension, given as itself or its ``data``."""
    found = _storage(value)
    if found is None or found.scope not in _OWN or found.ndim != 1 or found.dtype.bits < 8:
        raise ProgramTypeError(
            f"{construct}: {what} is a thread's own array",
            expected="T.alloc_local((n,), dtype), or its .data", found=describe(value),
        )  # fmt: skip
    return found


def _storage(value: object) -> Buffer | None:
    if isinstance(value, DataPointer):
        return value.source
    return value.node if isinstance(value, BufferRef) else None


def _part(construct: str, buffer: Buffer, index: object, count: int) -> Region:
    start = fold.cast(to_expr(index, f"an index of {construct}"), INT32)
    region = Region(buffer, (start,), (fold.const(count),))
    shape, first = buffer.static_shape(), const_value(start) or 0
    if first < 0 or (shape is not None and first + count > shape[0]):
        raise ProgramValueError(
            f"{construct}: `{buffer.name}` {'is too short' if first >= 0 else 'begins at 0'}",
            expected=f"{count} elements from {start.text()} on", found=buffer.declaration,
        )  # fmt: skip
    return region


def _row(construct: str, given: object, offset: object) -> Region:
    element = given.element if isinstance(given, AccessPointer) else given
    if isinstance(element, BufferRef):
        element = element[(0,) * element.ndim]
    if not isinstance(element, Element) or element.ref.node.scope != "shared":
        raise ProgramTypeError(
            f"{construct}: a row is in shared memory",
            expected="T.access_ptr(element, 'r') or T.address_of(element) of a shared tile",
            found=element.describe() if isinstance(element, Element) else describe(given),
        )
    region = element_region(element)
    moved = fold.add(region.starts[-1], fold.cast(to_expr(offset, "an offset"), INT32))
    return Region(region.buffer, (*region.starts[:-1], moved), region.extents)
