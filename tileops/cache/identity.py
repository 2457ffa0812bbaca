"""The identity of a program: its key without the toolchain, which needs no compiler to compute.

Entries of one identity hold the same program for the same target, made by the same generator; only
the compiler that made their machine code may differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from tileops.cache.key import FIELDS as KEY_FIELDS
from tileops.cache.key import canonical

FIELDS = tuple(name for name in KEY_FIELDS if name != "toolchain")


def identity(fields: Mapping[str, str]) -> str:
    """SHA-256 of the canonical JSON of ``FIELDS``: 64 hexadecimal digits.

    ``fields`` are texts as in ``Key.fields``; others than ``FIELDS`` do not count. KeyError if one
    is missing.
    """
    return hashlib.sha256(canonical({name: fields[name] for name in FIELDS}).encode()).hexdigest()
