"""Rotary embedding: attention modules whose forward calls ``apply_rotary_pos_emb``.

The function is a global of the module's file, which others use too. The instance gets a copy of its
forward with a global of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any

import torch
from torch import nn

from tileops import ops
from tileops.patching import fingerprint
from tileops.patching.sites import Match, Skip

NAME = "apply_rotary_pos_emb"


Rotation = Callable[..., tuple[torch.Tensor, torch.Tensor]]
# Parts of a head that share their angles.
VARIANTS = {"angles of whole heads": 1, "angles of half heads": 2}


def rotation(own: Rotation, parts: int) -> Rotation:
    """``ops.rope`` with the arguments of ``own``, which gets what ``ops.rope`` does not take."""

    def rotate(
        q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor,
        unsqueeze_dim: int = 1,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        if q.dim() != 4 or q.shape[-1] != cos.shape[-1] * parts or unsqueeze_dim not in (1, 2):
            return own(q, k, cos, sin, unsqueeze_dim)
        if parts == 2:
            cos, sin = (torch.cat((x, x), -1) for x in (cos, sin))
        if q.dtype != cos.dtype:
            wide = torch.promote_types(q.dtype, cos.dtype)
            q, k = q.to(wide), k.to(wide)
        return ops.rope(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim)

    return rotate


def recognise(module: nn.Module) -> Match | Skip | None:
    """The rotation that ``module`` calls; None if it calls none of that name."""
    forward: Any = type(module).forward
    own = global_of(forward, NAME)
    if not callable(own):
        return None
    reasons = []
    for name, parts in VARIANTS.items():
        function = rotation(own, parts)
        reason = _difference(own, function, parts)
        if reason is None:
            return Match("rope", name, with_global(forward, function), 1.0)
        reasons.append(f"{name}: {reason}")
    return Skip("rope", "; ".join(reasons))


def _difference(own: Callable[..., Any], function: Callable[..., Any], parts: int) -> str | None:
    """Why the functions are not the same in float64; None if they are."""
    cpu: Any = {"dtype": torch.float64, "device": torch.device("cpu")}
    q, k = (fingerprint.random(2, heads, 5, 8, **cpu, seed=heads) for heads in (4, 2))
    cos, sin = (fingerprint.random(2, 5, 8 // parts, **cpu, seed=n) for n in (5, 6))
    if parts == 1:  # halves may be equal, as all models have them
        cos, sin = (x[..., :4].repeat(1, 1, 2) for x in (cos, sin))
    try:
        expected = own(q, k, cos, sin)
        found = function(q, k, cos, sin)
        apart = max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True))
    except Exception as error:  # whatever a foreign function raises is a reason to leave it
        return str(error).splitlines()[0]
    return None if apart < 1e-12 else f"differs by {apart:.1e}"


def global_of(function: Any, name: str, depth: int = 4) -> Any:
    """What a function, or one that it wraps, finds under the global ``name``; None for nothing."""
    if not isinstance(function, FunctionType) or depth == 0:
        return None
    if name in function.__code__.co_names and name in function.__globals__:
        return function.__globals__[name]
    inner = (global_of(value, name, depth - 1) for value in _cells(function))
    return next((found for found in inner if found is not None), None)


def _cells(function: FunctionType) -> list[Any]:
    return [cell.cell_contents for cell in function.__closure__ or () if _is_full(cell)]


def _is_full(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises
    except ValueError:
        return False
    return True


def with_global(function: FunctionType, value: Callable[..., Any]) -> FunctionType:
    """A copy of ``function``, through its wrappers, that calls ``value`` for the rotation."""
    names = function.__globals__
    closure = function.__closure__
    if NAME in function.__code__.co_names and NAME in names:
        # Dynamo looks up globals in the module of their __name__; without one it takes them as
        # they are.
        names = {k: v for k, v in names.items() if k != "__name__"} | {NAME: value}
    elif closure is not None:
        closure = tuple(
            CellType(with_global(cell.cell_contents, value))
            if _is_full(cell) and global_of(cell.cell_contents, NAME) is not None
            else cell
            for cell in closure
        )
    new = FunctionType(function.__code__, names, function.__name__, function.__defaults__, closure)
    new.__kwdefaults__ = function.__kwdefaults__
    new.__dict__.update(function.__dict__)
    new.__qualname__ = function.__qualname__
    return new
