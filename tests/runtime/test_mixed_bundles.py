"""Two bundles of one name at random: they join where they hold one program, else one is refused; no result is wrong."""

from __future__ import annotations

import ctypes
import itertools
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import tileops
from tests.kit import descriptions as d
from tests.runtime import cpu_ops
from tests.runtime.bundle_files import write_bundle
from tileops.errors import ArgumentError, CompileMissError

PAIRS = {"python": 200, "c": 800}  # by Python each costs the fakes of an op as well
SIZES = (1, 2, 3)
# out[i] = FACTOR * a[i]: each program has its own.
SCALED = """
TILEOPS_CPU_ENTRY tileops_int32 scaled(const TileopsValue* p, tileops_int64 first, tileops_int64 last, char*,
                                       TileopsStatus*) {
  const float* a = (const float*)p[0].p;
  float* out = (float*)p[1].p;
  const tileops_int64 n = p[2].i, stop = last * 1024 < n ? last * 1024 : n;
  for (tileops_int64 i = first * 1024; i < stop; ++i) out[i] = FACTOR * a[i];
  return TILEOPS_OK;
}
"""
# The definition of a program and its trace, and the factor that the two mean.
PROGRAMS = {("one", "a"): 2, ("one", "b"): 3, ("two", "a"): 5}


@dataclass(frozen=True)
class Mixed:
    path: Path
    program: tuple[str, str]
    sizes: tuple[int, ...]
    is_told: bool  # of format 2, which tells programs apart

    def joins(self, other: Mixed) -> bool:
        return self == other or (
            self.is_told
            and other.is_told
            and self.program[0] == other.program[0]
            and self.program[1] == other.program[1]
        )


@pytest.fixture(scope="module")
def bundles(
    build_kernel: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> list[Mixed]:
    root = tmp_path_factory.mktemp("mixed")
    out = [{"dtype": "float32", "shape": [0]}]
    op = d.op("mixed", "(Tensor a) -> Tensor", [d.arg("a")], 1)
    variant = d.variant(tensors=[d.tensor(0, "a", [d.bind(0)])], sizes=[d.size("N", "const")],
                        host=d.host(["size:0"]), outputs=out)  # fmt: skip
    params = [d.p_tensor(0), d.p_tensor(1), d.p_slot(0, "i64")]
    made = []
    subsets = [s for n in range(1, len(SIZES) + 1) for s in itertools.combinations(SIZES, n)]
    for number, (program, sizes, is_told) in enumerate(
        itertools.product(PROGRAMS, subsets, (True, True, False))
    ):
        library = build_kernel(SCALED.replace("FACTOR", str(PROGRAMS[program]))).read_bytes()
        entries = [
            ("cpu:x86-64-v2", d.entry(consts=[n], fast=fast, host=d.host(["size:0"], *cpu_ops.BLOCKS_OF_N),
                                      outputs=out, tensor_order=[{"arg": 0}, {"output": 0}],
                                      launches=[d.launch("kernel_lib.so", "scaled", 4, params)]))
            for n in sizes for fast in (True, False)
        ]  # fmt: skip
        told = program if is_told else (None, "")
        path = write_bundle(
            root / str(number), op, [(variant, entries)], {"kernel_lib.so": library}, *told
        )
        made.append(Mixed(path, program, sizes, is_told))
    return made


def by_python(path: Path, namespace: str) -> str:
    try:
        tileops.load_bundle(path, namespace=namespace)
    except ArgumentError as error:
        return str(error)
    return ""


def by_c(path: Path, namespace: str) -> str:
    library = ctypes.CDLL(str(Path(tileops.__file__).parent / "libtileops.so"))
    library.tileops_last_error.restype = ctypes.c_char_p
    options = json.dumps({"namespace": namespace}).encode()
    if library.tileops_load_bundle_ex(str(path).encode(), options) == 1:
        return ""
    return str(library.tileops_last_error().decode())


@pytest.mark.parametrize("way", PAIRS)
def test_random_pairs(bundles: list[Mixed], way: str) -> None:
    load = {"python": by_python, "c": by_c}[way]
    pick = random.Random()
    seen = dict.fromkeys((True, False), 0)
    for number in range(PAIRS[way]):
        first, second = pick.choice(bundles), pick.choice(bundles)
        namespace = f"mixed_{way}_{number}"
        assert load(first.path, namespace) == ""
        refusal = load(second.path, namespace)
        joined = first.joins(second)
        assert (refusal == "") == joined, (first, second, refusal)
        if not joined:
            assert f"{first.path}/ops/mixed/op.json" in refusal
            assert f"{second.path}/ops/mixed/op.json" in refusal
        call = getattr(torch.ops, namespace).mixed
        factor = PROGRAMS[first.program]
        present = set(first.sizes) | (set(second.sizes) if joined else set())
        for n in SIZES:
            x = torch.randn(n)
            if n in present:
                assert torch.equal(call(x), factor * x), (first, second, n)
            else:
                with pytest.raises(CompileMissError, match=f"N = {n}"):
                    call(x)
        seen[joined] += 1
    assert min(seen.values()) > PAIRS[way] // 20, seen
