"""The small device functions that generated kernels call, as text."""

from __future__ import annotations

from tileops.codegen.triton.nibbles import conversion
from tileops.codegen.triton.quotients import shared_quotient


def _byte_of(largest: float, *, mantissa: int, bias: int) -> str:
    """The rounding of a float32 to a sign, an exponent and ``mantissa`` bits, in integers."""
    shift = 23 - mantissa
    # Added to a float32, this leaves multiples of the smallest subnormal, rounded by the addition.
    magic = 2.0 ** (23 + 1 - bias - mantissa)
    magic_bits = (24 - bias - mantissa + 127) << 23
    half = (1 << (shift - 1)) - 1
    return f"""sign = (value.to(tl.uint32, bitcast=True) >> 24) & 128
    size = tl.minimum(tl.abs(value), {largest})
    wide = size.to(tl.uint32, bitcast=True)
    normal = ((wide + {half} + ((wide >> {shift}) & 1)) >> {shift}) - {(127 - bias) << mantissa}
    small = (size + {magic}).to(tl.uint32, bitcast=True) - {magic_bits}
    code = tl.where(size < {2.0 ** (1 - bias)!r}, small, normal)
    code = tl.where(value == value, code, 127)
    return (sign | code).to(tl.uint8)"""


def _first(name: str, size: str, better: str) -> str:
    return f'''def _first_{name}(a, i, b, j):
    """The {size} of two elements, with its place: a number before NaN, the first of equals."""
    equal = (a == b) | ((a != a) & (b != b))
    second = (b {better} a) | ((a != a) & (b == b)) | (equal & (j < i))
    return tl.where(second, b, a), tl.where(second, j, i)'''


def _update(name: str, op: str, other: str) -> str:
    # Two atomics, one for each sign: the bits of negative floats are in reverse order.
    return f'''def _update_{op}(\
place, bits, mask, word: tl.constexpr, sem: tl.constexpr, scope: tl.constexpr):
    """Atomic {name} of floats given by their bits; the bits before it."""
    unsigned = place.to(tl.pointer_type(word), bitcast=True)
    above = tl.atomic_{op}(place, bits, mask=mask & (bits >= 0), sem=sem, scope=scope)
    pattern = bits.to(word, bitcast=True)
    below = tl.atomic_{other}(unsigned, pattern, mask=mask & (bits < 0), sem=sem, scope=scope)
    return tl.where(bits >= 0, above, below.to(bits.dtype, bitcast=True))'''


def _extreme(name: str, op: str, stuck: str) -> str:
    return f'''def _atomic_{op}(address, value, mask, nothing: tl.constexpr, \
whole: tl.constexpr, word: tl.constexpr, sem: tl.constexpr, scope: tl.constexpr):
    """Atomic {name} that prefers a number to NaN; the value before it."""
    place = address.to(tl.pointer_type(whole), bitcast=True)
    bits = tl.where(value == value, value.to(whole, bitcast=True), nothing).to(whole)
    before = _update_{op}(place, bits, mask, word, sem, scope)
    old = before.to(value.dtype, bitcast=True)
    # A NaN of the other sign in memory stops every number: ours takes its place, and
    # what was put there meanwhile is put back.
    stuck = mask & (old != old) & (before {stuck} 0)
    swapped = tl.atomic_xchg(place, bits, mask=stuck, sem=sem, scope=scope)
    found = swapped.to(value.dtype, bitcast=True)
    _update_{op}(place, swapped, stuck & (found == found), word, sem, scope)
    return old'''


# Triton 3.6 gives the extreme of bfloat16 in float32, which a reduction refuses.
_FUNCTIONS = f'''
def _floordiv(a, b):
    """Division rounded towards minus infinity."""
    q = a // b
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), q - 1, q)

def _floormod(a, b):
    """Remainder with the sign of the divisor."""
    r = a % b
    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)

def _ceildiv(a, b):
    """Division rounded towards plus infinity."""
    q = a // b
    return tl.where((a % b != 0) & ((a < 0) == (b < 0)), q + 1, q)

def _truncdiv_by_any(a, b):
    """Division rounded towards zero; by 0, all bits are set."""
    divisor = tl.where((b == 0) | (b == -1), 1, b).to(b.dtype)
    q = tl.where(b == -1, 0 - a, a // divisor)
    return tl.where(b == 0, ~b, q).to(a.dtype)

def _truncmod_by_any(a, b):
    """Remainder with the sign of the dividend; of a division by 0, the dividend."""
    divisor = tl.where((b == 0) | (b == -1), 1, b).to(b.dtype)
    return tl.where(b == 0, a, a % divisor).to(a.dtype)

def _floordiv_by_any(a, b):
    """Division rounded towards minus infinity; by 0, all bits are set."""
    divisor = tl.where((b == 0) | (b == -1), 1, b).to(b.dtype)
    q = tl.where(b == -1, 0 - a, a // divisor)
    q = tl.where((a % divisor != 0) & ((a < 0) != (b < 0)), q - 1, q)
    return tl.where(b == 0, ~b, q).to(a.dtype)

def _ceildiv_by_any(a, b):
    """Division rounded towards plus infinity; by 0, all bits are set."""
    divisor = tl.where((b == 0) | (b == -1), 1, b).to(b.dtype)
    q = tl.where(b == -1, 0 - a, a // divisor)
    q = tl.where((a % divisor != 0) & ((a < 0) == (b < 0)), q + 1, q)
    return tl.where(b == 0, ~b, q).to(a.dtype)

def _floormod_by_any(a, b):
    """Remainder with the sign of the divisor; of a division by 0, the dividend."""
    divisor = tl.where((b == 0) | (b == -1), 1, b).to(b.dtype)
    r = a % divisor
    r = tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)
    return tl.where(b == 0, a, r).to(a.dtype)

def _unsigned_div_by_any(a, b):
    """Quotient of unsigned integers; by 0, all bits are set."""
    divisor = tl.where(b == 0, 1, b).to(b.dtype)
    return tl.where(b == 0, ~b, a // divisor).to(a.dtype)

def _unsigned_mod_by_any(a, b):
    """Remainder of unsigned integers; of a division by 0, the dividend."""
    divisor = tl.where(b == 0, 1, b).to(b.dtype)
    return tl.where(b == 0, a, a % divisor).to(a.dtype)

def _unsigned_ceildiv_by_any(a, b):
    """Division of unsigned integers, rounded up; by 0, all bits are set."""
    divisor = tl.where(b == 0, 1, b).to(b.dtype)
    q = a // divisor + tl.where(a % divisor != 0, 1, 0)
    return tl.where(b == 0, ~b, q).to(a.dtype)

def _floormod_of_floats(a, b):
    """Remainder of floats with the sign of the divisor."""
    r = libdevice.fmod(a, b)
    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)

def _shl(a, count):
    """Left shift by any count: 0 where none of the bits is left."""
    is_inside = (count >= 0) & (count < a.dtype.primitive_bitwidth)
    return tl.where(is_inside, a << count, 0).to(a.dtype)

def _shr(a, count):
    """Right shift of a signed integer by any count: its sign where none of the bits is left."""
    is_inside = (count >= 0) & (count < a.dtype.primitive_bitwidth)
    return a >> tl.where(is_inside, count, a.dtype.primitive_bitwidth - 1)

def _unsigned_shr(a, count):
    """Right shift of an unsigned integer by any count: 0 where none of the bits is left."""
    is_inside = (count >= 0) & (count < a.dtype.primitive_bitwidth)
    return tl.where(is_inside, a >> count, 0).to(a.dtype)

def _nan_max(a, b):
    """Maximum that is NaN where an operand is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL).to(a.dtype)

def _nan_min(a, b):
    """Minimum that is NaN where an operand is."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL).to(a.dtype)

{_first("largest", "larger", ">")}

{_first("least", "smaller", "<")}

{_update("maximum", "max", "min")}

{_update("minimum", "min", "max")}

{_extreme("maximum", "max", ">=")}

{_extreme("minimum", "min", "<")}

def _odd(exact, cut):
    """A float32 cut towards zero, with the last bit set where that lost anything."""
    bits = cut.to(tl.int32, bitcast=True)
    odd = tl.where(cut.to(exact.dtype) == exact, bits, bits | 1)
    return odd.to(tl.float32, bitcast=True)

def _with_subnormals(exact, odd):
    """A float64 as float32 rounded to odd, given what it is where that is normal."""
    size = tl.abs(exact)
    is_tiny = size < 2.0**-126
    steps = tl.where(is_tiny, size * 2.0**149, 0.0)
    bits = steps.to(tl.int32)
    bits = tl.where(bits.to(tl.float64) == steps, bits, bits | 1)
    sign = odd.to(tl.int32, bitcast=True) & -2147483648
    tiny = (bits | sign).to(tl.float32, bitcast=True)
    return tl.where(is_tiny, tiny, odd)

def _odd_float16(exact):
    """A float32 as float16 rounded to odd."""
    cut = exact.to(tl.float16, fp_downcast_rounding="rtz")
    bits = cut.to(tl.uint16, bitcast=True)
    bits = tl.where(cut.to(tl.float32) == exact, bits, bits | 1)
    return bits.to(tl.uint16).to(tl.float16, bitcast=True)

def _signed_odd_float64(x):
    """An int64 as float64 rounded to odd."""
    is_small = (x < 4503599627370496) & (x > -4503599627370496)
    cut = (x >> 11) | ((x & 2047) != 0).to(tl.int64)
    return tl.where(is_small, x.to(tl.float64), cut.to(tl.float64) * 2048.0)

def _unsigned_odd_float64(x):
    """A uint64 as float64 rounded to odd."""
    cut = (x >> 11) | ((x & 2047) != 0).to(tl.uint64)
    is_small = x < 4503599627370496
    return tl.where(is_small, x.to(tl.float64), cut.to(tl.float64) * 2048.0)

def _odd_float32(exact):
    """A float64 as float32 rounded to odd."""
    near = exact.to(tl.float32)
    back = near.to(tl.float64)
    bits = near.to(tl.int32, bitcast=True)
    bits = tl.where(tl.abs(back) > tl.abs(exact), bits - 1, bits)
    return tl.where(back == exact, bits, bits | 1).to(tl.float32, bitcast=True)

def _larger(a, b):
    """Maximum of two values."""
    return tl.maximum(a, b).to(a.dtype)

def _smaller(a, b):
    """Minimum of two values."""
    return tl.minimum(a, b).to(a.dtype)

def _add(a, b):
    """Sum of two values."""
    return a + b

def _bit_and(a, b):
    """Bitwise and."""
    return a & b

def _bit_or(a, b):
    """Bitwise or."""
    return a | b

def _e4m3_value(bits):
    """The float32 that a byte of e4m3 stands for."""
    wide = bits.to(tl.uint16)
    # The exponent's bias is 8 less than that of float16.
    half = ((wide & 128) << 8) | ((wide & 127) << 7)
    value = half.to(tl.float16, bitcast=True).to(tl.float32) * 256.0
    return tl.where((wide & 127) == 127, float("nan"), value)

def _e4m3_bits(value):
    """The byte of e4m3 nearest to a float32, ties to even, the largest one beyond the range."""
    {_byte_of(448.0, mantissa=3, bias=7)}

def _e5m2_value(bits):
    """The float32 that a byte of e5m2 stands for."""
    return (bits.to(tl.uint16) << 8).to(tl.float16, bitcast=True).to(tl.float32)

def _e5m2_bits(value):
    """The byte of e5m2 nearest to a float32, ties to even, the largest one beyond the range."""
    {_byte_of(57344.0, mantissa=2, bias=15)}

def _e5m2_chosen(value):
    """A float32 that holds a value of e5m2, infinities included, as one."""
    half = value.to(tl.float16).to(tl.uint16, bitcast=True)
    return (half >> 8).to(tl.uint8).to(tl.float8e5, bitcast=True)

def _bit_xor(a, b):
    """Bitwise exclusive or."""
    return a ^ b

{shared_quotient()}

{conversion("float16")}

{conversion("bfloat16")}
'''


def function_lines(used: set[str]) -> list[str]:
    """The lines of the functions named in ``used``, in a fixed order."""
    lines: list[str] = []
    for function in _FUNCTIONS.strip().split("\n\n"):
        name = function[len("def _") : function.index("(")]
        if name in used:
            lines += ["", "", "@triton.jit", *function.split("\n")]
    return lines
