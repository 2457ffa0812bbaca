"""Ops without tensors: real and fake agree on the device, whatever devices the machine has."""

from __future__ import annotations

import torch
from torch._subclasses import FakeTensorMode

from tests.programs import samples


def check(device: str | None) -> None:
    """Where the device is left out, it is the CPU, as for torch's own factories."""
    keywords = {} if device is None else {"device": device}
    made = samples.counted(9, **keywords)
    assert made.device == torch.empty(0, **keywords).device
    with FakeTensorMode():
        assert samples.counted(9, **keywords).device == made.device
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(samples.counted.op, (9, 0), keywords, test_utils=tests)
