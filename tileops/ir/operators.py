"""The operators and functions of expressions, by name."""

from __future__ import annotations

# Operators of Binary. Division: "div" is true division of floats; floordiv and floormod round
# towards minus infinity; ceildiv, of integers, towards plus infinity; truncdiv and truncmod towards
# zero (C). Comparisons and logic give bool.
INTEGER_DIVISIONS = ("floordiv", "floormod", "ceildiv", "truncdiv", "truncmod")
ARITHMETIC = ("add", "sub", "mul", "div", *INTEGER_DIVISIONS, "min", "max")
BITWISE = ("and", "or", "xor", "shl", "shr")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
LOGICAL = ("land", "lor")
BINARY_OPS = ARITHMETIC + BITWISE + COMPARISONS + LOGICAL
UNARY_OPS = ("neg", "not", "invert")

# Functions of Call; all take and return the dtype of their first argument unless said otherwise.
FLOAT_FUNCTIONS = (
    "abs", "exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "rsqrt",
    "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "atan2",
    "sigmoid", "erf", "pow", "floor", "ceil", "trunc", "nearbyint", "round", "fma", "copysign",
)  # fmt: skip
MATH_FUNCTIONS = (
    *FLOAT_FUNCTIONS,
    "isnan", "isinf", "isfinite",  # give bool
    "popcount", "clz",  # integers
    # rounded once as the name says: nearest even, to zero, up, down
    "add_rn", "add_rz", "add_ru", "add_rd", "sub_rn", "sub_rz", "sub_ru", "sub_rd",
    "mul_rn", "mul_rz", "mul_ru", "mul_rd", "div_rn", "div_rz", "div_ru", "div_rd",
    "fma_rn", "fma_rz", "fma_ru", "fma_rd", "sqrt_rn", "sqrt_rz", "sqrt_ru", "sqrt_rd", "rsqrt_rn",
    "reinterpret",  # bit cast to Call.dtype
    # made by passes: half of a byte (the low one if the second argument is even); the float32 that
    # an 8-bit float as a byte stands for, and back; a float64 or integer as float32 rounded to odd,
    # which then rounds to a narrower float as the number itself does
    "nibble", "e4m3_value", "e4m3_bits", "e5m2_value", "e5m2_bits", "odd_float32",
)  # fmt: skip

# How the text writes the operators that it puts between their operands.
SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "floormod": "%",
    "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "land": "and", "lor": "or",
}  # fmt: skip
