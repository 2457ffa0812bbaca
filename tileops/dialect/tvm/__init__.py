"""What programs use of TVM: dtypes, targets, and scalar expressions under ``tirx``.

It is the language of tileops under TVM's names. tileops is not built on TVM: every other name is
an error that says so.
"""

from __future__ import annotations

from tileops.dialect.tvm import target, tirx
from tileops.dialect.tvm.absent import absent
from tileops.dialect.tvm.target import Target
from tileops.language import dtype as DataType

tir = tirx
PrimExpr = tirx.PrimExpr

__all__ = ["DataType", "PrimExpr", "Target", "target", "tir", "tirx"]


def __getattr__(name: str) -> object:
    raise absent("tvm", name)
