"""One case for each form of a call, from the records of the operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tileops.ops.info import Form, OpInfo, infos

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Case:
    """A call of an operator, and the same in torch operations that take any float dtype."""

    info: OpInfo
    form: Form

    def call(self, *tensors: torch.Tensor) -> Any:
        args, options = self.form.bind(tensors)
        return self.info.call(*args, **options)

    def eager(self, *tensors: torch.Tensor) -> Any:
        args, options = self.form.bind(tensors)
        return self.info.eager(*args, **options)

    def exact(self, *tensors: torch.Tensor) -> Any:
        return self.info.exact(self.form, tensors)

    def inputs(self, rows: int, columns: int, dtype: torch.dtype, device: str) -> Tensors:
        return self.form.inputs(rows, columns, dtype, device)

    def __str__(self) -> str:
        return f"{self.info.name}-{self.form.name}"


CASES = tuple(Case(info, form) for info in infos() for form in info.forms)
PLAIN = tuple(case for case in CASES if case.form is case.info.forms[0])
TRAINED = tuple(case for case in CASES if case.info.has_gradients)
SERVED = tuple(case for case in PLAIN if not case.info.has_gradients)
# Operators whose rows have several programs.
_OTHERS = (
    "attention", "gelu_mul", "grouped_mm", "int4_linear", "linear", "qk_norm_rope", "rope",
    "scaled_mm", "silu_mul", "silu_mul_quant",
    "varlen_attention",
)  # fmt: skip
OF_ROWS = tuple(c for c in CASES if c.info.name not in _OTHERS)
