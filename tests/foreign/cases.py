"""The converted programs with inputs, their authors' own launches, and references in torch.

``program(*inputs)`` and ``theirs(*inputs)`` do the same: both return new tensors, or write the
inputs that ``writes`` names. ``reference`` is what the CPU runs; ``theirs`` is it where the kernel is
not Triton's, whose results are then exact.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.foreign import converted as c
from tests.foreign import converted_kernels as own
from tests.foreign import kernels

Tensors = tuple[Any, ...]
# Rows and columns: aligned, an odd number of rows, of columns, and single ones.
SHAPES = ((64, 128), (33, 128), (64, 84), (1, 64), (65, 1))


@dataclass(frozen=True)
class Case:
    """One conversion; ``inputs(rows, columns, device)`` are the arguments of a call."""

    program: Any
    inputs: Callable[[int, int, str], Tensors]
    reference: Callable[..., Any]
    launch: Callable[..., Any] | None = None
    keywords: dict[str, Any] = field(default_factory=dict)
    writes: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return str(self.program.__name__)

    @property
    def theirs(self) -> Callable[..., Any]:
        return self.launch or self.reference

    def named(self, inputs: Tensors) -> dict[str, Any]:
        """The inputs by the names of the program's parameters."""
        return dict(zip(inspect.signature(self.program).parameters, inputs, strict=False))

    def results(self, run: Callable[..., Any], inputs: Tensors, **keywords: Any) -> Tensors:
        """What ``run`` returns and writes, on copies of ``inputs``."""
        copies = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
        found = run(*copies, **keywords)
        found = found if isinstance(found, tuple) else () if found is None else (found,)
        return (*found, *(copies[n] for n in self.writes))


def normal(*shape: int, device: str, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.randn(*shape, device=device, dtype=torch.float32).to(dtype)


def small(*shape: int, device: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Integers, whose sums and products are exact."""
    return torch.randint(-8, 9, shape, device=device).to(dtype)


# -- norms -----------------------------------------------------------------------------------------
def rms_inputs(m: int, n: int, device: str) -> Tensors:
    return (*(normal(*s, device=device, dtype=torch.bfloat16) for s in ((m, n), (n,))), 1e-6)


def rms_reference(x: Any, w: Any, eps: float) -> Any:
    rstd = torch.rsqrt(x.float().square().mean(1) + eps)
    return (x * rstd[:, None]).to(x.dtype) * w, rstd


def rms_launch(x: Any, w: Any, eps: float) -> Any:
    (m, n), y = x.shape, torch.empty_like(x)
    rstd = torch.empty(m, device=x.device)
    block, warps = c.settings(n)
    c.norm._rms_norm_forward_kernel[(m,)](
        y, y.stride(0), x, x.stride(0), w, w.stride(0), rstd, rstd.stride(0), n, eps, 0.0, 0,
        elementwise_affine=True, BLOCK_SIZE=block, num_warps=warps,
    )  # fmt: skip
    return y, rstd


def rms_gradient_inputs(m: int, n: int, device: str) -> Tensors:
    x, w, _ = rms_inputs(m, n, device)
    return torch.randn_like(x), x, w, torch.rand(m, device=device) + 0.5


def rms_gradient_reference(dy: Any, x: Any, w: Any, rstd: Any, blocks: int) -> Any:
    scaled, x32, r = (dy * w).float(), x.float(), rstd[:, None]
    dx = r * scaled - r**3 * x32 * (scaled * x32).mean(1, keepdim=True)
    each = dy * (x32 * r).to(x.dtype)
    rows = triton.cdiv(len(x), blocks)
    dw = torch.zeros(blocks, x.shape[1], device=x.device)
    for block in range(triton.cdiv(len(x), rows)):
        dw[block] = each[block * rows : (block + 1) * rows].float().sum(0)
    return dx.to(x.dtype), dw


def rms_gradient_launch(dy: Any, x: Any, w: Any, rstd: Any) -> Any:
    (m, n), blocks = x.shape, 132
    dx, dw = torch.empty_like(x), torch.empty(blocks, n, device=x.device)
    block, warps = c.settings(n)
    c.norm._rms_norm_backward_kernel[(blocks,)](
        dy, dy.stride(0), dx, dx.stride(0), x, x.stride(0), c.shared.torch_to_triton_dtype[x.dtype],
        w, w.stride(0), rstd, rstd.stride(0), dw, dw.stride(0), m, n, 0.0, triton.cdiv(m, blocks), 0,
        elementwise_affine=True, BLOCK_SIZE=block, num_warps=warps,
    )  # fmt: skip
    return dx, dw


# -- rotary positions ------------------------------------------------------------------------------
def rope_inputs(m: int, n: int, device: str) -> Tensors:
    shapes = (2, m, 6, 64), (2, m, 2, 64), (1, m, 64), (1, m, 64)
    return tuple(normal(*s, device=device) for s in shapes)


def rope_reference(q: Any, k: Any, cos: Any, sin: Any) -> None:
    u, v = cos[..., None, :32], sin[..., None, :32]
    for x in (q, k):
        left, right = x[..., :32].clone(), x[..., 32:].clone()
        x[..., :32] = left * u - right * v
        x[..., 32:] = right * u + left * v


def rope_launch(q: Any, k: Any, cos: Any, sin: Any) -> None:
    batch, length, heads, width = q.shape
    c.rotary._triton_rope[(batch * length,)](
        q, q.stride(1), k, k.stride(1), cos, cos.stride(1), sin, sin.stride(1), length, batch, 1,
        heads, k.shape[2], width, c.power(heads), c.power(k.shape[2]), width, width, width,
        BLOCK_SIZE=c.power(heads), BACKWARD_PASS=False,
    )  # fmt: skip


# -- gates -----------------------------------------------------------------------------------------
def pair(m: int, n: int, device: str) -> Tensors:
    return normal(m, n, device=device), normal(m, n, device=device)


def swiglu_reference(a: Any, b: Any) -> Any:
    return torch.nn.functional.silu(a.float()).to(b.dtype) * b


def swiglu_launch(a: Any, b: Any) -> Any:
    (m, n), out = a.shape, torch.empty_like(a)
    block, warps = c.settings(n)
    c.gates._swiglu_forward_kernel[(m,)](
        a, b, out, out.stride(0), 1.0, n_cols=n, BLOCK_SIZE=block, num_warps=warps
    )
    return out


def swiglu_gradient_reference(dc: Any, a: Any, b: Any) -> None:
    x = a.float()
    s = torch.sigmoid(x)
    da, db = dc * (x * s * (1 - s) + s) * b, dc * (x * s)
    a.copy_(da)
    b.copy_(db)


def swiglu_gradient_launch(dc: Any, a: Any, b: Any) -> None:
    m, n = a.shape
    block, warps = c.settings(n)
    c.gates._swiglu_backward_kernel[(m,)](
        dc, a, b, dc.stride(0), 1.0, n_cols=n, BLOCK_SIZE=block, num_warps=warps
    )


# -- losses ----------------------------------------------------------------------------------------
def loss_inputs(m: int, n: int, device: str) -> Tensors:
    return torch.randn(m, n, device=device), torch.randint(0, n, (m,), device=device), m


def loss_reference(x: Any, y: Any, count: int) -> Any:
    logs = torch.log_softmax(x.double(), 1)
    found = (-logs[torch.arange(len(x)), y] / count).to(x.dtype)
    gradient = logs.exp()
    gradient[torch.arange(len(x)), y] -= 1
    x.copy_(gradient / count)
    return found


def loss_launch(x: Any, y: Any, count: int) -> Any:
    (m, n), found = x.shape, torch.empty(len(x), device=x.device)
    c.losses.liger_cross_entropy_kernel[(m,)](
        X_ptr=x, X_stride=x.stride(0), Y_ptr=y, Y_stride=y.stride(0), weight_ptr=None,
        loss_ptr=found, z_loss_ptr=None, loss_stride=found.stride(0), token_accuracy_ptr=None,
        token_accuracy_stride=0, predicted_tokens_ptr=None, predicted_tokens_stride=0, n_cols=n,
        n_non_ignore=count, sum_non_ignore_weight=count, weight_sum=0.0, ignore_index=-100,
        lse_square_scale=0.0, label_smoothing=0.0, reduction="mean", softcap=None,
        RETURN_Z_LOSS=False, RETURN_TOKEN_ACCURACY=False, RETURN_PREDICTED_TOKENS=False,
        BLOCK_SIZE=4096, HAS_WEIGHT=False, HAS_SOFTCAPPING=False, HAS_GRADIENTS=True, num_warps=32,
    )  # fmt: skip
    return found


def scaled_inputs(m: int, n: int, device: str) -> Tensors:
    return small(m, n, device=device), torch.full((1,), 0.5, device=device)


def scaled_reference(x: Any, grad: Any) -> None:
    x.mul_(grad)


def scaled_launch(x: Any, grad: Any) -> None:
    m, n = x.shape
    c.shared.element_mul_kernel[(m,)](x, x.stride(0), grad, n, BLOCK_SIZE=4096, num_warps=32)


# -- products and attention ------------------------------------------------------------------------
TILES = {"BM": 64, "BN": 64, "BK": 32, "num_warps": 4, "num_stages": 3}


def matmul_inputs(m: int, n: int, device: str) -> Tensors:
    return normal(m, n, device=device), normal(n, 48, device=device)


def matmul_launch(a: Any, b: Any, **_: Any) -> Any:
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty(m, n, device=a.device, dtype=a.dtype)
    kernels.matmul[(triton.cdiv(m, 64), triton.cdiv(n, 64))](
        a, b, out, m, n, k, a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0),
        out.stride(1), 64, 64, 32, k % 32 == 0, num_warps=4, num_stages=3,
    )  # fmt: skip
    return out


def matmul_reference(a: Any, b: Any) -> Any:
    return (a.float() @ b.float()).half()


def attention_inputs(m: int, n: int, device: str) -> Tensors:
    return (*(normal(2, m, 64, device=device) for _ in "qkv"), 0.125)


def attention_reference(q: Any, k: Any, v: Any, scale: float) -> Any:
    scores = q.float() @ k.float().transpose(1, 2) * scale
    return (torch.softmax(scores, 2) @ v.float()).half()


def attention_launch(q: Any, k: Any, v: Any, scale: float) -> Any:
    (groups, length, width), out = q.shape, torch.empty_like(q)
    described = (
        TensorDescriptor.from_tensor(x, [1, n, width])
        for x, n in ((q, 64), (k, 32), (v, 32), (out, 64))
    )
    own.attention[(triton.cdiv(length, 64), groups)](*described, length, scale, 64, 32, width)
    return out


def split_inputs(m: int, n: int, device: str) -> Tensors:
    return small(m, n, device=device, dtype=torch.float16), small(
        n, 48, device=device, dtype=torch.float16
    )


def split_reference(a: Any, b: Any) -> Any:
    return a.float() @ b.float()


def split_launch(a: Any, b: Any) -> Any:
    (m, k), n, split = a.shape, b.shape[1], 4
    parts, out = (torch.empty(*s, device=a.device) for s in ((split, m, n), (m, n)))
    own.products[(triton.cdiv(m, 64), triton.cdiv(n, 64), split)](
        a, b, parts, m, n, k, a.stride(0), b.stride(0), m * n, BM=64, BN=64, BK=32, SPLIT=split
    )
    own.added[(triton.cdiv(m * n, 1024),)](parts, out, m * n, SPLIT=split, BLOCK=1024)
    return out


# -- scan, copies, vectors -------------------------------------------------------------------------
def scan_inputs(m: int, n: int, device: str) -> Tensors:
    return torch.rand(m, n, device=device), torch.randn(m, n, device=device)


def scan_reference(a: Any, b: Any) -> Any:
    state, found = torch.zeros(len(a), device=a.device), torch.empty_like(a)
    for i in range(a.shape[1]):
        state = a[:, i] * state + b[:, i]
        found[:, i] = state
    return found


def scan_launch(a: Any, b: Any) -> Any:
    (m, n), found = a.shape, torch.empty_like(a)
    own.scan[(m,)](a, b, found, n, a.stride(0), BLOCK=256)
    return found


def copy_launch(x: Any) -> Any:
    found = torch.empty_like(x)
    kernels.gluon_copy[(triton.cdiv(len(x), 256),)](x, found, len(x), BLOCK=256)
    return found


def axpy_reference(x: Any, y: Any, a: float) -> None:
    y.add_(x, alpha=a)


CASES = (
    Case(c.rms_norm, rms_inputs, rms_reference, rms_launch),
    Case(c.rms_norm_gradient, rms_gradient_inputs, rms_gradient_reference, rms_gradient_launch),
    Case(c.rope, rope_inputs, rope_reference, rope_launch, writes=(0, 1)),
    Case(c.swiglu, pair, swiglu_reference, swiglu_launch),
    Case(
        c.swiglu_gradient,
        lambda m, n, device: (normal(m, n, device=device), *pair(m, n, device)),
        swiglu_gradient_reference, swiglu_gradient_launch, writes=(1, 2),
    ),
    Case(c.cross_entropy, loss_inputs, loss_reference, loss_launch, writes=(0,)),
    Case(c.cross_entropy_gradient, scaled_inputs, scaled_reference, scaled_launch, writes=(0,)),
    Case(c.matmul, matmul_inputs, matmul_reference, matmul_launch, keywords=TILES),
    Case(c.attention, attention_inputs, attention_reference, attention_launch),
    Case(c.scan, scan_inputs, scan_reference, scan_launch),
    Case(c.gluon_copy, lambda m, n, d: (normal(m * n, device=d),), torch.clone, copy_launch),
    Case(c.transpose, lambda m, n, d: (normal(m, n, device=d),), lambda x: x.T.contiguous()),
    Case(
        c.doubled_boxes, lambda m, n, d: (small(m, -(-n // 4) * 4, device=d),), lambda x: x * 2
    ),
    Case(
        c.axpy, lambda m, n, d: (small(m * n, device=d), small(m * n, device=d), 0.5),
        axpy_reference, writes=(1,),
    ),
    Case(c.split_product, split_inputs, split_reference, split_launch),
)  # fmt: skip

for case in CASES:
    case.program.fallback("cpu", case.reference)


def shaped(device: str) -> Iterator[tuple[Case, Tensors]]:
    """Each case with the inputs of each shape."""
    for case in CASES:
        for m, n in SHAPES:
            yield case, case.inputs(m, n, device)
