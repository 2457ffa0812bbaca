"""Owns the small device functions that generated kernels call, as text."""

from __future__ import annotations


def _byte_of(largest: float, *, mantissa: int, bias: int) -> list[str]:
    """The rounding of a float32 to a sign, an exponent and ``mantissa`` bits, in integers."""
    shift = 23 - mantissa
    # Added to a float32, this leaves multiples of the smallest subnormal, rounded by the addition.
    magic = 2.0 ** (23 + 1 - bias - mantissa)
    magic_bits = (24 - bias - mantissa + 127) << 23
    half = (1 << (shift - 1)) - 1
    return [
        "sign = (value.to(tl.uint32, bitcast=True) >> 24) & 128",
        f"size = tl.minimum(tl.abs(value), {largest})",
        "wide = size.to(tl.uint32, bitcast=True)",
        f"normal = ((wide + {half} + ((wide >> {shift}) & 1)) >> {shift}) - "
        f"{(127 - bias) << mantissa}",
        f"small = (size + {magic}).to(tl.uint32, bitcast=True) - {magic_bits}",
        f"code = tl.where(size < {2.0 ** (1 - bias)!r}, small, normal)",
        "code = tl.where(value == value, code, 127)",
        "return (sign | code).to(tl.uint8)",
    ]


_IS_INSIDE = "is_inside = (count >= 0) & (count < a.dtype.primitive_bitwidth)"

_DIVISOR = "divisor = tl.where((b == 0) | (b == -1), 1, b).to(b.dtype)"
_UNSIGNED_DIVISOR = "divisor = tl.where(b == 0, 1, b).to(b.dtype)"
_QUOTIENT = "q = tl.where(b == -1, 0 - a, a // divisor)"
_BY_ZERO = "; by 0, all bits are set."
_OF_ZERO = "; of a division by 0, the dividend."

# Triton 3.6 gives the extreme of bfloat16 in float32, which a reduction refuses.
_BODIES = {
    "floordiv": (
        "a, b",
        "Division rounded towards minus infinity.",
        ["q = a // b", "return tl.where((a % b != 0) & ((a < 0) != (b < 0)), q - 1, q)"],
    ),
    "floormod": (
        "a, b",
        "Remainder with the sign of the divisor.",
        ["r = a % b", "return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)"],
    ),
    "ceildiv": (
        "a, b",
        "Division rounded towards plus infinity.",
        ["q = a // b", "return tl.where((a % b != 0) & ((a < 0) == (b < 0)), q + 1, q)"],
    ),
    "truncdiv_by_any": (
        "a, b",
        f"Division rounded towards zero{_BY_ZERO}",
        [_DIVISOR, _QUOTIENT, "return tl.where(b == 0, ~b, q).to(a.dtype)"],
    ),
    "truncmod_by_any": (
        "a, b",
        f"Remainder with the sign of the dividend{_OF_ZERO}",
        [_DIVISOR, "return tl.where(b == 0, a, a % divisor).to(a.dtype)"],
    ),
    "floordiv_by_any": (
        "a, b",
        f"Division rounded towards minus infinity{_BY_ZERO}",
        [
            _DIVISOR,
            _QUOTIENT,
            "q = tl.where((a % divisor != 0) & ((a < 0) != (b < 0)), q - 1, q)",
            "return tl.where(b == 0, ~b, q).to(a.dtype)",
        ],
    ),
    "ceildiv_by_any": (
        "a, b",
        f"Division rounded towards plus infinity{_BY_ZERO}",
        [
            _DIVISOR,
            _QUOTIENT,
            "q = tl.where((a % divisor != 0) & ((a < 0) == (b < 0)), q + 1, q)",
            "return tl.where(b == 0, ~b, q).to(a.dtype)",
        ],
    ),
    "floormod_by_any": (
        "a, b",
        f"Remainder with the sign of the divisor{_OF_ZERO}",
        [
            _DIVISOR,
            "r = a % divisor",
            "r = tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)",
            "return tl.where(b == 0, a, r).to(a.dtype)",
        ],
    ),
    "unsigned_div_by_any": (
        "a, b",
        f"Quotient of unsigned integers{_BY_ZERO}",
        [_UNSIGNED_DIVISOR, "return tl.where(b == 0, ~b, a // divisor).to(a.dtype)"],
    ),
    "unsigned_mod_by_any": (
        "a, b",
        f"Remainder of unsigned integers{_OF_ZERO}",
        [_UNSIGNED_DIVISOR, "return tl.where(b == 0, a, a % divisor).to(a.dtype)"],
    ),
    "unsigned_ceildiv_by_any": (
        "a, b",
        f"Division of unsigned integers, rounded up{_BY_ZERO}",
        [
            _UNSIGNED_DIVISOR,
            "q = a // divisor + tl.where(a % divisor != 0, 1, 0)",
            "return tl.where(b == 0, ~b, q).to(a.dtype)",
        ],
    ),
    "floormod_of_floats": (
        "a, b",
        "Remainder of floats with the sign of the divisor.",
        [
            "r = libdevice.fmod(a, b)",
            "return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)",
        ],
    ),
    "shl": (
        "a, count",
        "Left shift by any count: 0 where none of the bits is left.",
        [_IS_INSIDE, "return tl.where(is_inside, a << count, 0).to(a.dtype)"],
    ),
    "shr": (
        "a, count",
        "Right shift of a signed integer by any count: its sign where none of the bits is left.",
        [_IS_INSIDE, "return a >> tl.where(is_inside, count, a.dtype.primitive_bitwidth - 1)"],
    ),
    "unsigned_shr": (
        "a, count",
        "Right shift of an unsigned integer by any count: 0 where none of the bits is left.",
        [_IS_INSIDE, "return tl.where(is_inside, a >> count, 0).to(a.dtype)"],
    ),
    "nan_max": (
        "a, b",
        "Maximum that is NaN where an operand is.",
        ["return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL).to(a.dtype)"],
    ),
    "nan_min": (
        "a, b",
        "Minimum that is NaN where an operand is.",
        ["return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL).to(a.dtype)"],
    ),
    "larger": ("a, b", "Maximum of two values.", ["return tl.maximum(a, b).to(a.dtype)"]),
    "add": ("a, b", "Sum of two values.", ["return a + b"]),
    "bit_and": ("a, b", "Bitwise and.", ["return a & b"]),
    "bit_or": ("a, b", "Bitwise or.", ["return a | b"]),
    "e4m3_value": (
        "bits",
        "The float32 that a byte of e4m3 stands for.",
        [
            "wide = bits.to(tl.uint16)",
            "# The exponent's bias is 8 less than that of float16.",
            "half = ((wide & 128) << 8) | ((wide & 127) << 7)",
            "value = half.to(tl.float16, bitcast=True).to(tl.float32) * 256.0",
            'return tl.where((wide & 127) == 127, float("nan"), value)',
        ],
    ),
    "e4m3_bits": (
        "value",
        "The byte of e4m3 nearest to a float32, ties to even, the largest one beyond the range.",
        _byte_of(448.0, mantissa=3, bias=7),
    ),
    "e5m2_value": (
        "bits",
        "The float32 that a byte of e5m2 stands for.",
        ["return (bits.to(tl.uint16) << 8).to(tl.float16, bitcast=True).to(tl.float32)"],
    ),
    "e5m2_bits": (
        "value",
        "The byte of e5m2 nearest to a float32, ties to even, the largest one beyond the range.",
        _byte_of(57344.0, mantissa=2, bias=15),
    ),
    "bit_xor": ("a, b", "Bitwise exclusive or.", ["return a ^ b"]),
}


def function_lines(used: set[str]) -> list[str]:
    """The lines of the helper functions named in ``used``, in a fixed order."""
    lines: list[str] = []
    for name, (args, doc, body) in _BODIES.items():
        if name not in used:
            continue
        lines += ["", "", "@triton.jit", f"def _{name}({args}):", f'    """{doc}"""']
        lines += [f"    {text}" for text in body]
    return lines
