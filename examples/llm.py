"""A decoder in the shape of Llama with random weights: training and generation, also patched.

``python examples/llm.py`` prints tokens a second, peak memory and the largest difference of logits
for eager mode, ``torch.compile``, and both with ``tileops.patch``. ``--small`` fits a CPU.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

import tileops
from tileops import ops


@dataclass(frozen=True)
class Config:
    """Sizes of a model; the default is a Llama of about one billion weights."""

    hidden: int = 2048
    inner: int = 8192
    layers: int = 16
    heads: int = 32
    key_heads: int = 8
    words: int = 128256


SMALL = Config(hidden=32, inner=64, layers=2, heads=4, key_heads=2, words=96)


def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
    """Turn pairs of a head's columns, half a head apart."""

    def turned(x):
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin

    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return turned(q), turned(k)


class Norm(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(columns)), 1e-5

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


class Gate(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden, c.inner, bias=False)
        self.up_proj = nn.Linear(c.hidden, c.inner, bias=False)
        self.down_proj = nn.Linear(c.inner, c.hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.size = c.hidden // c.heads
        self.q = nn.Linear(c.hidden, c.heads * self.size, bias=False)
        self.k = nn.Linear(c.hidden, c.key_heads * self.size, bias=False)
        self.v = nn.Linear(c.hidden, c.key_heads * self.size, bias=False)
        self.o = nn.Linear(c.heads * self.size, c.hidden, bias=False)

    def forward(self, x, cos, sin):
        B, S, _ = x.shape
        q, k, v = (p(x).view(B, S, -1, self.size).transpose(1, 2) for p in (self.q, self.k, self.v))
        q, k = apply_rotary_pos_emb(q, k, cos, sin)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(out.transpose(1, 2).reshape(B, S, -1))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.before, self.attention = Norm(c.hidden), Attention(c)
        self.after, self.gate = Norm(c.hidden), Gate(c)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.before(x), cos, sin)
        return x + self.gate(self.after(x))


class Model(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.embedding = nn.Embedding(c.words, c.hidden)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        self.norm, self.head = Norm(c.hidden), nn.Linear(c.hidden, c.words, bias=False)
        self.half = c.hidden // c.heads // 2

    def angles(self, positions: int, device: torch.device) -> torch.Tensor:
        """The angle of each position and column, in float32."""
        speeds = 5e5 ** (-torch.arange(self.half, device=device) / self.half)
        angles = torch.arange(positions, device=device).unsqueeze(-1) * speeds
        return torch.cat((angles, angles), -1).unsqueeze(0)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        angles = self.angles(tokens.shape[1], tokens.device)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


def train_step(model: Callable, tokens: torch.Tensor, *, own_loss: bool) -> torch.Tensor:
    """Loss of the next tokens; its gradients are added to the weights'."""
    logits = model(tokens)[:, :-1].flatten(0, 1)
    target = tokens[:, 1:].flatten()
    loss = (
        ops.cross_entropy(logits, target) if own_loss else F.cross_entropy(logits.float(), target)
    )
    loss.backward()
    return loss.detach()


@torch.no_grad()
def generate(model: Callable, tokens: torch.Tensor, count: int) -> torch.Tensor:
    """``tokens`` and ``count`` more, the most likely ones; the whole text is read for each."""
    for _ in range(count):
        tokens = torch.cat((tokens, model(tokens)[:, -1:].argmax(-1)), 1)
    return tokens


@dataclass(frozen=True)
class Row:
    name: str
    trained: float  # tokens a second
    generated: float  # tokens a second
    peak_mib: float  # 0 on the CPU
    apart: float  # the largest difference of logits from eager mode
    loss: float


def seconds(call: Callable[[], object], device: str, repeats: int) -> float:
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(repeats):
        call()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / repeats


def compare(
    c: Config, device: str, dtype: torch.dtype, tokens: torch.Tensor, *,
    new_tokens: int = 4, repeats: int = 3, compilers: tuple[str, ...] = ("eager", "compile"),
) -> list[Row]:  # fmt: skip
    """One row for each way to run the model."""
    torch.manual_seed(0)
    model = Model(c).to(device, dtype)
    with torch.no_grad():
        eager = model(tokens).float()
    rows = []
    for compiler in compilers:
        for is_patched in (False, True):
            torch._dynamo.reset()
            report = tileops.patch(model, sample={"tokens": tokens}) if is_patched else None
            called = torch.compile(model) if compiler == "compile" else model
            if device == "cuda":
                torch.cuda.reset_peak_memory_stats()

            def step(called=called, own_loss=is_patched):
                model.zero_grad()
                return train_step(called, tokens, own_loss=own_loss)

            loss = float(step())
            train = seconds(step, device, repeats)
            prompt = tokens[:1, : tokens.shape[1] - new_tokens]
            text = seconds(lambda f=called, p=prompt: generate(f, p, new_tokens), device, repeats)
            with torch.no_grad():
                apart = float((called(tokens).float() - eager).abs().max())
            peak = torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else 0.0
            name = f"{compiler}, patched" if is_patched else compiler
            rows.append(Row(name, tokens.numel() / train, new_tokens / text, peak, apart, loss))
            if report is not None:
                report.undo()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="sizes that fit a CPU")
    small = parser.parse_args().small or not torch.cuda.is_available()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    c, shape = (SMALL, (2, 24)) if small else (Config(), (4, 4096))
    tokens = torch.randint(c.words, shape, device=device)
    print(
        "way                  tokens/s trained  tokens/s generated   peak MiB  logits apart    loss"
    )
    for row in compare(c, device, torch.bfloat16, tokens):
        print(
            f"{row.name:20} {row.trained:17.0f} {row.generated:19.1f} {row.peak_mib:10.0f} "
            f"{row.apart:13.1e} {row.loss:7.3f}"
        )


if __name__ == "__main__":
    main()
