"""The dtypes that the tensors of a call give to an op's dtype variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tileops.errors import ArgumentTypeError
from tileops.op.spec import DTypeRule, OpSpec


def bound_dtypes(spec: OpSpec, stored: Mapping[str, str]) -> tuple[str | None, ...]:
    """The tile dtype of each dtype rule; None where no tensor with it was given.

    ``stored`` are the torch dtypes of the given tensors, both by name. ArgumentTypeError for a
    dtype that is not allowed, or two tensors of one rule that differ.
    """
    return tuple(_bound(spec, rule, stored) for rule in spec.dtype_rules)


def _bound(spec: OpSpec, rule: DTypeRule, stored: Mapping[str, str]) -> str | None:
    names = [spec.args[n].name for n in rule.args]
    given = [(name, stored[name]) for name in names if name in stored]
    if not given:
        return None
    first, dtype = given[0]
    found = rule.tile_dtype(dtype)
    if found is None:
        raise ArgumentTypeError(
            f"{spec.name}: argument '{first}': expected dtype {rule.expected} ({rule.name}), got "
            f"{dtype}"
        )
    for name, other in given[1:]:
        if rule.tile_dtype(other) != found:
            raise ArgumentTypeError(
                f"{spec.name}: argument '{name}': expected dtype {dtype}, which '{first}' has "
                f"({rule.name}), got {other}"
            )
    return found


def torch_name(value: Any) -> str | None:  # noqa: ANN401
    """The name of a tensor's torch dtype; None for what has none."""
    dtype = getattr(value, "dtype", None)
    return None if dtype is None else str(dtype).removeprefix("torch.")
