"""Ops without tensors are created where torch's own factories create."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.programs import samples

CALLS: dict[str, Callable[[], torch.Tensor]] = {
    "the program": lambda: samples.counted(5),
    "all its values": lambda: samples.counted(5, 3),
    "a compile-time value": lambda: samples.counted(5, block_N=32),
    "the op": lambda: torch.ops.tileops.sample_counted(5, 3),
    "the overload": lambda: samples.counted.op(5, 3),
    "compiled": lambda: torch.compile(lambda: samples.counted(5) + 1, backend="eager")(),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_default_device_is_followed(name: str) -> None:
    call = CALLS[name]
    with torch.device("meta"):
        assert call().device.type == "meta"
    torch.set_default_device("meta")
    try:
        assert call().device.type == torch.empty(0).device.type == "meta"
    finally:
        torch.set_default_device(None)
    assert call().device.type == "cpu"


def test_a_device_that_is_named_wins() -> None:
    with torch.device("meta"):
        made = samples.counted(3, 1, device="cpu")
        assert (made.device.type, made.tolist()) == ("cpu", [1, 2, 3])
        x = torch.ones(4, device="cpu")
        assert samples.axpy(x, x, 1.0).device.type == "cpu"
