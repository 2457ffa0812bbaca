"""Less usual forms on packed tensors, on every executor; storage of the other signedness is taken."""

from __future__ import annotations

import pytest
import torch

from tests.kit.executors import EXECUTORS, run
from tests.kit.formats import PACKED, nibbles, random_tensor, values
from tests.programs.dtype_forms import copies, loops, names, outside, reshaped
from tests.programs.dtype_tables import through

both = pytest.mark.parametrize("executor", EXECUTORS)
every = pytest.mark.parametrize("dtype", PACKED)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@both
@every
def test_loops(dtype: str, executor: str) -> None:
    a = random_tensor(dtype, 32, 32)
    turned, rows, chunks, chosen = run(executor, loops, a, dt=dtype)
    x = nibbles(a)
    assert torch.equal(nibbles(turned), x.T)
    assert torch.equal(nibbles(rows), x.flip(1))
    assert torch.equal(nibbles(chunks), x.flip(0))
    v = values(a, dtype)
    larger = torch.where(v.flip(1) > v.flip(0), v.flip(1), v.flip(0))
    third = (torch.arange(32) % 3 == 0)[:, None]
    assert torch.equal(values(chosen, dtype), torch.where(third, v, larger))


@both
@every
def test_copies(dtype: str, executor: str) -> None:
    a = random_tensor(dtype, 6, 48)
    shifted, parts, moved = run(executor, copies, a, dt=dtype)
    v = values(a, dtype)
    ones = torch.ones(6, 16, dtype=torch.float64)
    assert torch.equal(values(shifted, dtype), torch.cat([v[:, 1:33], ones], 1))
    assert torch.equal(values(parts, dtype), v.unflatten(1, (4, 12)).flip(1).flatten(1))
    assert torch.equal(values(moved, dtype), v.flip(0))


@both
@every
def test_names(dtype: str, executor: str) -> None:
    a = random_tensor(dtype, 8, 64)
    c, counts = run(executor, names, a, dt=dtype)
    v = values(a, dtype)
    best = v.amax(1).clamp(min=0)
    assert torch.equal(values(c, dtype), best[:, None].expand(8, 64))
    assert torch.equal(counts.long(), (v == best[:, None]).int().argmax(1))


@both
@every
def test_other_shapes(dtype: str, executor: str) -> None:
    a = random_tensor(dtype, 8, 64)
    flat, tall, raw = run(executor, reshaped, a, dt=dtype)
    assert torch.equal(nibbles(flat[None])[0], nibbles(a).flatten())
    assert torch.equal(nibbles(tall), nibbles(a).view(16, 32))
    assert torch.equal(raw, a.view(torch.uint8))


@both
@every
def test_safe_values(dtype: str, executor: str) -> None:
    a = random_tensor(dtype, 5, 34)
    (c,) = run(executor, outside, a, dt=dtype)
    v = torch.full((10, 80), 1.5 if dtype == "float4_e2m1fn" else 1.0).double()
    v[1:6, :34] = values(a, dtype)
    expected = torch.cat([v[1:9, :32], v[0:8, 5:37]], 1)
    assert torch.equal(c.double(), expected)


@pytest.mark.parametrize("dtype", PACKED)
def test_any_bytes_are_storage(dtype: str) -> None:
    a = random_tensor(dtype, 8, 64)
    expected = values(a, dtype)
    for stored in (torch.int8, torch.uint8):
        _, tiles, _ = run("cpu", through, a.view(stored), dt=dtype, wide="float64")
        assert torch.equal(tiles, expected)
