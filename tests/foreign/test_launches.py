"""Launches of foreign Triton kernels: arguments, facts, grids and the entries that calls choose."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from typing import Any

import pytest
from triton._C.libtriton import native_specialize_impl
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend

import tileops
from tests.foreign import programs
from tests.foreign.launched import TARGET, Launched, words_of_record
from tileops.errors import ArgumentError, CompileMissError, InternalError
from tileops.ir.extern import DIVISIBLE, ONE, WIDE, fact_of
from tileops.jit.choosing import general_words
from tileops.jit.provider import Wanted
from tileops.target import parse_target

A, B, C = 0x7F0000001000, 0x7F0000002000, 0x7F0000003000


def last(fake: Any) -> dict[str, Any]:
    return dict(fake.log("launch")[-1])


def test_arguments_reach_the_kernel_in_its_own_order(fake: Any) -> None:
    op = Launched(programs.rms, {"D": "bfloat16"})
    sizes = {"R": 5, "N": 1000}
    op.add(op.wanted(sizes))
    op.run(sizes, [A, B, C, C + 64], float_scalars=[0.5])
    line = last(fake)
    values = [A, C, B, C + 64]  # X, Y, W, rstd
    assert line["params"][:4] == [struct.pack("<Q", v).hex() for v in values]
    assert line["params"][4:8] == [struct.pack("<i", 1000).hex()] * 3 + [
        struct.pack("<f", 0.5).hex()
    ]
    assert line["grid"] == [5, 1, 1]
    assert line["block"] == [8 * 32, 1, 1]


def asked(op: Launched, wanted: Wanted) -> dict[str, Any]:
    """What the runtime asks for at a call that finds no entry."""
    return {
        "device_type": "cuda", "device_index": 0, "fast": wanted.spec.fast,
        "index64": wanted.spec.index64, "consts": wanted.consts, "sizes": wanted.sizes,
        "scalars": wanted.scalars,
    }  # fmt: skip


def test_in_strict_mode_code_that_assumes_less_serves(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call with a size of 1 after a warmup with others, as with M = 1 after M = 64."""
    op = Launched(programs.matmul)
    monkeypatch.setattr(op.provider, "target_on", lambda *_: parse_target(TARGET))
    added: list[Any] = []
    monkeypatch.setattr(op.op, "add_entry", lambda *entry: added.append(entry))
    first, one = (op.wanted({"M": m, "N": 64, "K": 64}) for m in (64, 1))
    with tileops.option.strict(), pytest.raises(CompileMissError, match="strict mode"):
        op.provider.supply_entry(op.op, op.variant, asked(op, one))
    program = op.provider.request_for(first).program
    op.compiled(replace(first, words=general_words(program)))
    compiles = tileops.stats()["compiles"]
    with tileops.option.strict():
        op.provider.supply_entry(op.op, op.variant, asked(op, one))
    assert tileops.stats()["compiles"] == compiles
    ((_, key, described, _),) = added
    # It is found as what the call asked for, and its code is that without facts.
    assert described["fast"]
    assert described["choice"]["words"] == list(key[-1]) == [1, 2, 2, 1]
    numbers = [p for p in described["launches"][0]["params"] if p["kind"] == "slot"]
    assert len(numbers) == 6  # all of them: none is assumed to be 1


def test_each_fact_of_a_number_has_its_own_entry(fake: Any) -> None:
    op = Launched(programs.matmul)
    seen = {}
    for m, n, k in ((64, 64, 64), (63, 64, 64), (64, 64, 63), (64, 1, 64)):
        sizes = {"M": m, "N": n, "K": k}
        entry = op.add(op.wanted(sizes))
        seen[m, n, k] = (entry.hash, words_of_record(entry))
        op.run(sizes, [A, B, C])
        numbers = [v for v in (m, n, k, k, n, n) if v != 1]
        packed = [struct.pack("<i", v).hex() for v in numbers]
        assert last(fake)["params"][3 : 3 + len(packed)] == packed
        assert last(fake)["grid"] == [-(-m // 64), -(-n // 64), 1]
    assert len({entry for entry, _ in seen.values()}) == 4
    assert [words for _, words in seen.values()] == [
        [2, 2, 2, 1], [0, 2, 2, 1], [2, 2, 0, 0], [2, 1, 2, 1],
    ]  # fmt: skip


def test_an_entry_without_facts_serves_where_none_may_be_made(fake: Any) -> None:
    op = Launched(programs.add, {"D": "float32"})
    op.add(op.wanted({"N": 64}))
    with pytest.raises(InternalError, match="no entry for these facts"):
        op.run({"N": 63}, [A, B, C])
    op.add(op.wanted({"N": 64}, words=(0,)))
    op.run({"N": 63}, [A, B, C], general=True)
    op.run({"N": 48}, [A, B, C], general=True)
    assert last(fake)["params"][3] == struct.pack("<i", 48).hex()


def test_numbers_beyond_32_bits_are_passed_wide(fake: Any) -> None:
    op = Launched(programs.product)
    for m, n in ((1 << 16, 1 << 16), ((1 << 16) + 1, (1 << 16) + 1), (3, 5)):
        sizes = {"M": m, "N": n}
        op.add(op.wanted(sizes))
        op.run(sizes, [A, B])
        wide = m * n >= 1 << 31
        assert last(fake)["params"][2] == struct.pack("<q" if wide else "<i", m * n).hex()


def test_the_same_facts_as_tritons_own_launcher(fake: Any) -> None:
    """1,000 random numbers: constexpr or not, type and divisibility as Triton decides them."""
    backend = make_backend(GPUTarget("cuda", 90, 32))
    chance = random.Random()
    for _ in range(1000):
        value = chance.choice(
            [1, 0, 16, chance.randrange(-64, 64), chance.randrange(1 << 33), -(1 << 31), 1 << 31]
        )
        for specialize, align in ((True, True), (True, False), (False, True)):
            mask = (ONE | (DIVISIBLE if align else 0) if specialize else 0) | WIDE
            kind, key = native_specialize_impl(type(backend), value, False, specialize, align)
            found = fact_of(value, mask)
            if kind == "constexpr":
                assert found == ONE, value
            else:
                assert found == (DIVISIBLE if key == "D" else 0) | (WIDE if kind == "i64" else 0), (
                    value,
                    kind,
                    key,
                )


def test_a_number_of_a_grid_that_the_driver_refuses(fake: Any) -> None:
    op = Launched(programs.matmul)
    sizes = {"M": 64, "N": 64 * 70_000, "K": 64}
    op.add(op.wanted(sizes))
    with pytest.raises(
        ArgumentError, match=r"extent 1 of the grid of 'matmul' is 70000, over the limit of 65535"
    ):
        op.run(sizes, [A, B, C])
    sizes["N"] = 0
    op.add(op.wanted(sizes))
    before = len(fake.log("launch"))
    op.run(sizes, [A, B, C])
    assert len(fake.log("launch")) == before
