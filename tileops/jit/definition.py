"""A decorated function as data: its parameters by class, its options, and its traces."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any, cast

from tileops import counters, forks, frontend, settings
from tileops.dtypes import DType, dtype_of
from tileops.errors import ArgumentError, ArgumentTypeError, ProgramTypeError
from tileops.ir.extern import declared_written
from tileops.ir.program import Program
from tileops.jit.statics import EMPTY, NotCarriedError, StaticParam, static_param
from tileops.location import Location
from tileops.pass_configs import merged, options_of


@dataclass(frozen=True)
class JitOptions:
    """The arguments of ``jit``, as given."""

    out_idx: list[int] | int | None = None
    target: Any = None
    target_host: Any = None
    execution_backend: str | None = None
    verbose: bool | None = None
    pass_configs: Mapping[Any, object] | None = None
    debug_root_path: str | None = None
    compile_flags: Sequence[str] | str | None = None
    mutates: tuple[str, ...] | None = None
    name: str | None = None
    differentiable: bool | None = None
    autocast: Mapping[str, Any] = field(default_factory=dict)
    contiguous: str = "require"
    cpu: Definition | None = None


@dataclass(frozen=True)
class Definition:
    """A program as its author wrote it.

    ``bound`` holds the values fixed by ``bind``; ``fallback`` a tuner's for missing defaults.
    """

    func: FunctionType
    options: JitOptions
    bound: Mapping[str, object] = field(default_factory=dict)
    fallback: Mapping[str, object] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The op's name without its namespace: ``jit(name=...)``, else the function's own."""
        return (self.options.name or self.func.__name__).rpartition("::")[2]

    @property
    def title(self) -> str:
        """The op's name in messages: with its namespace, unless that is ``tileops``."""
        namespace, _, name = (self.options.name or self.func.__name__).rpartition("::")
        return f"{namespace}::{name}" if namespace not in ("", "tileops") else name

    @property
    def origin(self) -> str:
        """Where the function is defined: ``file:line``."""
        code = self.func.__code__
        return Location(code.co_filename, code.co_firstlineno).place

    @forks.ComputedOnce
    def signature(self) -> frontend.Signature:
        """The parameters by class, from the source; the function is not run."""
        return frontend.signature_of(self.func)

    @forks.ComputedOnce
    def program_options(self) -> tuple[tuple[str, str], ...]:
        """What ``pass_configs`` and ``compile_flags`` add to each trace."""
        return options_of(self.options.pass_configs, self.options.compile_flags)

    @forks.ComputedOnce
    def parameters(self) -> tuple[str, ...]:
        """Names of all parameters, in order."""
        return tuple(p.name for p in self.signature.params)

    @forks.ComputedOnce
    def inputs(self) -> tuple[str, ...]:
        """Names of tensors and run-time scalars, in order."""
        return tuple(p.name for p in self.signature.params if p.kind != "static")

    @forks.ComputedOnce
    def tensors(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.signature.params if p.kind == "tensor")

    @forks.ComputedOnce
    def scalars(self) -> dict[str, str]:
        """The dtypes of run-time scalars by name."""
        scalars = (p for p in self.signature.params if p.kind == "scalar")
        return {p.name: dtype_of(p.annotation).text for p in scalars}

    @forks.ComputedOnce
    def optional(self) -> frozenset[str]:
        """Names of the tensors that a call may leave out: those with None as their default."""
        params = self.signature.params
        return frozenset(p.name for p in params if p.kind == "tensor" and p.default is None)

    @forks.ComputedOnce
    def defaults(self) -> dict[str, object]:
        """Default values of parameters, bound ones included."""
        found = {p.name: self._default(p) for p in self.signature.params}
        return {**{n: v for n, v in found.items() if v is not EMPTY}, **self.bound}

    def _default(self, param: frontend.ParamInfo) -> object:
        if param.default is EMPTY or param.default is None:
            return self.fallback.get(param.name, param.default)
        return param.default

    def statics(self, given: Mapping[str, object]) -> tuple[StaticParam, ...]:
        """The free compile-time parameters; ``given`` values class those that nothing else does."""
        return tuple(
            static_param(p.name, self._default(p), p.annotation, given.get(p.name, EMPTY))
            for p in self.signature.params
            if p.kind == "static" and p.name not in self.bound
        )

    def static_values(self, given: Mapping[str, object]) -> dict[str, object]:
        """Every compile-time parameter with its value; ArgumentTypeError for one without.

        ProgramTypeError for a tensor among those ``given``: its parameter lacks an annotation.
        """
        values: dict[str, object] = {}
        for param in self.signature.params:
            if param.kind != "static":
                continue
            if param.name not in given and param.name not in self.defaults:
                raise ArgumentTypeError(f"{self.name}: missing argument '{param.name}'")
            value: Any = given.get(param.name, self.defaults.get(param.name))
            values[param.name] = value
            # A tensor or array of one dimension or more; others may stand for a number.
            if (
                param.name in given
                and hasattr(value, "dtype")
                and len(getattr(value, "shape", ())) > 0
            ):
                dtype = str(value.dtype).removeprefix("torch.")
                kind = "" if param.annotation is EMPTY else " that makes it a tensor"
                raise ProgramTypeError(
                    f"`{param.name}` has no annotation{kind}; write `{param.name}: "
                    f"T.Tensor(shape, dtype)` in {self.func.__name__}",
                    found=f"a call that passes a tensor for it, {dtype}{list(value.shape)}",
                    location=frontend.location_of_parameter(self.func, param.name),
                )
        return values

    def trace(
        self,
        static: Mapping[str, object],
        consts: Mapping[str, int] | None,
        *,
        wide_sizes: bool = False,
    ) -> Program:
        """One trace of an eager program; ``consts`` None leaves its ``T.const`` sizes symbolic.

        ``static``: values by parameter, dtypes by variable. ``wide_sizes``: 64 bits for sizes.
        """
        target = self.options.target or settings.current().target  # for messages
        names = self.parameters
        dtypes = {n: v for n, v in static.items() if n not in names}
        with counters.timed("trace"):
            program = frontend.trace(
                self.func,
                name=self.name,
                static={n: v for n, v in static.items() if n in names},
                dtypes=cast("dict[str, DType | None]", dtypes),
                consts=consts,
                options=self.program_options,
                target=None if target in (None, "auto") else str(target),
                wide_sizes=wide_sizes,
                signature=self.signature,
            )
        return declared_written(program, frozenset(self.options.mutates or ()))

    def under_configs(
        self, values: Mapping[str, object], consts: Mapping[str, int] | None
    ) -> Callable[[Mapping[str, Any]], Program]:
        """Traces by config: with its values over ``values``, and its ``pass_configs``."""

        def trace(config: Mapping[str, Any]) -> Program:
            chosen, options = split_config(values, config)
            return with_options(self.trace(chosen, consts), options)

        return trace

    def bind_arguments(
        self, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> tuple[dict[str, object], dict[str, object]]:
        """Arguments by parameter name, and the keywords that do not name a parameter."""
        names = [n for n in self.parameters if n not in self.bound]
        return bound_arguments(self.name, names, args, kwargs)

    def bind(self, values: Mapping[str, object]) -> Definition:
        """The definition with compile-time parameters fixed; ArgumentError for another name."""
        known = {p.name: p for p in self.signature.params if p.kind == "static"}
        for name, value in values.items():
            if name not in known:
                raise ArgumentError(
                    f"{self.name}: bind takes compile-time parameters "
                    f"({', '.join(sorted(known)) or 'it has none'}), got '{name}'"
                )
            param = known[name]
            try:
                static_param(name, self._default(param), param.annotation).encode(value)
            except NotCarriedError:
                continue  # what no schema carries is what bind is for
            except ArgumentTypeError as error:
                raise ArgumentTypeError(f"{self.name}: bind: {error}") from None
        return replace(self, bound={**self.bound, **values})


def bound_arguments(
    title: str, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments by name, and the keywords that are not among ``names``; Dynamo can trace it.

    ArgumentTypeError for too many positional arguments or one given twice.
    """
    if len(args) > len(names):
        raise ArgumentTypeError(
            f"{title}: expected at most {len(names)} arguments, got {len(args)}"
        )
    values = dict(zip(names, args))  # noqa: B905 - Dynamo lacks strict=
    others = {}
    for name in kwargs:
        if name in values:
            raise ArgumentTypeError(f"{title}: argument '{name}' given twice")
        if name in names:
            values[name] = kwargs[name]
        else:
            others[name] = kwargs[name]
    return values, others


def _option(name: str) -> Any:  # noqa: ANN401
    return property(operator.attrgetter(f"definition.options.{name}"))


class GivenOptions:
    """The arguments of ``jit``, as given, as attributes of what it returns."""

    definition: Definition
    out_idx = _option("out_idx")
    target = _option("target")
    target_host = _option("target_host")
    execution_backend = _option("execution_backend")
    verbose = _option("verbose")
    pass_configs = _option("pass_configs")
    debug_root_path = _option("debug_root_path")
    compile_flags = _option("compile_flags")
    cpu = _option("cpu")


def with_options(program: Program, options: tuple[tuple[str, str], ...]) -> Program:
    """``program`` with options set over those that it carries."""
    return replace(program, options=merged(dict(program.options), dict(options)))


def split_config(
    values: Mapping[str, object], config: Mapping[str, Any]
) -> tuple[dict[str, object], tuple[tuple[str, str], ...]]:
    """The values with those of a tuner's config over them, and the options that it holds."""
    chosen = dict(config)
    options = options_of(chosen.pop("pass_configs", None), None)
    return {**values, **chosen}, options
