"""The dtypes of the language as tests see them: stored bytes, exact values, and rounding to them.

Values are float64 (int64 for 64-bit integers): every value of the dtypes is exact there.
"""

from __future__ import annotations

import torch

import tileops.language as T

DTYPES = (
    "bool",
    "int4",
    "uint4",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "bfloat16",
    "tfloat32",
    "float32",
    "float64",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e8m0fnu",
    "float4_e2m1fn",
)
PACKED = ("int4", "uint4", "float4_e2m1fn")
FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]).double()


def storage(dtype: str) -> torch.dtype:
    return T.dtype(dtype).as_torch()


def random_tensor(dtype: str, rows: int, columns: int) -> torch.Tensor:
    """Random bits of ``dtype`` (values without NaN); ``columns`` counts elements."""
    if dtype in PACKED:
        return torch.randint(0, 256, (rows, columns // 2), dtype=torch.uint8).view(storage(dtype))
    if dtype == "bool":
        return torch.randint(0, 2, (rows, columns)).bool()
    if dtype.startswith(("int", "uint")):
        size = T.dtype(dtype).bytes
        bits = torch.randint(0, 256, (rows, columns * size), dtype=torch.uint8)
        return bits.view(storage(dtype))
    if T.dtype(dtype).bits == 8:
        codes = torch.randint(0, 255 if dtype == "float8_e8m0fnu" else 256, (rows, columns))
        values = codes.to(torch.uint8).view(storage(dtype))
        return torch.where(values.float().isfinite(), codes, 1).to(torch.uint8).view(values.dtype)
    return (torch.randn(rows, columns) * 8).to(storage(dtype))


def values(tensor: torch.Tensor, dtype: str) -> torch.Tensor:
    """The elements of a stored tensor as float64, or int64 where they are 64-bit integers."""
    if dtype in PACKED:
        codes = nibbles(tensor)
        if dtype == "int4":
            return ((codes ^ 8) - 8).double()
        return codes.double() if dtype == "uint4" else FP4[codes]
    if dtype in ("int64", "uint64"):
        return tensor.view(torch.int64)
    return tensor.float().double() if T.dtype(dtype).bits == 8 else tensor.double()


def nibbles(tensor: torch.Tensor) -> torch.Tensor:
    """The codes of a packed tensor, one an element: the low half of each byte first."""
    raw = tensor.view(torch.uint8)
    return torch.stack([raw & 15, raw >> 4], dim=-1).flatten(-2).long()


def packed(codes: torch.Tensor, dtype: str) -> torch.Tensor:
    """A stored tensor of 4-bit codes."""
    raw = (codes[..., 0::2] | codes[..., 1::2] << 4).to(torch.uint8)
    return raw.view(storage(dtype))


def rounded(x: torch.Tensor, dtype: str) -> torch.Tensor:
    """What a conversion of the float32 tensor ``x`` to ``dtype`` must give, as ``values`` has it."""
    if dtype == "bool":
        return (x != 0).double()
    if dtype in ("int4", "uint4"):
        low, high = (-8, 7) if dtype == "int4" else (0, 15)
        return x.double().nan_to_num(0.0).trunc().clamp(low, high)
    if dtype.startswith(("int", "uint")):
        return x.double().trunc().to(torch.int64 if "64" in dtype else torch.float64)
    if dtype == "float4_e2m1fn":
        return _nearest_fp4(x.double())
    if dtype == "float8_e4m3fn":
        x = x.clamp(-448, 448)
    if dtype == "float8_e5m2":
        x = x.clamp(-57344, 57344)
    return values(x.to(storage(dtype)), dtype)


def _nearest_fp4(x: torch.Tensor) -> torch.Tensor:
    """By search: the nearest value, the one with the even code where two are as near."""
    positive = FP4[:8]
    distance = (x.nan_to_num(6.0).abs().clamp(max=6.0)[..., None] - positive).abs()
    nearest = distance == distance.amin(-1, keepdim=True)
    code = torch.where(nearest, torch.arange(8) % 2, 2).argmin(-1)
    return torch.where(x.isnan(), 6.0, torch.copysign(positive[code], x))
