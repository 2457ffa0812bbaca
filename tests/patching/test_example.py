"""The example of a whole model: patched, it computes what it did."""

from __future__ import annotations

import torch

from examples import llm


def test_the_example_in_eager_mode() -> None:
    tokens = torch.randint(llm.SMALL.words, (2, 10))
    plain, patched = llm.compare(
        llm.SMALL, "cpu", torch.float32, tokens, new_tokens=2, repeats=1, compilers=("eager",)
    )
    assert plain.apart == 0
    assert 0 <= patched.apart < 1e-4
    assert abs(plain.loss - patched.loss) < 1e-5
    assert min(plain.trained, plain.generated, patched.trained, patched.generated) > 0
