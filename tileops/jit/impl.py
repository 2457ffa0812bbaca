"""JITImpl, which ``@tileops.jit`` returns: its call is plain Python that ends in a torch op."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from tileops import runtime
from tileops.errors import ArgumentError, ArgumentTypeError, ProgramError
from tileops.ir.program import Program
from tileops.jit.compiling import run_all
from tileops.jit.definition import Definition, GivenOptions, bound_arguments
from tileops.jit.eager import EagerProvider
from tileops.jit.kernel import JITKernel, make_kernel
from tileops.jit.lazy import LazyKernels
from tileops.jit.provider import Build, Transformable
from tileops.jit.specialising import Specialised, specialise
from tileops.jit.statics import (
    NotCarriedError,
    StaticParam,
    constant,
    freeze,
    freeze_all,
    traceable,
    with_constant_sizes,
)
from tileops.jit.targets import requested_target
from tileops.op import call_inputs, gradient
from tileops.op.registration import Op, refuse_capture
from tileops.optional_torch import IS_HERE, forward_ad, torch

# What a value of a schema type is to Python, exactly: such values need no conversion.
_EXACT: dict[str | None, type] = {"int": int, "bool": bool, "float": float, "str": str}


class JITImpl(GivenOptions, Transformable):
    """A tile program that is compiled on demand.

    A call of an *eager* function compiles if it must, runs, and returns the outputs; the program is
    the torch op ``torch.ops.tileops.<name>``. A *lazy* function returns a ``T.prim_func``: a call
    returns a JITKernel. Which of the two is decided from the source.
    """

    # What a call reads is set once, at decoration: Dynamo guards on it. Methods marked as constant
    # run once, when a call is traced, and what they return (text, a bool) is a constant from then.
    _op: Any
    # What lets a plain call reach ``_op`` without running ``__call__``, or None.
    _direct: object
    __slots__ = ("_direct",)

    def __init__(
        self, definition: Definition, is_derived: bool = False, eager: EagerProvider | None = None
    ) -> None:
        functools.update_wrapper(self, definition.func)
        whole = inspect.signature(definition.func)
        free = [p for n, p in whole.parameters.items() if n not in definition.bound]
        self.__signature__ = whole.replace(parameters=free)
        options = definition.options
        self.definition = definition
        self._title = definition.title
        self._is_derived = is_derived
        self._is_lazy = definition.signature.mode == "lazy"
        self._differentiable = options.differentiable
        self._build = Build(
            requested_target(options.target), bool(options.verbose), options.debug_root_path
        )
        self._lazy = LazyKernels(definition, self._build)
        self._eager = eager or EagerProvider(definition, self._build)
        self._eager.on_retired = self._forget_op
        self._eager.is_tuned = self.is_tuned
        self._bindings: dict[object, JITImpl] = {}
        self._names = tuple(n for n in definition.parameters if n not in definition.bound)
        self._inputs = definition.inputs
        self._input_defaults = {n: v for n, v in definition.defaults.items() if n in self._inputs}
        self._guarded = tuple(n for n, i in enumerate(self._inputs) if i in definition.tensors)
        self._optional = tuple(n for n in self._guarded if self._inputs[n] in definition.optional)
        self._scalars = tuple(
            (n, call_inputs.kind_of(definition.scalars[i]))
            for n, i in enumerate(self._inputs)
            if i in definition.scalars
        )
        self._exact: dict[str, type] = {}
        self._is_direct = False  # a call with values of the schema's own types goes to the op
        self._count = -1  # of arguments that are passed on as they come
        eager_only = {
            "autocast": bool(options.autocast),
            "contiguous": options.contiguous != "require",
            "cpu": options.cpu is not None,
        }
        if self._is_lazy and any(eager_only.values()):
            name = next(name for name, is_given in eager_only.items() if is_given)
            raise ArgumentError(f"{self._title}: {name} belongs to eager programs")
        if not self._is_lazy and options.out_idx is not None:
            raise ArgumentError(
                f"{self._title}: out_idx belongs to lazy functions; an eager program returns what "
                "it allocates with T.empty"
            )
        if not self._is_lazy and not self._build.is_interpreted:
            self._register_now()

    def _register_now(self) -> None:
        """Register an eager program whose trace needs no value from a caller."""
        statics = self.definition.statics({})
        if any(p.is_required for p in statics):
            return
        try:
            op = self._eager.register({}, is_derived=self._is_derived)
        except ProgramError:
            return  # only some arguments make it a program; the first call says what is wrong
        if not IS_HERE:
            return
        self._exact = {p.name: _EXACT[p.kind] for p in statics if p.kind in _EXACT}
        self._is_direct = not self._eager.wraps_result
        if self._is_direct and not self._optional:
            self._count = len(self._inputs)
        self._keep_op(op.overload)

    # -- calling -----------------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Run an eager program, or build the kernel of a lazy one."""
        if kwargs or len(args) != self._count or forward_ad._current_level >= 0:
            return self._call_general(args, kwargs)
        # torch takes nearly anything for a number or a bool, and cuts it silently.
        for n, kind in self._scalars:
            if type(args[n]) is not kind:
                return self._call_general(args, kwargs)
        try:
            return self._op(*args)
        except RuntimeError as error:
            self._explain(args, error)
            raise

    _own_call = __call__  # another one that is put in its place sees every call

    def _call_general(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        if self._is_lazy:
            return self._call_lazy(args, kwargs)
        inputs, given, extra = self._split(args, kwargs)
        for n in self._guarded:
            is_left_out = n in self._optional and inputs[n] is None
            if not is_left_out and not isinstance(inputs[n], (torch.Tensor, torch.fx.Proxy)):
                call_inputs.refuse_tensor(self._title, self._inputs[n], inputs[n])
        for n, kind in self._scalars:
            if type(inputs[n]) is not kind:
                name = self._inputs[n]
                where = f"{self._title}: argument '{name}'"
                inputs[n] = call_inputs.scalar(where, self.definition.scalars[name], inputs[n])
        if self._build.is_interpreted:
            from tileops.jit.interpreted import call

            values = {**dict(zip(self._inputs, inputs, strict=True)), **given}
            return call(self.definition, self._build, values, **extra)
        if forward_ad._current_level >= 0 and self._differentiable is not False:
            gradient.refuse_tangents(self._title, inputs)
        try:
            are_exact = all(n in self._exact and type(given[n]) is self._exact[n] for n in given)
            if self._is_direct and are_exact:
                return self._op(*inputs, **given, **extra)
            return self._call_routed(inputs, given, extra)
        except RuntimeError as error:
            self._explain(inputs, error)
            raise

    def _split(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
        """Inputs in order, compile-time values by name, and ``device`` if there are no tensors."""
        values, extra = bound_arguments(self._title, self._names, args, kwargs)
        for name in extra:
            if name != "device" or self._guarded:
                raise ArgumentTypeError(f"{self._title}: unexpected argument '{name}'")
        inputs = []
        for name in self._inputs:
            if name in values:
                inputs.append(values.pop(name))
            elif name in self._input_defaults:
                inputs.append(self._input_defaults[name])
            else:
                raise ArgumentTypeError(f"{self._title}: missing argument '{name}'")
        return inputs, values, extra

    def _call_routed(self, inputs: list[Any], given: dict[str, Any], extra: dict[str, Any]) -> Any:  # noqa: ANN401
        """A call that may register the op first, or has values that need converting or binding."""
        names = tuple(given)
        is_traced = torch.compiler.is_compiling()
        values: list[Any] = [traceable(v) if is_traced else v for v in given.values()]
        namespace, name, wraps, carried = self._route(names, *values).split("::")
        statics: dict[str, object] = {}
        for key, value in zip(names, values):  # noqa: B905 - Dynamo lacks strict=
            if key in carried.split(","):
                is_list = isinstance(value, (list, tuple))
                statics[key] = list(value) if is_list else self._encoded(key, value)
        result = getattr(getattr(torch.ops, namespace), name)(*inputs, **statics, **extra)
        return (result,) if wraps == "tuple" else result

    def _call_lazy(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> JITKernel:
        if not torch.compiler.is_compiling():
            return self._lazy.kernel(args, kwargs)
        plain = [with_constant_sizes(v) for v in args]
        named = {k: with_constant_sizes(v) for k, v in kwargs.items()}
        return JITKernel(self._lazy_name(*plain, **named))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        # Missing until the op is registered, and again after a redefinition has retired it.
        if name != "_op":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        namespace, op_name, _, _ = self._route(()).split("::")
        op = getattr(getattr(torch.ops, namespace), op_name).default
        if not torch.compiler.is_compiling():
            self._keep_op(op)
        return op

    def _keep_op(self, op: Any) -> None:  # noqa: ANN401
        self._op = op
        if self._count >= 0 and type(self) is JITImpl and JITImpl.__call__ is JITImpl._own_call:
            args = self._eager.op.spec.args if self._eager.op is not None else ()
            asks = self._differentiable is not False or any(a.mutated for a in args)
            self._direct = runtime.direct_call(
                JITImpl, op._op, self._count, self._guarded, self._scalars, asks_gradient=asks
            )

    def _forget_op(self) -> None:
        self._direct = None
        self.__dict__.pop("_op", None)

    def _explain(self, inputs: Sequence[Any], error: Exception) -> None:
        """Raise what is wrong with inputs that torch refused, if that is why a call failed."""
        if not torch.compiler.is_compiling():
            call_inputs.explain(
                self._title, dict(zip(self._inputs, inputs, strict=False)),
                self.definition.optional, self.definition.scalars, error,
            )  # fmt: skip

    # -- constants of a traced call ----------------------------------------------------------------
    def routed(self, given: Mapping[str, object]) -> tuple[EagerProvider, Op, dict[str, object]]:
        """The op that takes a call with these compile-time values, and those that it carries."""
        self.definition.static_values(given)  # refuses a call that leaves out a required one
        program, carried = self._carrier(given)
        op = program._eager.register(carried, is_derived=program._is_derived)
        return program._eager, op, carried

    def _carrier(self, given: Mapping[str, object]) -> tuple[JITImpl, dict[str, object]]:
        """The program, bound to values that no schema carries, and those that its op carries."""
        params = self._params(given)
        carried: dict[str, object] = {}
        bound: dict[str, object] = {}
        for name, value in given.items():
            param = params[name]
            if param.says_nothing(value, is_tuned=self.is_tuned):
                continue
            try:
                param.encode(value)
                carried[name] = value
            except NotCarriedError:
                bound[name] = value
            except ArgumentTypeError as error:
                raise ArgumentTypeError(f"{self._title}: {error}") from None
        return self.bind(**bound)._carrier(carried) if bound else (self, carried)

    @constant
    def _route(self, names: tuple[str, ...], *values: object) -> str:
        """Where a call goes: ``namespace::op::tuple or plain::names the schema carries``."""
        provider, op, carried = self.routed(dict(zip(names, values, strict=True)))
        wraps = "tuple" if provider.wraps_result else "plain"
        return f"{op.spec.namespace}::{op.spec.name}::{wraps}::{','.join(carried)}"

    def _params(self, given: Mapping[str, object]) -> dict[str, StaticParam]:
        params = {p.name: p for p in self.definition.statics(given)}
        if self._eager.op is not None:  # the schema is fixed; what it lacks can only be bound
            params = {n: StaticParam(n, None, p.default) for n, p in params.items()}
            params.update((p.name, p) for p in self._eager.statics)
        return params

    @constant
    def _encoded(self, name: str, value: object) -> object:
        return self._params({name: value})[name].encode(value)

    @constant
    def _lazy_name(self, *args: object, **kwargs: object) -> str:
        return self._lazy.kernel(args, kwargs).name

    def _transformed(self, method: str) -> EagerProvider:
        if self._is_lazy:
            raise ArgumentError(
                f"{self._title}: a lazy function has an op for each of its kernels; call {method} "
                "of a kernel"
            )
        if method == "register_autograd" and self._differentiable is False:
            raise ArgumentError(f"{self._title}: with differentiable=False it gets no gradient")
        return self._eager

    # -- building ----------------------------------------------------------------------------------
    def bind(self, **values: object) -> JITImpl:
        """This program with compile-time parameters fixed, as an op of its own.

        ``f.bind(act=relu)``: for values that a schema cannot carry, such as functions. Equal
        bindings give the same object. ArgumentError for a name that is not a compile-time one.
        """
        key = frozenset((name, freeze(value)) for name, value in values.items())
        found = self._bindings.get(key)
        if found is None:
            found = self._bindings.setdefault(key, self._derived(self.definition.bind(values)))
        return found

    def _derived(self, definition: Definition) -> JITImpl:
        return JITImpl(definition, is_derived=True)

    def unload(self) -> None:
        """Free the program's loaded kernels on all devices, bound forms included; its op stays.

        The next call loads them again from the cache, without a compile. Waits for calls and
        kernels that run. A CUDA graph that holds such a kernel may not be replayed afterwards.
        ArgumentError while torch's current stream on a device records a graph.
        """
        refuse_capture(f"{self._title}: unload")
        self._lazy.unload()
        self._eager.unload()
        for bound in tuple(self._bindings.values()):
            bound.unload()

    def compile(self, *args: Any, **kwargs: Any) -> JITKernel:  # noqa: ANN401
        """The compiled kernel for these arguments.

        Lazy: the arguments of the function. Eager: tensors or values of ``T.const`` sizes by
        keyword (``M=1024``), and compile-time parameters; no tensor is read.
        """
        if self._is_lazy:
            return self._lazy.kernel(args, kwargs)
        return make_kernel(self._title, self.get_tir(*args, **kwargs), self._build)

    def get_tir(self, *args: Any, **kwargs: Any) -> Program:  # noqa: ANN401
        """The traced program for the arguments of ``compile``; nothing is compiled."""
        if self._is_lazy:
            return self._lazy.program(args, kwargs)
        return specialise(self.definition, args, kwargs).program

    def specialised(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Specialised:
        """The program that a call of an eager program with these arguments would run."""
        return specialise(self.definition, args, kwargs)

    def get_kernel_source(self, *args: Any, **kwargs: Any) -> str:  # noqa: ANN401
        """The generated text for these arguments, as ``compile`` takes them."""
        return self.compile(*args, **kwargs).get_kernel_source()

    def par_compile(
        self,
        configs: Iterable[Mapping[str, Any] | Sequence[Any]],
        num_workers: int | None = None,
        ignore_error: bool = False,
    ) -> list[JITKernel | None]:
        """Compile several sets of arguments (dicts or tuples) in threads; the order is kept.

        A failure raises, or is logged and gives None with ``ignore_error``.
        """
        jobs = [
            functools.partial(self.compile, **c)
            if isinstance(c, Mapping)
            else functools.partial(self.compile, *c)
            for c in configs
        ]
        return run_all(jobs, num_workers, ignore_error)

    def parse_cache_key(self, *args: Any, **kwargs: Any) -> tuple[object, ...]:  # noqa: ANN401
        """What tells the kernels of this object apart: compile-time values and const sizes."""
        if self._is_lazy:
            return self._lazy.key(args, kwargs)
        made = specialise(self.definition, args, kwargs)
        return freeze_all(made.static.items()), tuple(made.consts.items())

    def initialize_jit_mode(self, *args: Any, **kwargs: Any) -> Literal["lazy", "eager"]:  # noqa: ANN401
        """The mode; known from the source, whatever the arguments."""
        return self.mode

    @property
    def is_tuned(self) -> bool:
        """True if a tuner chooses parameters that a call leaves out."""
        return False

    def is_lazy_mode(self) -> bool:
        """True if a call returns a kernel."""
        return self._is_lazy

    # -- what it is --------------------------------------------------------------------------------
    @property
    def mode(self) -> Literal["lazy", "eager"]:
        """How a call behaves: ``lazy`` or ``eager``."""
        return "lazy" if self._is_lazy else "eager"

    @property
    def func(self) -> Callable[..., Any]:
        """The decorated function."""
        return self.definition.func

    @property
    def func_source(self) -> str:
        """The source text of the decorated function."""
        return inspect.getsource(self.definition.func)

    @property
    def signature(self) -> inspect.Signature:
        """The signature of the decorated function."""
        return inspect.signature(self.definition.func)

    @property
    def op(self) -> torch._ops.OpOverload:
        """The torch op of an eager program, registered if it was not yet."""
        if self._is_lazy:
            raise ArgumentError(f"{self._title}: a lazy function has an op for each of its kernels")
        return self._op  # type: ignore[no-any-return]

    # Not bound to anything: help() and inspect take an object with it for a routine, and show the
    # program's own signature and docstring. Before torch 2.13 Dynamo refuses such an object where
    # an instance holds it: it looks for it in the class alone.
    if torch.__version__ >= "2.13":

        def __get__(self, owner: object, kind: type | None = None) -> JITImpl:
            return self

    # -- copies ------------------------------------------------------------------------------------
    def __copy__(self, memo: object = None) -> JITImpl:
        return self

    __deepcopy__ = __copy__

    def __reduce__(self) -> tuple[Any, ...]:
        """How a program is pickled: by module and name, as functions are."""
        module, qualname = self.func.__module__, self.func.__qualname__
        try:
            found = load_program(module, qualname, {})
        except (ImportError, AttributeError):
            found = None
        if getattr(found, "func", None) is not self.func:
            raise ArgumentTypeError(
                f"program {module}.{qualname} cannot be pickled: its name does not lead to it; "
                "define it at the top of a module"
            )
        return load_program, (module, qualname, dict(self.definition.bound))

    def __repr__(self) -> str:
        return f"<tileops program {self.func.__module__}.{self.func.__qualname__} ({self.mode})>"


def load_program(module: str, qualname: str, bound: Mapping[str, object]) -> Any:  # noqa: ANN401
    """What ``module.qualname`` is in this process, with the bound values of a program."""
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found.bind(**bound) if bound else found
