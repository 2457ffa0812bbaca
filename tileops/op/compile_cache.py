"""Owns what torch's caches of compiled graphs must know of an op beyond its name.

Those caches outlive the process and know an op by name alone: after an edit of its shapes, of what
it writes or of its gradient they would bring back the graph of before.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from tileops import forks
from tileops.op.spec import OpSpec
from tileops.op.variant import Variant

# Functions of these are known by their versions, which torch's keys hold or which are Python's.
_KNOWN = frozenset(("torch", "tileops", "numpy", "builtins")) | sys.stdlib_module_names
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def note(spec: OpSpec, variant: Variant, rules: str) -> None:
    """Make the keys of what is compiled from now on depend on what a graph has taken from an op.

    Called when a graph is traced; ``rules`` stands for the op's gradient, batching and autocast.
    """
    import torch

    # AOTAutograd asks its cache before it traces. What a backward pass calls comes later, is in no
    # key, and would make those of other graphs depend on what the cache had.
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
    """Make the keys of what is compiled depend on the symbolic numbers that an op was given.

    A compiled graph holds the value of a Python float that an op takes, and torch guards on it. The
    cache of AOTAutograd does not: it knows such a float as an input, and its guards as those of
    sizes alone, so that it would bring back the graph of another value.
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
        # Of this graph alone: a later one with other values may not find what this one left.
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
    """Whether a graph is recorded by ``torch.fx``: a variable, from torch 2.14 on of the thread."""
    from torch.fx import _symbolic_trace

    getter = getattr(_symbolic_trace, "_get_is_fx_tracing", None)
    return bool(_symbolic_trace._is_fx_tracing_flag if getter is None else getter())


def described(*values: object) -> str:
    """A digest of functions and values: their code, and that of the functions that they use."""
    digest = hashlib.sha256()
    seen: set[int] = set()
    for value in values:
        for part in _parts(value, seen):
            digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()


def _parts(value: object, seen: set[int]) -> Iterator[str]:
    match _behind(value):
        case FunctionType() as function if _is_known(function.__module__):
            yield f"{function.__module__}.{function.__qualname__}"
        case FunctionType() as function:
            yield from _function(function, seen)
        case functools.partial() as partial:
            for part in (partial.func, partial.args, partial.keywords):
                yield from _parts(part, seen)
        case tuple() | list() | set() | frozenset() | Mapping() as container:
            yield from _members(container, seen)
        case other:
            yield type(other).__qualname__
            yield _text(other)


def _members(container: Collection[object], seen: set[int]) -> Iterator[str]:
    yield f"{type(container).__qualname__} {len(container)}"
    if id(container) in seen:  # it may hold itself
        return
    seen.add(id(container))
    is_ordered = isinstance(container, (tuple, list))
    for item in container if is_ordered else sorted(container, key=repr):
        yield from _parts(item, seen)
        if isinstance(container, Mapping):
            yield from _parts(container[item], seen)


def _behind(value: object) -> object:
    """The function of a bound method, a program or another wrapper."""
    if isinstance(value, MethodType):
        return value.__func__
    inner = getattr(value, "__dict__", {}).get("__wrapped__")
    return value if inner is None or isinstance(value, FunctionType) else inner


def _text(value: object) -> str:
    if isinstance(value, (type, BuiltinFunctionType)):
        return f"{value.__module__}.{value.__qualname__}"
    kind = type(value)
    is_of_torch = kind.__module__ == "torch._ops" or kind.__qualname__ == "dtype"
    return str(value) if is_of_torch or isinstance(value, _PLAIN) else ""


def _is_known(module: str | None) -> bool:
    return (module or "").partition(".")[0] in _KNOWN


def _function(function: FunctionType, seen: set[int]) -> Iterator[str]:
    if id(function) in seen:
        return
    seen.add(id(function))
    yield from _code(function.__code__)
    yield from _parts(function.__defaults__, seen)
    yield from _parts(function.__kwdefaults__, seen)
    for cell in function.__closure__ or ():
        try:
            yield from _parts(cell.cell_contents, seen)
        except ValueError:  # not filled yet
            yield "empty"
    names = sorted(_names(function.__code__))
    for name in names:
        used = function.__globals__.get(name)
        if not isinstance(used, ModuleType):
            yield from _parts(used, seen)
        elif not _is_known(used.__name__):
            for member in names:
                yield from _parts(vars(used).get(member), seen)


def _code(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        else:
            yield from _parts(constant, set())


def _names(code: CodeType) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
    return found
