"""The example programs as cases: inputs, the float64 result, and how far from it a correct program may be.

Bounds are forward error bounds (Higham, "Accuracy and Stability of Numerical Algorithms", chapters 3 and 4):
a sum of n products in float32 is off by at most n * u32 * sum(|a b|). Tensor cores may truncate instead of
rounding when they align addends, so sums count ``U_SUM`` = 2^-22, four times float32's unit roundoff 2^-24.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from examples import elementwise_add, flash_attention, matmul, rms_norm, softmax, split_k

U_SUM = 2.0**-22
UNIT = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}
# Half the smallest subnormal: what rounding to the dtype can add near zero.
TINY = {torch.float16: 2.0**-25, torch.bfloat16: 2.0**-134, torch.float32: 2.0**-150}

Reference = Callable[..., tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Case:
    """One program on one set of inputs. ``reference`` gives the float64 result and the error bound."""

    id: str
    eager: Any
    lazy: Callable[[], Any]
    inputs: Callable[[], tuple[Any, ...]]
    reference: Reference
    options: dict[str, Any] = field(default_factory=dict)

    def check(self, inputs: tuple[Any, ...], out: torch.Tensor) -> None:
        """Assert that ``out`` is within the bound, elementwise."""
        host = [x.cpu() if isinstance(x, torch.Tensor) else x for x in inputs]
        expected, bound = self.reference(*host)
        got = out.cpu().double()
        assert got.shape == expected.shape, (
            f"{self.id}: shape {tuple(got.shape)} != {tuple(expected.shape)}"
        )
        if not got.numel():
            return
        assert torch.isfinite(got).all(), (
            f"{self.id}: {int((~torch.isfinite(got)).sum())} values not finite"
        )
        excess = (got - expected).abs() - bound
        worst = int(excess.argmax())
        assert excess.max() <= 0, (
            f"{self.id}: {int((excess > 0).sum())} of {got.numel()} elements outside the bound; worst at "
            f"{worst}: got {got.flatten()[worst]:.8g}, expected {expected.flatten()[worst]:.8g} "
            f"+- {bound.flatten()[worst]:.3g}"
        )


def _randn(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float32).to(dtype)


def product(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``a @ b`` in float64 with the bound of a float32 sum."""
    a64, b64 = a.double(), b.double()
    return a64 @ b64, (a.shape[1] + 2) * U_SUM * (a64.abs() @ b64.abs())


def rounded(value: torch.Tensor, bound: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """``bound`` plus one rounding of the result to ``dtype``."""
    return bound + UNIT[dtype] * (value.abs() + bound) + TINY[dtype]


def matmul_relu_reference(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    value, bound = product(a, b)
    value = value.relu()
    return value, rounded(value, bound, a.dtype)


def matmul_reference(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    value, bound = product(a, b)
    return value, rounded(value, bound, a.dtype)


def split_k_reference(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    value, bound = product(a, b)
    return value, rounded(value, bound, torch.float32)


def add_reference(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    value = a.double() + b.double()
    return value, rounded(value, torch.zeros_like(value), torch.float32)


def rms_norm_reference(
    x: torch.Tensor, w: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    x64 = x.double()
    scale = torch.rsqrt(x64.square().mean(-1, keepdim=True) + eps)
    value = x64 * scale * w.double()
    # The sum's relative error halves under rsqrt; rsqrt itself is within 2 ulp, then two products.
    bound = value.abs() * ((x.shape[-1] + 2) * U_SUM / 2 + 8 * UNIT[torch.float32])
    return value, rounded(value, bound, x.dtype)


def softmax_reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    value = x.double().softmax(-1)
    # exp2 of an argument t known to |t| * 2u32 is off by ln 2 * |t| * 2u32 relatively, plus 2 ulp of exp2.
    reach = (x.double().amax(-1, keepdim=True) - x.double()).amax(-1, keepdim=True) * 1.4427
    size = x.double().abs().amax(-1, keepdim=True) * 1.4427
    relative = 4 * (reach + size + 2) * UNIT[torch.float32] + (x.shape[-1] + 8) * U_SUM
    return value, rounded(value, value * relative, torch.float32)


def attention_reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, is_causal: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    q64, k64, v64 = q.double(), k.double(), v.double()
    length, dim = q.shape[-2], q.shape[-1]
    scores = q64 @ k64.transpose(-1, -2) * dim**-0.5
    if is_causal:
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    weights = scores.softmax(-1)
    value = weights @ v64
    spread = weights @ v64.abs()
    # A score is off by (dim + 2) * U_SUM * |q||k| * scale, which exp turns into a relative error of the weight;
    # each weight is then rounded to the inputs' dtype (u, and half a subnormal of it) and summed.
    score_error = (
        (dim + 2)
        * U_SUM
        * (q64.abs() @ k64.abs().transpose(-1, -2)).amax(-1, keepdim=True)
        * dim**-0.5
    )
    exp_error = (
        8
        * UNIT[torch.float32]
        * (scores.masked_fill(scores.isinf(), 0).abs().amax(-1, keepdim=True) + 2)
    )
    relative = 2 * (score_error + exp_error) + UNIT[q.dtype] + 2 * (length + 2) * U_SUM
    floor = TINY[q.dtype] * v64.abs().sum(-2, keepdim=True)
    return value, rounded(value, spread * relative + floor, q.dtype)


def _matmul_cases() -> Iterator[Case]:
    for m, n, k in ((1, 1, 1), (64, 64, 32), (130, 70, 33), (200, 96, 256)):
        yield Case(
            f"matmul_relu-{m}x{n}x{k}",
            matmul.matmul_relu,
            lambda m=m, n=n, k=k: matmul.matmul_relu_lazy(m, n, k),
            lambda m=m, n=n, k=k: (_randn(m, k), _randn(k, n)),
            matmul_relu_reference,
        )
    for m, n, k in ((1, 1, 1), (17, 129, 40), (128, 64, 96)):
        yield Case(
            f"matmul_dynamic-{m}x{n}x{k}",
            matmul.matmul_dynamic,
            lambda: matmul.matmul_dynamic_lazy(),
            lambda m=m, n=n, k=k: (_randn(m, k), _randn(k, n)),
            matmul_reference,
        )
    for m, n, k in ((65, 31, 300), (128, 128, 512)):
        yield Case(
            f"split_k-{m}x{n}x{k}",
            split_k.matmul_split_k,
            lambda m=m, n=n, k=k: split_k.matmul_split_k_lazy(m, n, k),
            lambda m=m, n=n, k=k: (_randn(m, k), _randn(k, n)),
            split_k_reference,
        )


def _row_cases() -> Iterator[Case]:
    for n in (1, 7, 1_000_003):
        yield Case(
            f"add-{n}",
            elementwise_add.add,
            lambda n=n: elementwise_add.add_lazy(n),
            lambda n=n: (torch.randn(n), torch.randn(n)),
            add_reference,
        )
    for n in (1, 768, 1000, 5120):
        yield Case(
            f"rms_norm-{n}",
            rms_norm.rms_norm,
            lambda n=n: rms_norm.rms_norm_lazy(n),
            lambda n=n: (_randn(5, n, dtype=torch.bfloat16), _randn(n, dtype=torch.bfloat16), 1e-5),
            rms_norm_reference,
        )
    for m, n in ((3, 1), (2, 1000), (3, 2049)):
        yield Case(
            f"softmax-{m}x{n}",
            softmax.softmax,
            lambda m=m, n=n: softmax.softmax_lazy(m, n),
            lambda m=m, n=n: (torch.randn(m, n) * 4 - 30,),
            softmax_reference,
        )


def _attention_cases() -> Iterator[Case]:
    for length in (1, 77, 128, 200, 1024):
        for dim in (64, 128):
            for dtype in ("float16", "bfloat16"):
                for causal in (False, True):
                    yield _attention_case(length, dim, dtype, causal)


def _attention_case(length: int, dim: int, dtype: str, causal: bool) -> Case:
    heads = 1 if length > 500 else 2
    shape = (1, heads, length, dim)
    torch_dtype = getattr(torch, dtype)
    return Case(
        f"attention-{length}x{dim}-{dtype}{'-causal' if causal else ''}",
        flash_attention.attention,
        lambda: flash_attention.attention_lazy(*shape, is_causal=causal, dtype=dtype),
        lambda: tuple(_randn(*shape, dtype=torch_dtype) for _ in range(3)),
        lambda q, k, v: attention_reference(q, k, v, is_causal=causal),
        {"is_causal": causal, "dtype": dtype},
    )


MATMUL_CASES = tuple(_matmul_cases())
ROW_CASES = tuple(_row_cases())
ATTENTION_CASES = tuple(_attention_cases())
CASES = MATMUL_CASES + ROW_CASES + ATTENTION_CASES
# One case a program: enough where what is tested does not depend on the sizes.
SHORT_CASES = tuple(
    c
    for c in CASES
    if c.id
    in {
        "matmul_relu-130x70x33",
        "matmul_dynamic-17x129x40",
        "split_k-65x31x300",
        "add-7",
        "rms_norm-1000",
        "softmax-3x2049",
        "attention-77x64-float16-causal",
        "attention-200x128-bfloat16",
    }
)
