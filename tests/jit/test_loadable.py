"""Compiled programs as data: what another process loads, and the facts that a call gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import tileops
from tests.programs import samples
from tileops.autotuner.benches import LocalBench
from tileops.codegen.kernel_code import Specialization
from tileops.errors import ArgumentError
from tileops.ir.program import Program
from tileops.jit.compiling import Request, obtain
from tileops.jit.loadable import facts_of, found_in_cache, loadable_of
from tileops.target import parse_target


def request(program: Program, spec: Specialization) -> Request:
    return Request(program, parse_target("cpu"), spec, program.name, "test")


@pytest.mark.parametrize(
    ("count", "offset", "is_fast"), [(64, 0, True), (64, 1, False), (65, 0, False), (0, 0, False)]
)
def test_facts_are_those_of_the_call(count: int, offset: int, is_fast: bool) -> None:
    x = torch.randn(count + offset)[offset:]
    program = samples.axpy.get_tir()
    for _ in range(2):
        assert facts_of(program, [x, torch.randn(count), 0.5]) == Specialization(is_fast, False)


def test_wrong_arguments_are_refused_as_in_a_call() -> None:
    with pytest.raises(ArgumentError, match="N"):
        facts_of(samples.axpy.get_tir(), [torch.randn(4), torch.randn(5), 0.5])


def test_what_is_loaded_from_data_gives_what_the_program_gives(tmp_path: Path) -> None:
    x, y = torch.randn(6, 100), torch.randn(6, 100)
    with tileops.option.cache_dir(tmp_path):
        program = samples.sum_difference.get_tir(x, y)
        asked = request(program, facts_of(program, [x, y]))
        assert found_in_cache(asked) is None
        entry = obtain(asked)
        found = found_in_cache(asked)
    assert found == (entry.hash, loadable_of(asked, entry))
    bench = LocalBench(torch.device("cpu"), [x, y])
    results = bench.run("a", json.loads(json.dumps(found[1])), 60)
    assert [r.dtype for r in results] == [torch.float16, torch.float32]
    assert torch.equal(results[1], x + y)
    assert torch.equal(results[0], (x - y).T.half())
    bench.unload("a")
    assert torch.equal(bench.run("a", found[1], 60)[1], x + y)


def test_an_image_that_was_changed_is_not_loaded(tmp_path: Path) -> None:
    x = torch.randn(64)
    with tileops.option.cache_dir(tmp_path):
        program = samples.scaled.get_tir(x)
        asked = request(program, facts_of(program, [x]))
        loadable = loadable_of(asked, obtain(asked))
    (image,) = loadable["images"].values()
    path = Path(image["path"])
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ArgumentError, match="is not what was compiled"):
        LocalBench(torch.device("cpu"), []).load("a", loadable)
