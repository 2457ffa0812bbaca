"""Ops without tensors on a machine with a GPU: the device is what the call says, or the CPU."""

from __future__ import annotations

import pytest

from tests.op import factories

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("device", [None, "cpu", "cuda", "cuda:0", "meta"])
def test_ops_without_tensors(device: str | None) -> None:
    factories.check(device)
