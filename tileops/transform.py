"""Owns the import path ``tileops.transform.PassConfigKey``, under which programs name the keys."""

from __future__ import annotations

from tileops.jit import PassConfigKey

__all__ = ["PassConfigKey"]
