"""One whole program on one set of inputs, and the error analysis that its bound is made of.

``U_SUM`` counts a float32 addition on any executor: tensor cores may truncate where they align addends. Operands of
a float32 matrix product are TF32 on CUDA: 10 bits kept, at most 2^-10 lost when they are cut off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

U_SUM = 2.0**-22
U_TF32 = 2.0**-10
UNIT = {
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
    torch.float32: 2.0**-24,
    torch.float8_e4m3fn: 2.0**-4,
    torch.float8_e5m2: 2.0**-3,
}
TINY = {
    torch.float16: 2.0**-25,
    torch.bfloat16: 2.0**-134,
    torch.float32: 2.0**-150,
    torch.float8_e4m3fn: 2.0**-10,
    torch.float8_e5m2: 2.0**-17,
}
Bounded = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class FamilyCase:
    """``reference`` gives (float64 value, bound) for each output, then for each argument in ``mutated``.

    ``without`` names the executors (cpu, interpreter, sm_90, gpu) that cannot run it, each with the reason.
    """

    id: str
    impl: Any
    inputs: Callable[[], tuple[Any, ...]]
    reference: Callable[..., list[Bounded]]
    options: dict[str, Any] = field(default_factory=dict)
    mutated: tuple[int, ...] = ()
    without: dict[str, str] = field(default_factory=dict)

    def check(self, before: tuple[Any, ...], inputs: tuple[Any, ...], out: Any) -> None:
        """Assert that all outputs of a run on ``inputs``, which were ``before``, are within their bounds."""
        host = [x.cpu() if isinstance(x, torch.Tensor) else x for x in before]
        outs = [] if out is None else [out] if isinstance(out, torch.Tensor) else list(out)
        outs += [inputs[n] for n in self.mutated]
        expected = self.reference(*host)
        assert len(outs) == len(expected), f"{self.id}: {len(outs)} results"
        for number, (got, (value, bound)) in enumerate(zip(outs, expected, strict=True)):
            self._compare(number, got.cpu().double(), value.double(), bound)

    def _compare(
        self, number: int, got: torch.Tensor, value: torch.Tensor, bound: torch.Tensor
    ) -> None:
        assert got.shape == value.shape, f"{self.id}[{number}]: {got.shape} != {value.shape}"
        wrong = ~((got - value).abs() <= bound)
        if wrong.any():
            at = int(wrong.flatten().nonzero()[0])
            raise AssertionError(
                f"{self.id}[{number}]: {int(wrong.sum())} of {got.numel()} outside the bound; first at {at}: "
                f"got {got.flatten()[at]:.8g}, expected {value.flatten()[at]:.8g} "
                f"+- {bound.expand_as(value).flatten()[at]:.3g}"
            )


def copies(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs with each tensor cloned: what a program that writes its arguments starts from."""
    return tuple(x.clone() if isinstance(x, torch.Tensor) else x for x in inputs)


def bits(values: Any) -> list[Any]:
    """All tensors as their bytes, so that NaN equals itself and 0.0 is not -0.0."""
    many = [values] if isinstance(values, torch.Tensor) or values is None else values
    return [
        x.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        if isinstance(x, torch.Tensor)
        else x
        for x in many
    ]


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype)


def randint(low: int, high: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.randint(low, high, shape).to(dtype)


def exact(value: torch.Tensor) -> Bounded:
    return value.double(), torch.zeros(value.shape, dtype=torch.float64)


def product(a: torch.Tensor, b: torch.Tensor, lost: float = 0.0) -> Bounded:
    """``a @ b`` with the bound of a float32 sum whose operands each lose ``lost`` relatively."""
    a64, b64 = a.double(), b.double()
    return a64 @ b64, ((a.shape[-1] + 2) * U_SUM + 2 * lost + lost * lost) * (a64.abs() @ b64.abs())


def rounded(result: Bounded, dtype: torch.dtype) -> Bounded:
    """One rounding of the result to ``dtype`` on top."""
    value, bound = result
    return value, bound + UNIT[dtype] * (value.abs() + bound) + TINY[dtype]
