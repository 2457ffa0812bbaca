"""Traces: from a decorated Python function to a Program, and PrimFunc, which has both."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from types import FunctionType

from tileops.dtypes import DType
from tileops.errors import (
    ArgumentError,
    ArgumentTypeError,
    ProgramError,
    ProgramSyntaxError,
    ProgramTypeError,
    ProgramValueError,
    UnsupportedConstructError,
)
from tileops.frontend.frame import inline_macro, run
from tileops.frontend.lanes import settled
from tileops.frontend.parameters import Parameters, Undeclared, check_sizes, dtype_variables
from tileops.frontend.refusals import hidden_name, of_python, with_reason
from tileops.frontend.signature import ParamInfo, Signature, is_annotated_in_body, signature_of
from tileops.frontend.source import function_tree, location_of, refuse_own_name
from tileops.ir import fold
from tileops.ir.builder import activate
from tileops.ir.expr import Expr, comma_separated
from tileops.ir.extern import Extern
from tileops.ir.printer import print_program
from tileops.ir.program import Program, TensorParam
from tileops.ir.stmt import Fill
from tileops.ir.walk import written_ids
from tileops.language.buffers import BufferRef
from tileops.language.operands import whole
from tileops.language.tracer import Tracer
from tileops.language.tracer import for_interpreter as traces_for_interpreter
from tileops.language.value import ConstNeededError, as_tuple
from tileops.location import Location
from tileops.pass_configs import merged

Options = Sequence[tuple[str, str]]

# Values tried for size constants if a body needs numbers. Python's own arithmetic on them cannot be
# recorded, so a trace with numbers tells what the program writes.
_REPRESENTATIVES = (128, 64, 256, 1024, 32, 4096, 16, 1)
# What a program raises for a number that it does not take.
_REFUSALS = (ProgramError, ArithmeticError, ValueError, AssertionError, LookupError, TypeError)


def trace(
    func: FunctionType,
    *,
    name: str,
    static: Mapping[str, object],
    consts: Mapping[str, int] | None,
    options: Options = (),
    target: str | None = None,
    wide_sizes: bool = False,
    signature: Signature | None = None,
    dtypes: Mapping[str, DType | None] | None = None,
) -> Program:
    """Trace an eager function.

    ``static`` are the values of its compile-time parameters (defaults fill in), and None for each
    optional tensor that a call leaves out. ``consts`` are the numbers of its size constants; None
    makes them size variables (a symbolic trace). Messages name ``target``; ``wide_sizes`` makes
    run-time sizes 64 bits wide. ``signature`` is that of ``func``, if the caller has it. ``dtypes``
    are the values of its dtype variables (see ``Tracer``); only a symbolic trace lists them. Raises
    located ProgramErrors.
    """
    refuse_own_name(func)
    signature = signature or signature_of(func)
    job = _EagerTrace(func, name, signature, dict(static), options, target, dtypes or {})
    if consts is not None:
        return replace(job.run(consts, wide_sizes=wide_sizes), dtype_vars=())
    tracer = job.new_tracer(None)
    try:
        return job.run_with(tracer)
    except (ProgramSyntaxError, UnsupportedConstructError):
        raise
    except ProgramError as error:
        program = None
        if tracer.const_locations and not (tracer.launch is None and tracer.extern is None):
            # A construct of the body may need the value of a size constant; the signature does not.
            program = job.without_body()
        elif isinstance(error, ConstNeededError):
            program = job.signature_by_trial()
        if program is None:
            raise
        return program


@dataclass
class _EagerTrace:
    """One eager function with its compile-time arguments."""

    func: FunctionType
    name: str
    signature: Signature
    static: dict[str, object]
    options: Options
    target: str | None
    dtypes: Mapping[str, DType | None]

    def __post_init__(self) -> None:
        self.location = location_of(function_tree(self.func), self.func.__code__.co_filename)
        self.arguments = {p.name: self._argument(p) for p in self.signature.params}
        if self.static:
            raise ProgramTypeError(
                f"{self.func.__name__} has no compile-time parameter "
                f"{', '.join(sorted(self.static))}",
                location=self.location,
            )

    def _argument(self, p: ParamInfo) -> object:
        if p.name in self.static:
            return self.static.pop(p.name)
        if p.kind != "static":
            return Undeclared(p.name)
        if p.default is inspect.Parameter.empty:
            raise ProgramTypeError(
                f"the compile-time parameter `{p.name}` of {self.func.__name__} was not given",
                location=self.location,
            )
        return p.default

    def new_tracer(self, consts: Mapping[str, int] | None, *, skip_bodies: bool = False) -> Tracer:
        """A tracer for this function."""
        tracer = Tracer(self.name, consts=consts, skip_bodies=skip_bodies)
        tracer.target = self.target
        if (self.target or "").startswith("interpreter"):
            tracer.for_interpreter = True
        tracer.dtypes = self.dtypes
        tracer.inline = partial(inline_macro, tracer)
        tracer.location = self.location
        return tracer

    def run(self, consts: Mapping[str, int], *, wide_sizes: bool = False) -> Program:
        """Trace with the numbers of the size constants."""
        tracer = self.new_tracer(consts)
        tracer.wide_sizes = wide_sizes
        return self.run_with(tracer)

    def run_with(self, tracer: Tracer) -> Program:
        """Trace under ``tracer``."""
        params = self.signature.params
        runtime = [p.name for p in params if isinstance(self.arguments[p.name], Undeclared)]
        nones = [p for p in params if self.arguments[p.name] is None]
        absent = [p.name for p in nones if p.kind == "tensor"]
        parameters = Parameters(tracer, runtime, absent)
        for p in nones:
            if p.kind == "static":
                bare = p.annotation is inspect.Parameter.empty
                reason = (
                    "it has no annotation and nothing was passed" if bare else "it was not passed"
                )
                parameters.nones[p.name] = f"`{p.name}` is None, because {reason}"
        arguments = dict(self.arguments)

        def body() -> object:
            for name in runtime:
                if not is_annotated_in_body(self.func, name):
                    annotation = _resolve(self.func, self.func.__annotations__.get(name), {})
                    arguments[name] = parameters.declare(name, annotation)
            try:
                return run(tracer, self.func, arguments, parameters.declare)
            except NameError as error:
                raise (hidden_name(self.func, error) or error) from None

        program = _finish(self.func, tracer, body, parameters, self.options, self.location)
        return replace(program, dtype_vars=dtype_variables(tracer, [p.name for p in params]))

    def without_body(self, tried: int | None = None) -> Program | None:
        """The symbolic signature, with launches that only tell which parameters they write.

        ``tried`` is what Python is told for the size constants where it asks before a launch.
        """
        tracer = self.new_tracer(None, skip_bodies=True)
        tracer.tried = tried
        outline = self.run_with(tracer)
        names = [s.var.name for s in outline.sizes if s.kind == "const"]
        for number in _REPRESENTATIVES if tried is None else (tried,):
            try:
                sample = self.run(dict.fromkeys(names, number))
            except _REFUSALS:
                continue
            return _with_writes_of(outline, sample)
        return None

    def signature_by_trial(self) -> Program | None:
        """The symbolic signature where Python asks for the number of a size constant before it.

        Numbers are tried; None where they do not give one and the same signature, at least twice.
        """
        found: list[Program] = []
        for number in _REPRESENTATIVES:
            try:
                program = self.without_body(number)
            except _REFUSALS:
                continue
            if program is not None:
                found.append(program)
        if len(found) < 2 or len(set(map(_signature_text, found))) > 1:
            return None
        return replace(found[0], is_tried=True)


def _with_writes_of(outline: Program, sample: Program) -> Program:
    """``outline`` whose first launch fills each parameter that ``sample`` writes."""
    written = written_ids(sample.launches)
    fills = tuple(
        Fill(whole(BufferRef(p.buffer)), fold.const(0, p.buffer.dtype), loc=p.loc)
        for p, run in zip(outline.tensors(), sample.tensors(), strict=True)
        if run.buffer.id in written
    )
    first = [replace(launch, body=fills) for launch in outline.launches[:1]]
    externs = tuple(
        Extern(e.language, e.name, e.parts, (fold.const(1),), (), after=e.after, loc=e.loc)
        for e in sample.externs
    )
    return replace(outline, launches=(*first, *outline.launches[1:]), externs=externs)


def _signature_text(program: Program) -> str:
    """What calls see of ``program``: parameters, sizes, returns, and what it writes."""
    outer = replace(program, launches=(), externs=(), workspaces=(), options=())
    return f"{print_program(outer)} {sorted(written_ids(program.launches))}"


def check_specialised(outline: Program, program: Program, consts: Mapping[str, int]) -> None:
    """ProgramValueError where ``program`` for ``consts`` has other tensors than ``outline`` says.

    ``outline`` is the signature that was found by trial.
    """
    named = {s.var.name: s.var for s in program.sizes}
    known: dict[int, Expr] = {}
    for size in outline.sizes:
        var = size.var
        is_const = size.kind == "const"
        known[var.id] = fold.const(consts[var.name], var.dtype) if is_const else named[var.name]
    for told, found in zip(outline.tensors(), program.tensors(), strict=True):
        expected = comma_separated(tuple(fold.substitute(e, known) for e in _extents(told)))
        own = comma_separated(_extents(found))
        if own != expected:
            raise ProgramValueError(
                f"the shape of `{found.name}` depends on the number of a size constant in a way "
                "that the signature cannot tell; write it with operators, `if` and conditional "
                "expressions on the size",
                expected=f"({expected})",
                found=f"({own}) for " + ", ".join(f"{n} = {v}" for n, v in consts.items()),
                location=found.loc,
            )


def _extents(param: TensorParam) -> tuple[Expr, ...]:
    return (*param.buffer.shape, *(param.buffer.strides or ()))


def _resolve(
    func: FunctionType, annotation: object, names_in_scope: Mapping[str, object]
) -> object:
    """An annotation that postponed evaluation left as text, evaluated in the function's scope."""
    if type(annotation) is not str:  # a dtype is a str, too
        return annotation
    closure = {
        n: c.cell_contents
        for n, c in zip(func.__code__.co_freevars, func.__closure__ or (), strict=True)
    }
    try:
        return eval(annotation, func.__globals__, {**names_in_scope, **closure})
    except NameError:
        return annotation


# -- prim_funcs ------------------------------------------------------------------------------------
@dataclass(eq=False, repr=False)
class PrimFunc:
    """A traced program with its Python function. Tools may use ``attrs`` freely.

    ``names_in_scope`` are the caller's names that annotations use.
    """

    func: FunctionType
    name: str
    program: Program
    names_in_scope: Mapping[str, object]
    attrs: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.__name__ = self.name
        self.__doc__ = self.func.__doc__

    def __call__(self, *args: object, **kwargs: object) -> object:
        """A prim_func cannot be called: ArgumentTypeError saying what to do."""
        raise ArgumentTypeError(
            f"the prim_func `{self.name}` is a program and not a kernel; compile it with "
            f"tileops.compile({self.name}), or return it from a function decorated with "
            "@tileops.jit"
        )

    def with_attr(self, key: str, value: object) -> PrimFunc:
        """This program with one more attribute."""
        return replace(self, attrs={**self.attrs, key: value})

    def for_interpreter(self) -> PrimFunc:
        """This program traced again, with its prints and breakpoints."""
        with for_interpreter():
            program = trace_prim_func(self.func, self.names_in_scope)
        return replace(self, program=program, attrs=dict(self.attrs))

    def script(self) -> str:
        """The program's IR as text."""
        return print_program(self.program)

    def __repr__(self) -> str:
        return f"<prim_func {self.name}>"


@contextmanager
def for_interpreter() -> Iterator[None]:
    """Trace the prim_funcs of the block with their prints and breakpoints."""
    token = traces_for_interpreter.set(True)
    try:
        yield
    finally:
        traces_for_interpreter.reset(token)


def make_prim_func(func: FunctionType, names_in_scope: Mapping[str, object]) -> PrimFunc:
    """What ``@T.prim_func`` does at a definition.

    ``names_in_scope`` are the caller's names, for annotations under postponed evaluation.
    """
    texts = [a for a in func.__annotations__.values() if type(a) is str]
    used = {name for text in texts for name in compile(text, "", "eval").co_names}
    scope = {n: v for n, v in names_in_scope.items() if n in used}
    return PrimFunc(func, func.__name__, trace_prim_func(func, scope), scope)


def trace_prim_func(func: FunctionType, names_in_scope: Mapping[str, object]) -> Program:
    """Trace a function whose parameters are annotated in its signature or its body.

    ``names_in_scope`` are the caller's names, for annotations under postponed evaluation.
    """
    refuse_own_name(func)
    location = location_of(function_tree(func), func.__code__.co_filename)
    tracer = Tracer(func.__name__)
    tracer.dtypes = None
    tracer.inline = partial(inline_macro, tracer)
    tracer.location = location
    arguments: dict[str, object] = {}
    annotated: dict[str, object] = {}
    order: list[str] = []
    for p in inspect.signature(func).parameters.values():
        if p.kind is p.POSITIONAL_ONLY:
            raise ProgramTypeError(
                f"the parameter `{p.name}` of a prim_func is positional-only", location=location
            )
        if p.kind is p.VAR_KEYWORD:
            arguments[p.name] = {}
        elif p.annotation is not p.empty and p.kind is not p.VAR_POSITIONAL:
            annotated[p.name] = _resolve(func, p.annotation, names_in_scope)
            order.append(p.name)
        elif p.default is not p.empty:
            arguments[p.name] = p.default
        elif is_annotated_in_body(func, p.name):
            arguments[p.name] = Undeclared(p.name)
            order.append(p.name)
            continue
        else:
            raise ProgramTypeError(
                f"the parameter `{p.name}` of the prim_func `{func.__name__}` has no annotation",
                expected=f"{p.name}: T.Tensor(shape, dtype), or a scalar dtype",
                location=location,
            )
    parameters = Parameters(tracer, order)

    def body() -> object:
        for key, annotation in annotated.items():
            arguments[key] = parameters.declare(key, annotation)
        return run(tracer, func, arguments, parameters.declare)

    return _finish(func, tracer, body, parameters, (), location)


def _finish(
    func: FunctionType,
    tracer: Tracer,
    body: Callable[[], object],
    parameters: Parameters,
    options: Options,
    location: Location,
) -> Program:
    with activate(tracer):
        try:
            returned = body()
            chosen = dict(merged(tracer.options, dict(options)))
            tracer.launches = [
                settled(tracer, launch, indices, chosen)
                for launch, indices in zip(tracer.launches, tracer.lanes, strict=True)
            ]
        except ProgramError as error:
            located = error.at(tracer.location)
            raise with_reason(located, parameters.nones, func) from error.__cause__
        except (AttributeError, TypeError, LookupError) as error:
            raise of_python(error, tracer.location, parameters.nones, func) from error.__cause__
        parameters.finish()
        returns, is_tuple = _outputs(tracer, returned)
        check_sizes(tracer, location)
        if not tracer.launches and not tracer.externs:
            raise ProgramValueError(
                "the program has no `with T.Kernel(...)` block", location=location
            )
        tracer.options = dict(merged(tracer.options, dict(options)))
        return tracer.finish(returns, is_tuple)


def _outputs(tracer: Tracer, returned: object) -> tuple[tuple[int, ...], bool]:
    """Append the outputs as parameters and find what is returned: all of them and nothing else."""
    numbers = {p.buffer.id: n for n, p in enumerate(tracer.outputs, len(tracer.params))}
    tracer.params += tracer.outputs
    returns = []
    for value in () if returned is None else as_tuple(returned):
        if not isinstance(value, BufferRef) or value.node.id not in numbers:
            raise ProgramValueError(
                "a program returns tensors that it made with T.empty, and nothing else",
                found=value.describe() if isinstance(value, BufferRef) else repr(value),
            )
        returns.append(numbers[value.node.id])
    if len(set(returns)) != len(returns):
        raise ProgramValueError("a program returns one output twice")
    for made in tracer.outputs:
        if numbers[made.buffer.id] not in returns:
            raise ProgramValueError(
                f"the output `{made.name}` (T.empty) is not returned", location=made.loc
            )
    return tuple(returns), isinstance(returned, (tuple, list))


def with_out_idx(program: Program, out_idx: int | Sequence[int]) -> Program:
    """``program`` with the parameters of ``out_idx`` allocated and returned instead of passed.

    Negative numbers count from the end. ArgumentError for a number that is not a tensor parameter.
    """
    indices = [out_idx] if isinstance(out_idx, int) else list(out_idx)
    if program.returns:
        raise ArgumentError(
            f"{program.name}: out_idx cannot be given for a program that returns T.empty tensors"
        )
    count = len(program.params)
    returns = []
    for index in indices:
        number = index + count if index < 0 else index
        if not 0 <= number < count or not isinstance(program.params[number], TensorParam):
            raise ArgumentError(
                f"{program.name}: out_idx {index} is not the number of a tensor parameter; there "
                f"are {count} parameters"
            )
        returns.append(number)
    if len(set(returns)) != len(returns):
        raise ArgumentError(f"{program.name}: out_idx {indices} names a parameter twice")
    params = tuple(
        replace(p, allocated=True) if isinstance(p, TensorParam) and i in returns else p
        for i, p in enumerate(program.params)
    )
    return replace(program, params=params, returns=tuple(returns), returns_tuple=len(returns) > 1)
