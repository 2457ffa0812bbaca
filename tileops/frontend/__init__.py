"""From a Python function to the tile IR: signature, rewrite, trace."""

from __future__ import annotations

from tileops.frontend.signature import ParamInfo, Signature, location_of_parameter, signature_of
from tileops.frontend.trace import (
    PrimFunc,
    check_specialised,
    for_interpreter,
    make_prim_func,
    trace,
    trace_prim_func,
    with_out_idx,
)

__all__ = [
    "ParamInfo",
    "PrimFunc",
    "Signature",
    "check_specialised",
    "for_interpreter",
    "location_of_parameter",
    "make_prim_func",
    "signature_of",
    "trace",
    "trace_prim_func",
    "with_out_idx",
]
