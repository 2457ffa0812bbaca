"""The peer kernel of the host suite: the same addition as a Triton kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def _add(a, b, c, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(c + at, tl.load(a + at, mask=inside) + tl.load(b + at, mask=inside), mask=inside)


def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``a + b`` for vectors of one length, through Triton's launcher."""
    c = torch.empty_like(a)
    _add[(triton.cdiv(a.numel(), 1024),)](a, b, c, a.numel(), BLOCK=1024)
    return c
