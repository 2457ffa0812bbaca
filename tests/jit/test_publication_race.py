"""A variant is visible to the runtime a moment before its number is noted; a call in that moment waits."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import torch

from tests.programs import samples
from tests.programs.samples import vector
from tileops import runtime


def test_a_call_between_publication_and_note_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    x = vector(777)
    published = threading.Event()
    add_variant = runtime.add_variant

    def slow(handle: int, variant: Any) -> int:
        number = add_variant(handle, variant)
        published.set()
        time.sleep(0.2)
        return number

    monkeypatch.setattr(runtime, "add_variant", slow)
    results: list[torch.Tensor] = []
    first = threading.Thread(target=lambda: results.append(samples.scaled(x, 3.0, block_N=96)))
    first.start()
    assert published.wait(30)
    results.append(samples.scaled(x, 3.0, block_N=96))
    first.join(60)
    assert len(results) == 2
    assert all(torch.equal(r, x * 3) for r in results)
