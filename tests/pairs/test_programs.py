"""The pairs' programs: right on the CPU path, compiled for sm_90, traced at their real sizes."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch

import tileops
import tileops.language
from benchmarks.pair import Pair, all_pairs, program_modules
from benchmarks.suite_pairs import check_on_cpu

PAIRS = [pair for _, pair in all_pairs()]
BY_NAME = pytest.mark.parametrize("pair", PAIRS, ids=lambda p: p.name.replace(" ", "_"))


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_there_are_enough_programs_and_each_name_is_used_once() -> None:
    assert len(program_modules()) >= 30
    names = [pair.name for pair in PAIRS]
    assert len(set(names)) == len(names)


def test_the_first_of_each_file_comes_first() -> None:
    files = [file for file, _ in all_pairs()]
    count = len(program_modules())
    assert len(set(files[:count])) == count


@BY_NAME
def test_cpu(pair: Pair) -> None:
    assert check_on_cpu(pair) is None


@BY_NAME
def test_compiles_for_sm_90(pair: Pair) -> None:
    """At the small sizes, whose tiles compile in a second; nightly at the real ones."""
    small = os.environ.get("TILEOPS_REAL_PAIRS") != "1"
    tileops.compile(pair.build(tileops.language, small), target="cuda:sm_90")


@BY_NAME
def test_traces_at_its_real_sizes(pair: Pair) -> None:
    pair.build(tileops.language)
    if pair.flops is not None:
        assert pair.flops(**pair.sizes) > 1e6
    if pair.moved_bytes is not None:
        assert pair.moved_bytes(**pair.sizes) > 1e5


def test_a_wrong_element_is_found_wherever_it_is() -> None:
    pair = next(p for p in PAIRS if p.name == "add fp32 1048576")
    arguments = pair.arguments("cpu", small=True)
    expected = pair.expected(arguments, small=True)
    arguments[2].copy_(expected[0])
    assert pair.wrong(arguments, expected) is None
    for at, value in ((0, 1e3), (999, float("nan")), (500, float("inf"))):
        spoiled = (*arguments[:2], arguments[2].clone())
        spoiled[2][at] = value
        assert "1 of 1000 elements are wrong" in str(pair.wrong(spoiled, expected))
    short = (*arguments[:2], arguments[2][:-1])
    assert "shape (999,)" in str(pair.wrong(short, expected))


def test_where_terms_cancel_the_whole_result_is_the_measure() -> None:
    pair = replace(PAIRS[0], outputs=(0,), spread=0.0, floor=2.0**-10)
    expected = (torch.stack([torch.zeros(8), torch.ones(8)]).double(),)  # its mean square is a half
    assert pair.wrong((expected[0] + 2.0**-11,), expected) is None
    assert "16 of 16 elements are wrong" in str(pair.wrong((expected[0] + 2.0**-9,), expected))
