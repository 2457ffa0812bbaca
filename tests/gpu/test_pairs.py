"""The pairs on the GPU: right at small sizes, timed by a real child, and a clock that counts calls."""

from __future__ import annotations

import pytest
import torch

import tileops
import tileops.language
from benchmarks.harness import time_batches
from benchmarks.pair import Pair, all_pairs
from benchmarks.suite_pairs import results


@pytest.mark.parametrize(
    "pair", [p for _, p in all_pairs()], ids=lambda p: p.name.replace(" ", "_")
)
def test_small_sizes_are_right(pair: Pair) -> None:
    kernel = tileops.compile(pair.build(tileops.language, small=True), target="cuda")
    arguments = pair.arguments("cuda", small=True)
    expected = pair.expected(arguments, small=True)
    kernel(*arguments)
    assert pair.wrong(arguments, expected) is None


def test_a_child_checks_and_times_a_pair() -> None:
    (found,) = results(None, ["softmax bf16 8192x1024"])
    assert found.extra["errors"] == {}
    assert set(found.timings) == {"tileops", "torch"}
    # Reading and writing 16 MiB each cannot be faster than ten times the card's memory.
    assert 0 < found.extra["rates"]["tileops"]["tb_per_s"] < 50


def test_batches_give_the_time_of_a_call() -> None:
    """Eight copies take eight times one; the launches of short calls are not in their times."""
    x, y = (torch.empty(64 << 20, dtype=torch.uint8, device="cuda") for _ in range(2))
    tiny = torch.zeros(16, device="cuda")

    def eight() -> None:
        for _ in range(8):
            y.copy_(x)

    found = time_batches(
        {"one": [lambda: y.copy_(x)], "eight": [eight], "tiny": [lambda: tiny.add_(1)]},
        seconds=0.3,
    )
    assert 6 < found["eight"].median_us / found["one"].median_us < 10
    assert found["tiny"].median_us < 10
