"""The op of an eager program: its schema, its traces, and what a tuner may choose for a call."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tileops import forks, frontend
from tileops.codegen.kernel_code import Specialization
from tileops.dtypes import DType
from tileops.errors import ArgumentError, ProgramValueError
from tileops.foreign.unchanged import FirstParts
from tileops.ir.program import Program
from tileops.jit.bundle_programs import Named
from tileops.jit.captured import code_digest, source_of, text_of, values_of
from tileops.jit.choosing import chosen
from tileops.jit.compiling import Request
from tileops.jit.cpu_twin import trace_twin
from tileops.jit.definition import Definition, split_config, with_options
from tileops.jit.provider import NAMESPACE, Build, CodeProvider, Device, Wanted, facts_text
from tileops.jit.statics import StaticParam
from tileops.jit.targets import device_for
from tileops.op import names
from tileops.op.names import Identity
from tileops.op.registration import Buckets, Op, digest_of, register
from tileops.op.spec import OpSpec, spec_of, written_parameters
from tileops.op.transforms import Transforms, pass_autograd
from tileops.op.variant import Variant
from tileops.optional_torch import torch
from tileops.target import Target


@dataclass(frozen=True)
class Choice:
    """What a tuner may choose a config by: code of a program that a call or a warmup asks for.

    ``script`` is the hash of an eager program's text; ``values`` are all compile-time values, and
    None for each tensor that is left out; ``given`` names the values that the caller gave;
    ``facts`` is None for a lazy program; ``device`` is None if the code need not run here.
    ``trace`` gives the program under a config. ``scalars`` are the call's run-time scalars and
    ``arguments`` all its arguments by name, as far as they are known.
    """

    definition: Definition
    build: Build
    script: str
    values: Mapping[str, object]
    given: frozenset[str]
    consts: Mapping[str, int]
    sizes: Mapping[str, int]
    target: Target
    facts: Specialization | None
    device: Device | None
    trace: Callable[[Mapping[str, Any]], Program]
    scalars: Mapping[str, object] = field(default_factory=dict)
    arguments: Mapping[str, Any] | None = None

    @property
    def op(self) -> str:
        return self.definition.name

    @property
    def all_sizes(self) -> dict[str, int]:
        """The sizes that are known when compiling, and those of the call."""
        return {**self.consts, **self.sizes}

    @property
    def torch_device(self) -> torch.device:
        """The device that the code is for."""
        kind, index = self.device or ("cpu", 0)
        return torch.device("cpu") if kind == "cpu" else torch.device(kind, index)


class Chosen(Protocol):
    """A config, with what its tuning measured in milliseconds, if there was one."""

    @property
    def config(self) -> dict[str, Any]: ...

    @property
    def latency(self) -> float | None: ...

    @property
    def ref_latency(self) -> float | None: ...


class Tuning(Protocol):
    """What chooses the values of an op's tunable parameters that the caller leaves out."""

    def choose(self, choice: Choice) -> Mapping[str, Any]:
        """Values by name; ``pass_configs`` may be among them. None for a choice without device."""

    def decide(self, choice: Choice) -> Chosen:
        """The best config for a choice with a device."""

    def is_needed(self, given: Iterable[str]) -> bool:
        """Whether a call that gives these values leaves something to choose."""

    def awaits_configs(self, definition: Definition) -> bool:
        """Whether parameters have no value until a function has given configs for a call."""

    def offers(self, inputs: Mapping[str, object], given: Container[str]) -> bool:
        """Ask that function about a call; False where the call gives a tunable value itself."""

    def fallbacks(self) -> list[dict[str, object]]:
        """Values for tunable parameters without a default: those of each config, in order."""

    def buckets(self, variant: Variant) -> Buckets:
        """The sizes that kernels are chosen by, with upper bounds (see ``Op.buckets``)."""

    def sample(
        self,
        values: Mapping[str, object],
        given: Container[str],
        trace: Callable[[Mapping[str, object]], Program],
    ) -> Program:
        """The program under ``values``, or others, but those given, if its code refuses them."""


class EagerProvider(CodeProvider):
    """Stands behind the op of one eager program."""

    def __init__(self, definition: Definition, build: Build) -> None:
        super().__init__(
            build, Transforms(self.values_of, code_digest, definition.options.autocast)
        )
        self.definition = definition
        self._spec: OpSpec | None = None
        self.statics: tuple[StaticParam, ...] = ()
        self.wraps_result = False
        self.script: str | None = None
        self._is_retired = False
        self._kernels = FirstParts()
        self._is_tried = False
        self.on_retired: Callable[[], None] | None = None
        self.is_tuned = False  # a tuner, which is given as ``tuning`` later, chooses values
        self.tuning: Tuning | None = None

    # -- registration ------------------------------------------------------------------------------
    def register(self, given: Mapping[str, object], *, is_derived: bool) -> Op:
        """The op, made at the first call from a trace with the values ``given``."""
        with self.lock:
            return self.op or self._register(given, is_derived)

    def _register(self, given: Mapping[str, object], is_derived: bool) -> Op:
        definition = self.definition
        program = self._symbolic(definition.static_values(given), given)
        self.statics = tuple(p for p in definition.statics(given) if p.kind is not None)
        self.script = digest_of(program, 64)
        # torch has no tuple of one tensor
        self.wraps_result = program.returns_tuple and len(program.returns) == 1
        func = definition.func
        origin = names.Origin(func.__module__, func.__qualname__, self.script[:8])
        namespace, _, name = (definition.options.name or definition.name).rpartition("::")
        namespace = namespace or NAMESPACE
        inputs = (*definition.inputs, *(p.name for p in self.statics))
        names.check(namespace, name, inputs, program=func.__qualname__)
        spec = spec_of(
            program,
            namespace=namespace,
            name=name,
            statics=tuple(p.arg(is_chosen=self.is_tuned) for p in self.statics),
            mutates=self._mutates(program),
            optional=definition.optional,
            copies_inputs=definition.options.contiguous == "copy",
        )
        is_differentiable = definition.options.differentiable is not False

        def prepare(op: Op) -> None:
            self._spec = op.spec
            if not is_differentiable:
                pass_autograd(op.spec)
            if self.tuning is not None:
                op.bucketing = self.tuning.buckets
            op.keep_variant(self.static_of(op.spec, given), program)
            self.adopt(op)

        return register(
            spec,
            self,
            origin,
            definition.origin,
            prepare=prepare,
            is_derived=is_derived or self._is_retired,
            is_differentiable=is_differentiable,
        )

    def identity(self, spec: OpSpec) -> Identity:
        """What tells this program, as its author wrote it, from another one with ``spec``."""
        definition, options = self.definition, self.definition.options
        # Without names, where text is exported, and the target, which bundles name at each kernel.
        given = (
            definition.program_options,
            options.out_idx,
            sorted(options.mutates or ()),
            options.mutates is None,
            options.differentiable,
            dict(options.autocast),
            options.contiguous,
        )
        captured = values_of(definition.func, dict(definition.bound))
        source = source_of(definition.func)
        if (twin := options.cpu) is not None:
            source += source_of(twin.func)
            captured += values_of(twin.func, dict(twin.bound))
        return Identity.of(spec, source, captured, text_of(given))

    def _mutates(self, program: Program) -> frozenset[str] | None:
        declared = self.definition.options.mutates
        if declared is None:
            return None
        known = {p.name for p in program.tensors() if not p.allocated}
        for name in declared:
            if name not in known:
                raise ArgumentError(
                    f"{self.definition.name}: mutates names '{name}', which is not a tensor "
                    f"argument ({', '.join(sorted(known)) or 'there are none'})"
                )
        return frozenset(declared)

    def retire(self, message: str) -> None:
        """Let old handles raise; the program object goes on, under a name of its own."""
        with forks.guard:  # the registration of the later definition holds it
            super().retire(message)
            self.op = None
            self._is_retired = True
            if self.on_retired is not None:
                self.on_retired()

    # -- what the op asks for ------------------------------------------------------------------
    def values_of(self, static: tuple[object, ...]) -> dict[str, object]:
        """The program's compile-time values, from those that the op received."""
        return self.definition.static_values(self._given(static))

    def _given(self, static: tuple[object, ...]) -> dict[str, object]:
        """The compile-time values that a call gave."""
        pairs = zip(self.statics, static, strict=False)  # flags and dtypes follow
        return {param.name: param.decode(value) for param, value in pairs if value is not None}

    def static_of(
        self,
        spec: OpSpec,
        given: Mapping[str, object],
        dtypes: Mapping[str, object] | None = None,
        left_out: Container[str] = (),
    ) -> tuple[object, ...]:
        """What the op receives for compile-time values, and dtypes by variable (default: first)."""
        encoded = [p.encode(given[p.name]) if p.name in given else None for p in self.statics]
        flags = [a.name not in left_out for a in spec.optional_tensors()]
        named = dtypes or {}
        kinds = [named.get(rule.name, rule.dtypes[0]) for rule in spec.dtype_rules]
        return (*encoded, *flags, *(None if k is None else str(k) for k in kinds))

    def traced_values(self, static: tuple[object, ...]) -> dict[str, object]:
        """What a trace takes: compile-time values, None for tensors that are left out, dtypes."""
        assert self._spec is not None
        _, flags, dtypes = self._spec.parts(static)
        optional = [a.name for a in self._spec.optional_tensors()]
        absent = [n for n, is_given in zip(optional, flags, strict=True) if not is_given]
        kinds = {n: None if d is None else DType(d) for n, d in dtypes.items()}
        return {**self.values_of(static), **dict.fromkeys(absent), **kinds}

    def trace_symbolic(self, static: tuple[object, ...]) -> Program:
        """The program with these compile-time values and symbolic sizes."""
        return self._symbolic(self.traced_values(static), self._given(static))

    def _symbolic(self, values: Mapping[str, object], given: Container[str]) -> Program:
        def trace(tried: Mapping[str, object]) -> Program:
            return self.definition.trace(tried, None)

        tuning = self.tuning
        program = trace(values) if tuning is None else tuning.sample(values, given, trace)
        self._is_tried = self._is_tried or program.is_tried
        return program

    def _trace_special(
        self,
        spec: OpSpec,
        static: Mapping[str, object],
        consts: Mapping[str, int],
        *,
        wide_sizes: bool = False,
    ) -> Program:
        """The program with integers for ``T.const`` sizes; ProgramValueError for other writes."""
        program = self.definition.trace(static, consts, wide_sizes=wide_sizes)
        if self._is_tried:
            frontend.check_specialised(self.definition.trace(static, None), program, consts)
        self._kernels.require_same(program)
        mutated = {a.name for a in spec.args if a.mutated}
        for name in sorted(written_parameters(program) - mutated):
            loc = next((p.loc for p in program.tensors() if p.name == name), None)
            raise ProgramValueError(
                f"this specialisation writes tensor `{name}`, which the op's schema does not mark "
                f"as mutated; declare @tileops.jit(mutates=({name!r},))",
                location=loc,
                expected=spec.schema,
            )
        return program

    def measured(self, wanted: Wanted) -> Wanted:
        """``wanted`` with a device to measure on, if a tuner has something to choose for it.

        ArgumentError if the choice depends on a call's sizes, or no device here runs the target.
        """
        given = frozenset(self._given(wanted.variant.static))
        tuning = None if self._runs_twin(wanted.target) else self.tuning
        if tuning is None or not tuning.is_needed(given):
            return wanted
        device = device_for(wanted.target)
        reason = None
        if device is None:
            reason = f"no device here runs {wanted.target}"
        elif wanted.op.buckets(wanted.variant):
            reason = "its choice depends on the run-time sizes of a call"
        if reason is not None:
            raise ArgumentError(
                f"{wanted.op.spec.name} is tuned and {reason}; give its configuration with the "
                "program"
            )
        return replace(wanted, device=device)

    def _runs_twin(self, target: Target) -> bool:
        return target.kind == "cpu" and self.definition.options.cpu is not None

    def _under_configs(
        self, wanted: Wanted, traced: Mapping[str, object], consts: Mapping[str, int]
    ) -> Callable[[Mapping[str, Any]], Program]:
        """The program by config, under the facts of the call."""
        trace = self.definition.under_configs(traced, consts)
        return lambda config: chosen(trace(config), wanted.sizes, wanted.scalars, wanted.words)

    def _config(
        self, wanted: Wanted, traced: Mapping[str, object], consts: Mapping[str, int]
    ) -> Mapping[str, Any]:
        """What the tuner chooses; empty without one, and for a twin, which has its own defaults."""
        if self.tuning is None or self._runs_twin(wanted.target):
            return {}
        given = frozenset(self._given(wanted.variant.static))
        return self.tuning.choose(
            Choice(
                self.definition, self.build, self.script or "", traced, given, consts,
                wanted.sizes, wanted.target, wanted.spec, wanted.device,
                self._under_configs(wanted, traced, consts), wanted.scalars,
            )
        )  # fmt: skip

    def request_for(self, wanted: Wanted) -> Request:
        """What to compile: the program under the values that are given, default or tuned."""
        spec, facts = wanted.op.spec, wanted.spec
        sizes = [size.name for size in wanted.variant.sizes if size.kind == "const"]
        consts = dict(zip(sizes, wanted.consts, strict=True))
        _, _, dtypes = spec.parts(wanted.variant.static)
        traced = self.traced_values(wanted.variant.static)
        config = self._config(wanted, traced, consts)
        # On GPUs code generation itself widens what holds a size.
        wide_sizes = facts.index64 and wanted.target.kind == "cpu"
        traced, options = split_config(traced, config)
        program = self._trace_special(spec, traced, consts, wide_sizes=wide_sizes)
        if self._runs_twin(wanted.target):
            own = self._given(wanted.variant.static)
            program = trace_twin(
                self.definition, program, traced, own, consts, wide_sizes=wide_sizes
            )
        program = chosen(program, wanted.sizes, wanted.scalars, wanted.words)
        return Request(
            program=with_options(program, options),
            target=wanted.target,
            spec=facts,
            op=spec.name,
            title=spec.title,
            why=f"first call{' with these sizes' if consts else ''}, {facts_text(facts)}",
            sizes={**{n: str(d) for n, d in dtypes.items() if d}, **(consts or wanted.sizes)},
            script=self.script,
            debug_root=self.build.debug_root,
            verbose=self.build.verbose,
            named=Named(spec.qualified_name, self.definition.origin, lambda: self.identity(spec)),
            config=", ".join(f"{name} = {value!r}" for name, value in traced.items()),
        )
