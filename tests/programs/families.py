"""All whole programs by family: one list that every executor's tests walk."""

from __future__ import annotations

from tests.programs import (
    attention,
    decode,
    explicit,
    gemm,
    native_sparse,
    norms,
    packed,
    quantized,
    recurrent,
    rowwise,
)
from tests.programs.family_case import FamilyCase

FAMILIES: tuple[FamilyCase, ...] = (
    *gemm.CASES,
    *attention.CASES,
    *decode.CASES,
    *quantized.CASES,
    *packed.CASES,
    *native_sparse.CASES,
    *recurrent.CASES,
    *rowwise.CASES,
    *norms.CASES,
    *explicit.CASES,
)


def runnable(executor: str) -> list[FamilyCase]:
    """The cases that ``executor`` (cpu, interpreter, sm_90 or gpu) can run."""
    return [c for c in FAMILIES if executor not in c.without]
