"""The import path ``tileops.transform.PassConfigKey``, which programs use."""

from __future__ import annotations

from tileops.jit import PassConfigKey

__all__ = ["PassConfigKey"]
