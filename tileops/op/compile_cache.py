"""What torch's caches of compiled graphs must know of an op beyond its name.

Those caches outlive the process and know an op by name alone: after an edit of its shapes, of what
it writes or of its gradient they would bring back the graph of before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tileops import forks
from tileops.op.spec import OpSpec
from tileops.op.variant import Variant


def note(spec: OpSpec, variant: Variant, rules: str) -> None:
    """Make later compilations' keys depend on what a traced graph took of an op and its rules."""
    import torch

    # AOTAutograd asks its cache before it traces. What a backward pass calls comes later and is in
    # no key; noting it would make the keys of other graphs depend on what the cache had.
    context = torch._guards.TracingContext.try_get()
    if context is None or context.fw_metadata is not None or _is_recorded():
        return
    from torch._inductor import config

    name = f"{spec.qualified_name}{json.dumps([repr(v) for v in variant.static])}"
    content = json.dumps([spec.schema, variant.to_json(), rules], default=repr)
    digest = hashlib.sha256(content.encode()).hexdigest()
    with forks.guard:
        known = config.unsafe_marked_cacheable_functions
        if known.get(name) != digest:
            _set_in_keys(config, {name: digest})


def note_numbers(op: str, numbers: Sequence[Any]) -> None:
    """Make the keys of compilations depend on the symbolic numbers that an op was given.

    A compiled graph holds the value of a Python float. AOTAutograd's cache keeps the guards of
    sizes alone, and would bring back the graph of another value.
    """
    import torch
    from torch._inductor import config
    from torch.fx.experimental.symbolic_shapes import free_symbols, guard_scalar
    from torch.utils._sympy.symbol import SymT, symbol_is_type

    context = torch._guards.TracingContext.try_get()
    if context is None or context.fw_metadata is not None:
        return
    found = [
        guard_scalar(number)
        for number in numbers
        if any(symbol_is_type(symbol, SymT.FLOAT) for symbol in free_symbols(number))
    ]
    if not found:
        return
    with forks.guard:
        # Of this graph alone: an earlier graph's values must not get into a later one's keys.
        if _numbers.get("context") is not context:
            _numbers.update(context=context, seen=[])
        _numbers["seen"].append([op, *map(repr, found)])
        digest = hashlib.sha256(json.dumps(_numbers["seen"]).encode()).hexdigest()
        _set_in_keys(config, {"tileops: symbolic numbers": digest})


_numbers: dict[str, Any] = {}


def _set_in_keys(config: Any, values: Mapping[str, str]) -> None:  # noqa: ANN401
    # Only an assignment tells the module that its own digest is stale.
    known = config.unsafe_marked_cacheable_functions
    config.unsafe_marked_cacheable_functions = dict(sorted({**known, **values}.items()))


def _is_recorded() -> bool:
    """Whether ``torch.fx`` records a graph; from torch 2.14 on, one of this thread."""
    from torch.fx import _symbolic_trace

    getter = getattr(_symbolic_trace, "_get_is_fx_tracing", None)
    return bool(_symbolic_trace._is_fx_tracing_flag if getter is None else getter())
