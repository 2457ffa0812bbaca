"""Makes the lazy twin of an eager program: a ``T.prim_func`` of the same function."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import FunctionType, SimpleNamespace
from typing import Any

import tileops
import tileops.language as T
from tileops.jit.specialising import specialise


def lazy_twin(impl: Any, inputs: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """The kernel that a lazy program with the sizes of ``inputs`` makes of the function of ``impl``.

    A lazy program has its compile-time arguments and its ``T.const`` sizes as Python values from
    around it, so both are fixed here: the one as defaults, the other under the name ``T``.
    """
    definition = impl.definition
    made = specialise(definition, inputs, options)
    prim_func = T.prim_func(_bound(definition.func, made.static, made.consts))
    return tileops.compile(
        prim_func,
        pass_configs=definition.options.pass_configs,
        compile_flags=definition.options.compile_flags,
    )


def _bound(
    func: FunctionType, static: Mapping[str, object], consts: Mapping[str, int]
) -> FunctionType:
    language = SimpleNamespace(**{name: getattr(T, name) for name in T.__all__})
    language.const = lambda names, dtype="int32": _values(names, consts)
    language.DTypeVar = lambda name, *dtypes: T.dtype(static[name])
    scope = {**func.__globals__, "T": language}
    twin = FunctionType(func.__code__, scope, func.__name__, func.__defaults__, func.__closure__)
    twin.__doc__ = func.__doc__
    twin.__annotations__ = dict(func.__annotations__)
    signature = inspect.signature(func)
    twin.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[
            p.replace(annotation=p.empty, default=static[p.name]) if p.name in static
            else p.replace(default=p.empty)
            for p in signature.parameters.values()
        ]
    )  # fmt: skip
    return twin


def _values(names: str, consts: Mapping[str, int]) -> Any:
    values = tuple(consts[name] for name in names.replace(",", " ").split())
    return values[0] if len(values) == 1 else values
