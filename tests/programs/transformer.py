"""A small transformer: products, norms, attention and their gradients are programs."""

from __future__ import annotations

import torch

import tileops
import tileops.language as T

BLOCK = 16


# Full float32 products on GPUs too, so that one bound holds on every device.
@tileops.jit(name="model_product", pass_configs={"tl.gemm_f32_precision": "ieee"})
def product(A, B, alpha: T.float32 = 1.0, trans_A: bool = False, trans_B: bool = False):
    """``alpha * op(A) @ op(B)`` for a batch of matrices."""
    G = T.dynamic("G")
    M, K, N = T.dynamic("M, K, N")
    A: T.Tensor((G, K, M) if trans_A else (G, M, K), T.float32)
    B: T.Tensor((G, N, K) if trans_B else (G, K, N), T.float32)
    C = T.empty((G, M, N), T.float32)
    with T.Kernel(T.ceildiv(N, BLOCK), T.ceildiv(M, BLOCK), G, threads=128) as (bx, by, bz):
        A_s = T.alloc_shared((BLOCK, BLOCK), T.float32)
        B_s = T.alloc_shared((BLOCK, BLOCK), T.float32)
        acc = T.alloc_fragment((BLOCK, BLOCK), T.float32)
        T.clear(acc)
        for k in T.serial(T.ceildiv(K, BLOCK)):
            if trans_A:
                T.copy(A[bz, k * BLOCK, by * BLOCK], A_s)
            else:
                T.copy(A[bz, by * BLOCK, k * BLOCK], A_s)
            if trans_B:
                T.copy(B[bz, bx * BLOCK, k * BLOCK], B_s)
            else:
                T.copy(B[bz, k * BLOCK, bx * BLOCK], B_s)
            T.gemm(A_s, B_s, acc, transpose_A=trans_A, transpose_B=trans_B)
        for i, j in T.Parallel(BLOCK, BLOCK):
            acc[i, j] = acc[i, j] * alpha
        T.copy(acc, C[bz, by * BLOCK, bx * BLOCK])
    return C


def _save_product(ctx, inputs, keyword_only_inputs, output):
    a, b, ctx.alpha = inputs
    ctx.trans = keyword_only_inputs["trans_A"], keyword_only_inputs["trans_B"]
    ctx.save_for_backward(a, b)


def _product_backward(ctx, grad):
    a, b = ctx.saved_tensors
    ta, tb = ctx.trans
    da = db = None
    if ctx.needs_input_grad[0]:
        da = (
            product(b, grad, ctx.alpha, trans_A=tb, trans_B=True)
            if ta
            else product(grad, b, ctx.alpha, trans_B=not tb)
        )
    if ctx.needs_input_grad[1]:
        db = (
            product(grad, a, ctx.alpha, trans_A=True, trans_B=ta)
            if tb
            else product(a, grad, ctx.alpha, trans_A=not ta)
        )
    return da, db, None


product.register_autograd(_product_backward, setup_context=_save_product)


@tileops.jit(name="model_rms_norm")
def rms_norm(X, W):
    """Rows of ``X`` over their root mean square, times ``W``; and the reciprocal of the root."""
    M, N = T.const("M, N")
    X: T.Tensor((M, N), T.float32)
    W: T.Tensor((N,), T.float32)
    Y = T.empty((M, N), T.float32)
    R = T.empty((M,), T.float32)
    with T.Kernel(M, threads=32) as bx:
        square = T.alloc_fragment((1, N), T.float32)
        total = T.alloc_fragment((1,), T.float32)
        for i, j in T.Parallel(1, N):
            square[i, j] = X[bx + i, j] * X[bx + i, j]
        T.reduce_sum(square, total, dim=1)
        for i in T.Parallel(1):
            total[i] = T.rsqrt(total[i] / N + 1e-5)
            R[bx + i] = total[i]
        for i, j in T.Parallel(1, N):
            Y[bx + i, j] = X[bx + i, j] * total[i] * W[j]
    return Y, R


@tileops.jit(name="model_rms_norm_backward")
def rms_norm_backward(X, W, R, DY):
    """The gradient of ``X``, and each row's share of the gradient of ``W``."""
    M, N = T.const("M, N")
    X: T.Tensor((M, N), T.float32)
    W: T.Tensor((N,), T.float32)
    R: T.Tensor((M,), T.float32)
    DY: T.Tensor((M, N), T.float32)
    DX = T.empty((M, N), T.float32)
    DW = T.empty((M, N), T.float32)
    with T.Kernel(M, threads=32) as bx:
        part = T.alloc_fragment((1, N), T.float32)
        dot = T.alloc_fragment((1,), T.float32)
        for i, j in T.Parallel(1, N):
            part[i, j] = DY[bx + i, j] * W[j] * X[bx + i, j]
        T.reduce_sum(part, dot, dim=1)
        for i, j in T.Parallel(1, N):
            r = R[bx + i]
            DX[bx + i, j] = r * (DY[bx + i, j] * W[j] - X[bx + i, j] * r * r * dot[i] / N)
            DW[bx + i, j] = DY[bx + i, j] * X[bx + i, j] * r
    return DX, DW


def _norm_backward(ctx, dy, dr):
    x, w, r = ctx.saved_tensors
    dx, dw = rms_norm_backward(x, w, r, dy)
    return dx, dw.sum(0)


def _save_norm(ctx, inputs, output):
    ctx.save_for_backward(*inputs, output[1])


rms_norm.register_autograd(_norm_backward, setup_context=_save_norm)


@tileops.jit(name="model_softmax")
def softmax(S):
    """Causal softmax over the rows of a batch of square matrices."""
    G, L = T.const("G, L")
    S: T.Tensor((G, L, L), T.float32)
    P = T.empty((G, L, L), T.float32)
    with T.Kernel(L, G, threads=32) as (bx, by):
        row = T.alloc_fragment((1, L), T.float32)
        top = T.alloc_fragment((1,), T.float32)
        total = T.alloc_fragment((1,), T.float32)
        for i, j in T.Parallel(1, L):
            row[i, j] = T.if_then_else(j <= bx, S[by, bx, j], -T.infinity(T.float32))
        T.reduce_max(row, top, dim=1)
        for i, j in T.Parallel(1, L):
            row[i, j] = T.exp(row[i, j] - top[i])
        T.reduce_sum(row, total, dim=1)
        for i, j in T.Parallel(1, L):
            P[by, bx, j] = row[i, j] / total[i]
    return P


@tileops.jit(name="model_softmax_backward")
def softmax_backward(P, DP):
    G, L = T.const("G, L")
    P: T.Tensor((G, L, L), T.float32)
    DP: T.Tensor((G, L, L), T.float32)
    DS = T.empty((G, L, L), T.float32)
    with T.Kernel(L, G, threads=32) as (bx, by):
        part = T.alloc_fragment((1, L), T.float32)
        dot = T.alloc_fragment((1,), T.float32)
        for i, j in T.Parallel(1, L):
            part[i, j] = P[by, bx, j] * DP[by, bx, j]
        T.reduce_sum(part, dot, dim=1)
        for i, j in T.Parallel(1, L):
            DS[by, bx, j] = P[by, bx, j] * (DP[by, bx, j] - dot[i])
    return DS


softmax.register_autograd(
    lambda ctx, dp: softmax_backward(*ctx.saved_tensors, dp),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output),
)


class Programs:
    """The operations of the model as tile programs."""

    @staticmethod
    def linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return product(x[None], w[None], 1.0, trans_B=True)[0]

    @staticmethod
    def norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, w)[0]

    @staticmethod
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = product(q, k, q.shape[-1] ** -0.5, trans_B=True)
        return product(softmax(scores), v, 1.0)


class Torch:
    """The same operations as torch has them."""

    @staticmethod
    def linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x @ w.t()

    @staticmethod
    def norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.rms_norm(x, (x.shape[-1],), w, eps=1e-5)

    @staticmethod
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class Transformer(torch.nn.Module):
    """Two layers of attention and a perceptron over ``length`` tokens of one batch."""

    def __init__(self, kit: type, vocabulary: int = 32, width: int = 32, heads: int = 2) -> None:
        super().__init__()
        self.kit, self.width, self.heads = kit, width, heads
        self.embedding = torch.nn.Parameter(torch.randn(vocabulary, width) * 0.1)
        shapes = {"qkv": (3 * width, width), "out": (width, width)}
        shapes |= {"up": (2 * width, width), "down": (width, 2 * width)}
        self.layers = torch.nn.ModuleList()
        for _ in range(2):
            made = {n: torch.nn.Parameter(torch.randn(s) * s[1] ** -0.5) for n, s in shapes.items()}
            made |= {n: torch.nn.Parameter(torch.ones(width)) for n in ("norm1", "norm2")}
            self.layers.append(torch.nn.ParameterDict(made))

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        kit, batch, length = self.kit, *tokens.shape
        x = self.embedding[tokens].reshape(batch * length, self.width)
        for layer in self.layers:
            qkv = kit.linear(kit.norm(x, layer["norm1"]), layer["qkv"])
            qkv = qkv.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            q, k, v = qkv.reshape(3, batch * self.heads, length, -1).contiguous().unbind(0)
            mixed = kit.attention(q, k, v).view(batch, self.heads, length, -1).transpose(1, 2)
            x = x + kit.linear(mixed.reshape(batch * length, self.width), layer["out"])
            hidden = torch.relu(kit.linear(kit.norm(x, layer["norm2"]), layer["up"]))
            x = x + kit.linear(hidden, layer["down"])
        logits = kit.linear(x, self.embedding)
        return torch.nn.functional.cross_entropy(logits, targets.reshape(-1))


def losses(kit: type, device: str, backend: str, steps: int = 20) -> list[float]:
    """The losses of ``steps`` compiled training steps from one seed."""
    torch.manual_seed(0)
    model = Transformer(kit)
    tokens = torch.randint(0, 32, (2, 17))
    model, tokens = model.to(device), tokens.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    step = torch.compile(model, fullgraph=True, backend=backend)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = step(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    return found
