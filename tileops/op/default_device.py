"""Owns what ops without tensors make of torch's default device."""

from __future__ import annotations

from typing import Any

import torch

from tileops.op.spec import OpSpec


def follow(spec: OpSpec, name: str) -> None:
    """Let the op of ``spec``, known as ``name``, create its outputs where torch's factories do.

    ``torch.set_default_device`` and ``with torch.device(...)`` fill in the device of the functions
    in one set of torch's; calls of others, custom operators included, they leave alone.
    """
    if not any(arg.role == "device" for arg in spec.args):
        return
    from torch.utils import _device

    packet = getattr(getattr(torch.ops, spec.namespace), name)
    known: set[Any] = _device._device_constructors()
    known.update((packet, packet.default))
