"""The 8-bit float types by the short names of their formats."""

from __future__ import annotations

from tileops.errors import ArgumentError
from tileops.language.value import dtype

_FORMATS = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}


def determine_fp8_type(fp8_format: str = "e4m3") -> dtype:
    """The 8-bit float type of a format, ``e4m3`` or ``e5m2``; ArgumentError for another."""
    if fp8_format not in _FORMATS:
        raise ArgumentError(
            f"unknown fp8 format {fp8_format!r}; expected {' or '.join(map(repr, _FORMATS))}"
        )
    return dtype(_FORMATS[fp8_format])


def determine_torch_fp8_type(fp8_format: str = "e4m3") -> object:
    """The torch dtype of a format, ``e4m3`` or ``e5m2``; ArgumentError for another."""
    return determine_fp8_type(fp8_format).as_torch()
