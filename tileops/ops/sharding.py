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


def qk_norm_rope_rule(
    query: Any, key: Any, cos: Any, sin: Any, *others: Any, per_batch: bool = False, **options: Any
) -> Sequence[tuple[Placements, Placements]]:
    """As ``rope_rule``; weights are whole."""
    from torch.distributed.tensor import Replicate

    whole = [Replicate() for x in others if _is_tensor(x)]
    found = rope_rule(query, key, cos, sin, per_batch=per_batch)
    return [(results, [*inputs, *whole]) for results, inputs in found]


def scaled_mm_rule(
    A: Any, B: Any, scale_a: Any, scale_b: Any, bias: Any = None, scale_result: Any = None, *,
    by_row: bool = False, **options: Any,
) -> Sequence[tuple[Placements, Placements]]:  # fmt: skip
    """Rows of the first matrix or columns of the second one may be divided, never the sum."""
    rows, columns = [A], [B, bias]
    if by_row:
        rows.append(scale_a)
        columns.append(scale_b)
    return _of_product((A, B, scale_a, scale_b, bias, scale_result), rows, columns)


def int4_linear_rule(
    X: Any, W: Any, scales: Any, zeros: Any = None, bias: Any = None, *numbers: Any, **options: Any
) -> Sequence[tuple[Placements, Placements]]:
    """Rows or features of the result may be divided, never the sum."""
    return _of_product((X, W, scales, zeros, bias), [X], [W, scales, zeros, bias])


def _of_product(
    given: Sequence[Any], of_rows: Sequence[Any], of_columns: Sequence[Any]
) -> Sequence[tuple[Placements, Placements]]:
    """Placements of tensors whose leading dimensions are those of the result, or the last one."""
    from torch.distributed.tensor import Replicate, Shard

    tensors = [x for x in given if _is_tensor(x)]
    rank = _rank(of_rows[0])

    def placed(which: Sequence[Any], dim: int) -> Placements:
        return [Shard(dim) if any(x is y for y in which) else Replicate() for x in tensors]

    found: list[tuple[Placements, Placements]] = [([Replicate()], placed((), 0))]
    found += [([Shard(dim)], placed(of_rows, dim)) for dim in range(rank - 1)]
    found.append(([Shard(rank - 1)], placed(of_columns, 0)))
    return found


def attention_rule(
    Q: Any, K: Any, V: Any, sinks: Any = None, **options: Any
) -> Sequence[tuple[Placements, Placements]]:
    """Batch and heads may be divided, heads only into whole groups that share a key head."""
    inputs = [_Heads(x, options[f"{n}_heads_first"]) for x, n in zip((Q, K, V), "qkv", strict=True)]
    results = [_Heads(Q, False), _Heads(Q, True, last=1)]
    return _of_heads(results, inputs, 1, (sinks,), K)


def attention_backward_rule(
    dOut: Any, Out: Any, Q: Any, K: Any, V: Any, log_sums: Any, d_log_sums: Any = None,
    **options: Any,
) -> Sequence[tuple[Placements, Placements]]:  # fmt: skip
    """As in the forward pass."""
    given = [_Heads(x, options[f"{n}_heads_first"]) for x, n in zip((Q, K, V), "qkv", strict=True)]
    sums = [_Heads(Q, True, last=1) for x in (log_sums, d_log_sums) if _is_tensor(x)]
    results = [*given, _Heads(Q, True, last=1), _Heads(Q, False)]
    return _of_heads(results, [_Heads(dOut, False), _Heads(Out, False), *given, *sums], 3, (), K)


def varlen_attention_rule(
    Q: Any, K: Any, V: Any, query_starts: Any, key_starts: Any, sinks: Any = None, *others: Any,
    **options: Any,
) -> Sequence[tuple[Placements, Placements]]:  # fmt: skip
    """Heads may be divided, into whole groups that share a key head."""
    results = [_Heads(Q, False), _Heads(Q, True)]
    return _of_heads(results, [_Heads(x, False) for x in (Q, K, V)], 1, (sinks,), K, starts=2)


def varlen_attention_backward_rule(
    dOut: Any, Out: Any, Q: Any, K: Any, V: Any, query_starts: Any, key_starts: Any, log_sums: Any,
    d_log_sums: Any = None, *others: Any, **options: Any,
) -> Sequence[tuple[Placements, Placements]]:  # fmt: skip
    """As in the forward pass."""
    sums = [x for x in (log_sums, d_log_sums) if _is_tensor(x)]
    results = [*(_Heads(x, False) for x in (Q, K, V)), _Heads(Q, True)]
    inputs = [_Heads(x, False) for x in (dOut, Out, Q, K, V)]
    return _of_heads(results, inputs, 3, (), K, starts=2, after=[_Heads(Q, True) for _ in sums])


class _Heads:
    """A tensor of attention: leading dimensions, and that of its heads."""

    def __init__(self, value: Any, heads_first: bool, *, last: int = 2) -> None:
        self.leading = _rank(value) - 3
        self.heads = self.leading if heads_first else self.leading + last - 1


def _of_heads(
    results: Sequence[_Heads], inputs: Sequence[_Heads], key: int, sinks: Sequence[Any], K: Any, *,
    starts: int = 0, after: Sequence[_Heads] = (),
) -> Sequence[tuple[Placements, Placements]]:  # fmt: skip
    """Placements of tensors with heads, then ``starts`` whole ones, then others and sinks.

    ``key`` is the place of the keys ``K`` among the inputs.
    """
    from torch.distributed.tensor import Replicate, Shard

    whole: Placements = [Replicate() for _ in range(starts)]
    beside: Placements = [Replicate() for sink in sinks if _is_tensor(sink)]
    everything: Placements = [Replicate() for _ in (*inputs, *whole, *after, *beside)]
    found: list[tuple[Placements, Placements]] = [([Replicate() for _ in results], everything)]
    for dim in range(inputs[0].leading):
        batch = [Shard(dim) for _ in inputs]
        found.append(([Shard(dim) for _ in results], [*batch, *beside]))
    if K.tensor_meta.shape[inputs[key].heads] % K.mesh.size() == 0:
        placed = [Shard(x.heads) for x in inputs], [Shard(x.heads) for x in after]
        given = [*placed[0], *whole, *placed[1], *(Shard(0) for _ in beside)]
        found.append(([Shard(x.heads) for x in results], given))
    return found
