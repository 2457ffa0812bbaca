"""Owns the small device functions that generated kernels call, as text."""

from __future__ import annotations

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
