"""Autocast of operators that compute matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


def lowered(*tensors: torch.Tensor | None) -> Iterator[Any]:
    """The tensors in autocast's dtype if it is on; float64 and None stay."""
    device = next(x.device.type for x in tensors if x is not None)
    is_on = torch.is_autocast_enabled(device)
    for x in tensors:
        lowers = is_on and x is not None and x.dtype != torch.float64
        yield x.to(torch.get_autocast_dtype(device)) if x is not None and lowers else x
