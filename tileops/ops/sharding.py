"""How the operators may be divided among devices: rules for ``torch.distributed.tensor``.

A rule gets the arguments of an op and lists what one dimension of a mesh can do: placements of the
results and of the tensors among the arguments. The rules are registered when a DTensor comes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

Placements = list[Any]
Rule = Callable[..., Sequence[tuple[Placements, Placements]]]

_waiting: list[tuple[str, Rule]] = []


def add(op: str, rule: Rule) -> None:
    """Register ``rule`` for ``op`` (``namespace::name``), now or when DTensor is first used."""
    _waiting.append((op, rule))
    register()


def register() -> None:
    """Give torch the rules that wait, if its DTensor is loaded."""
    if "torch.distributed.tensor" not in sys.modules:
        return
    from torch.distributed.tensor.experimental import register_sharding

    while _waiting:
        op, rule = _waiting.pop()
        namespace, name = op.split("::")
        register_sharding(getattr(getattr(torch.ops, namespace), name).default)(rule)


def by_rows(row_arguments: Sequence[int], results: str, *, any_dimension: bool = False) -> Rule:
    """A rule of an op over rows, which are independent.

    row_arguments: positions of the tensors that have the leading dimensions; others are whole.
    results:       a letter for each result: "r" has the leading dimensions, "w" is a sum over all
                   rows.
    any_dimension: the last dimension may be divided, too.
    """

    def rule(*arguments: Any, **options: Any) -> Sequence[tuple[Placements, Placements]]:
        from torch.distributed.tensor import Partial, Replicate, Shard

        rank = max(_rank(arguments[n]) for n in row_arguments)
        leading = rank if any_dimension else rank - 1
        tensors = [n for n, value in enumerate(arguments) if _is_tensor(value)]
        whole: Placements = [Replicate() for _ in tensors]
        found = [(_placed(results, Replicate(), Replicate()), whole)]
        for dim in range(leading):
            inputs: Placements = [
                Shard(dim) if n in row_arguments else Replicate() for n in tensors
            ]
            found.append((_placed(results, Shard(dim), Partial()), inputs))
        return found

    return rule


def _placed(results: str, rows: Any, sums: Any) -> Placements:
    return [rows if letter == "r" else sums for letter in results]


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "placements") and hasattr(value, "tensor_meta")


def _rank(value: Any) -> int:
    return len(value.tensor_meta.shape) if _is_tensor(value) else 0


def rope_rule(
    query: Any, key: Any, cos: Any, sin: Any, per_batch: bool = False, **options: Any
) -> Sequence[tuple[Placements, Placements]]:
    """Batch, heads and positions may be divided; cosines and sines follow where they have them."""
    from torch.distributed.tensor import Replicate, Shard

    found: list[tuple[Placements, Placements]] = []
    for dim, of_angles in (
        (None, None), (0, 0 if per_batch else None), (1, None), (2, 1),
    ):  # fmt: skip
        heads = Replicate() if dim is None else Shard(dim)
        angles = Replicate() if of_angles is None else Shard(of_angles)
        found.append(([heads, heads], [heads, heads, angles, angles]))
    return found
