"""Rules of ``torch.vmap`` for ops whose tensors begin with any leading dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def by_rows(program: Callable[..., Any], row_arguments: Sequence[int]) -> Callable[..., Any]:
    """A rule that puts the batch in front of the leading dimensions of ``row_arguments``.

    If another tensor has a batch dimension, its elements are computed one after another.
    """

    def rule(info: Any, in_dims: Sequence[int | None], *inputs: Any, **options: Any) -> Any:
        batched = [n for n, dim in enumerate(in_dims[: len(inputs)]) if dim is not None]
        if set(batched) <= set(row_arguments):
            moved = list(inputs)
            for n in row_arguments:
                if n < len(inputs) and isinstance(inputs[n], torch.Tensor):
                    moved[n] = _in_front(inputs[n], in_dims[n], info.batch_size)
            out = program(*moved, **options)
        else:
            out = _stacked(
                [
                    program(
                        *(_element(x, d, n) for x, d in zip(inputs, in_dims, strict=False)),
                        **options,
                    )
                    for n in range(info.batch_size)
                ]
            )
        return out, tuple(0 for _ in out) if isinstance(out, tuple) else 0

    return rule


def _in_front(tensor: torch.Tensor, dim: int | None, size: int) -> torch.Tensor:
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _element(value: Any, dim: int | None, index: int) -> Any:
    return value if dim is None else value.select(dim, index)


def _stacked(results: list[Any]) -> Any:
    if isinstance(results[0], tuple):
        return tuple(torch.stack(parts) for parts in zip(*results, strict=True))
    return torch.stack(results)
