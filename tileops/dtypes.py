"""The scalar types of the tile language: their names, widths and torch counterparts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tileops.errors import ArgumentTypeError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class _Info:
    bits: int
    kind: str  # "float" | "int" | "uint" | "bool"
    torch_name: str | None
    short: str  # the spelling in printed IR


_TABLE: dict[str, _Info] = {
    "bool": _Info(8, "bool", "bool", "bool"),
    "int4": _Info(4, "int", "int8", "i4"),
    "int8": _Info(8, "int", "int8", "i8"),
    "int16": _Info(16, "int", "int16", "i16"),
    "int32": _Info(32, "int", "int32", "i32"),
    "int64": _Info(64, "int", "int64", "i64"),
    "uint4": _Info(4, "uint", "uint8", "u4"),
    "uint8": _Info(8, "uint", "uint8", "u8"),
    "uint16": _Info(16, "uint", "uint16", "u16"),
    "uint32": _Info(32, "uint", "uint32", "u32"),
    "uint64": _Info(64, "uint", "uint64", "u64"),
    "float16": _Info(16, "float", "float16", "f16"),
    "bfloat16": _Info(16, "float", "bfloat16", "bf16"),
    "tfloat32": _Info(32, "float", "float32", "tf32"),
    "float32": _Info(32, "float", "float32", "f32"),
    "float64": _Info(64, "float", "float64", "f64"),
    "float8_e4m3fn": _Info(8, "float", "float8_e4m3fn", "f8e4m3fn"),
    "float8_e5m2": _Info(8, "float", "float8_e5m2", "f8e5m2"),
    "float8_e8m0fnu": _Info(8, "float", "float8_e8m0fnu", "f8e8m0fnu"),
    "float4_e2m1fn": _Info(4, "float", "float4_e2m1fn_x2", "f4e2m1fn"),
}

_ALIASES = {
    "short": "int16",
    "int": "int32",
    "uint": "uint32",
    "long": "int64",
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "float8_e4m3": "float8_e4m3fn",
}


_T = TypeVar("_T", bound="DType")


class DType(str):
    """A scalar type; a ``str`` equal to its name (``DType("float16") == "float16"``).

    ``text`` is the name as a plain ``str``.
    """

    __slots__ = ("text",)
    text: str

    def __new__(cls: type[_T], name: str) -> _T:
        """The type of a name of the table."""
        made = str.__new__(cls, name)
        made.text = str(name)
        return made

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.text,)

    @property
    def bits(self) -> int:
        """Width of one element in bits."""
        return _TABLE[self].bits

    @property
    def bytes(self) -> int:
        """Width of one element in bytes, rounded up."""
        return (_TABLE[self].bits + 7) // 8

    @property
    def lanes(self) -> int:
        """Number of vector lanes: 1 for every scalar type."""
        return 1

    @property
    def short(self) -> str:
        """The spelling used in printed IR, such as ``f16``."""
        return _TABLE[self].short

    @property
    def is_float(self) -> bool:
        return _TABLE[self].kind == "float"

    @property
    def is_floating_point(self) -> bool:
        """``is_float``, as torch calls it."""
        return self.is_float

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers, not for ``bool``."""
        return _TABLE[self].kind in ("int", "uint")

    @property
    def is_signed(self) -> bool:
        return _TABLE[self].kind in ("int", "float")

    @property
    def is_bool(self) -> bool:
        return _TABLE[self].kind == "bool"

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest value of an integer type."""
        least = -(1 << (self.bits - 1)) if self.is_signed else 0
        return least, least + (1 << self.bits) - 1

    @property
    def is_fp8(self) -> bool:
        return self.is_float and self.bits == 8

    def as_torch(self) -> torch.dtype:
        """Return the ``torch.dtype`` that stores this type; 4-bit types lie two in an element.

        Raises ArgumentTypeError if none does.
        """
        import torch

        name = _TABLE[self].torch_name
        found = getattr(torch, name, None) if name is not None else None
        if found is None:
            raise ArgumentTypeError(f"torch {torch.__version__} has no dtype for {str(self)!r}")
        return found  # type: ignore[no-any-return]


BOOL, UINT8, INT32, INT64 = map(DType, ("bool", "uint8", "int32", "int64"))
FLOAT16, FLOAT32, FLOAT64 = map(DType, ("float16", "float32", "float64"))

# What torch stores a dtype in, beyond its own counterpart: bytes stand for bools, and formats that
# torch lacks travel as raw bytes.
_STORAGE: dict[str, tuple[str, ...]] = {
    "bool": ("bool", "int8", "uint8"),
    "int4": ("int8", "uint8"),
    "uint4": ("uint8", "int8"),
    "tfloat32": ("float32",),
    "float4_e2m1fn": ("float4_e2m1fn_x2", "int8", "uint8"),
}


def storage_names(dtype: DType) -> tuple[str, ...]:
    """The torch dtype names that a tensor of ``dtype`` may have, the usual one first."""
    return _STORAGE.get(str(dtype), (str(dtype),))


def by_storage(dtypes: Sequence[DType]) -> dict[str, DType]:
    """Which of ``dtypes`` a tensor of each torch dtype, a name, has.

    The usual storage of a dtype is its own; another one belongs to the dtype that alone claims it.
    ArgumentTypeError for two dtypes of one usual storage.
    """
    found: dict[str, DType] = {}
    claims: dict[str, list[DType]] = {}
    for dtype in dtypes:
        usual, *others = storage_names(dtype)
        if usual in found:
            raise ArgumentTypeError(
                f"torch stores {found[usual]} and {dtype} in {usual}: a call cannot tell them apart"
            )
        found[usual] = dtype
        for name in others:
            claims.setdefault(name, []).append(dtype)
    for name, claimants in claims.items():
        if name not in found and len(claimants) == 1:
            found[name] = claimants[0]
    return found


def names() -> tuple[str, ...]:
    """All canonical dtype names, in table order."""
    return tuple(_TABLE)


def aliases() -> dict[str, str]:
    """Alternative spellings: alias to canonical name."""
    return dict(_ALIASES)


def is_dtype_like(value: object) -> bool:
    """True if ``dtype_of(value)`` would succeed."""
    return _canonical_name(value) is not None


def dtype_of(value: object) -> DType:
    """Convert a str, DType, dtype of torch, numpy or Triton, or Python scalar type to a DType.

    Raises ArgumentTypeError for anything else, naming the value.
    """
    name = _canonical_name(value)
    if name is None:
        raise ArgumentTypeError(
            f"not a dtype: {value!r}; expected one of {', '.join(_TABLE)}, a torch dtype or a "
            "numpy dtype"
        )
    return DType(name)


# What Triton's dtypes print, where it is another name.
_OF_TRITON = {
    "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64", "int1": "bool",
    "fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2",
}  # fmt: skip


def _canonical_name(value: object) -> str | None:
    if isinstance(value, str):
        text = str(value)
    elif value is float:
        text = "float32"
    elif value is int:
        text = "int32"
    elif value is bool:
        text = "bool"
    elif isinstance(value, type):  # numpy scalar types such as np.float16
        text = value.__name__.rstrip("_")
    else:
        text = str(value)
    text = text.removeprefix("torch.")
    if type(value).__module__.startswith("triton."):
        text = _OF_TRITON.get(text, text)
    text = _ALIASES.get(text, "float4_e2m1fn" if text == "float4_e2m1fn_x2" else text)
    return text if text in _TABLE else None


_LANES = ("2", "4", "8", "16", "32", "64")


def vector_parts(value: object) -> tuple[DType, int] | None:
    """The element type and the lanes of a vector type such as ``float16x2``; None for others."""
    if not isinstance(value, str):
        return None
    base, _, lanes = str(value).rpartition("x")
    name = _canonical_name(base) if lanes in _LANES else None
    return None if name is None else (DType(name), int(lanes))


# Integer promotion keeps the wider type and prefers unsigned at equal width; floats beat integers.
# This is TVM's rule, which TileLang programs rely on: an int32 literal beside a uint32 is a uint32.
# Two 16-bit floats of different format meet in float32, which holds both.
def promote(a: DType, b: DType) -> DType:
    """The dtype of an arithmetic operation between ``a`` and ``b``."""
    if a == b:
        return a
    if a.is_bool:
        return b
    if b.is_bool:
        return a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.bits != b.bits:
        return a if a.bits > b.bits else b
    if a.is_float:
        return DType("float32")
    return b if a.is_signed else a
