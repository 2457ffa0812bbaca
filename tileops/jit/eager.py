"""Owns the op of an eager program: registration, its traces, and the entries that calls ask for."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tileops import forks, frontend
from tileops.cache import Entry
from tileops.codegen.kernel_code import Specialization
from tileops.dtypes import DType
from tileops.errors import ArgumentError, ArgumentTypeError, ProgramValueError
from tileops.ir.program import Program
from tileops.jit.checking import described
from tileops.jit.compiling import Request, note_script, obtain
from tileops.jit.definition import Definition, with_options
from tileops.jit.identity import definition_identity
from tileops.jit.kernel_state import NAMESPACE, Build, supply
from tileops.jit.statics import StaticParam
from tileops.jit.targets import device_for, device_target, device_text, is_runnable_on
from tileops.op import names, schema_names
from tileops.op.identity import Identity, Named
from tileops.op.registration import Op, Provider, digest_of, held_outside, register, retire
from tileops.op.spec import OpSpec, spec_of, written_parameters
from tileops.op.transforms import Transforms, pass_autograd
from tileops.op.variant import Variant
from tileops.pass_configs import options_of
from tileops.target import Target


@dataclass(frozen=True)
class Choice:
    """What a tuner may choose a config by: one entry of an op that a call, or a warmup, asks for.

    ``values`` are all compile-time values, and None for tensors that were not given; ``given`` the
    names of the values that the caller gave;
    ``device`` is None where only code for ``target`` is asked for; ``scalars`` are the call's
    run-time scalars, by name, where there is a call.
    """

    op: str
    script: str
    values: Mapping[str, object]
    given: frozenset[str]
    consts: Mapping[str, int]
    sizes: Mapping[str, int]
    target: Target
    facts: Specialization
    device: tuple[str, int] | None
    scalars: Mapping[str, object] = field(default_factory=dict)


class Tuning(Protocol):
    """What chooses the values of an op's tunable parameters where the caller gives none."""

    def choose(self, choice: Choice) -> Mapping[str, Any]:
        """Values by name; ``pass_configs`` may be among them."""

    def is_needed(self, given: frozenset[str]) -> bool:
        """Whether a call that gives these values leaves something to choose."""

    def buckets(self, variant: Variant) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Number and upper bounds of the sizes that kernels are chosen by (see ``Op.buckets``)."""

    def sample(
        self,
        values: Mapping[str, object],
        given: Container[str],
        trace: Callable[[Mapping[str, object]], Program],
    ) -> Program:
        """The program under ``values``, or where its own code refuses them under others to choose.

        Those that the caller has ``given`` are kept.
        """


class EagerProvider(Provider):
    """Stands behind the op of one eager program."""

    def __init__(self, definition: Definition, build: Build) -> None:
        self.definition = definition
        self.build = build
        self.op: Op | None = None
        self._spec: OpSpec | None = None
        self.statics: tuple[StaticParam, ...] = ()
        self.wraps_result = False
        self.lock = forks.renewed_lock()
        self.script: str | None = None
        self._is_retired = False
        self._is_tried = False
        self.transforms = Transforms(self.values_of, definition.options.autocast)
        self.on_retired: Callable[[], None] | None = None
        self.is_tuned = False  # a tuner chooses what calls leave out, whose ``tuning`` comes later
        self.tuning: Tuning | None = None

    @property
    def is_mutating(self) -> bool:
        """True if the op is registered and writes an input."""
        return self.op is not None and any(a.mutated for a in self.op.spec.args)

    # -- registration ------------------------------------------------------------------------------
    def register(self, given: Mapping[str, object], *, is_derived: bool) -> Op:
        """The op, made at the first call from a trace with the compile-time values ``given``.

        ``is_derived`` names it after its content instead of taking the function's name.
        """
        with self.lock:
            return self.op or self._register(given, is_derived)

    def _register(self, given: Mapping[str, object], is_derived: bool) -> Op:
        definition = self.definition
        values = definition.static_values(given)
        program = self._symbolic(values, given)
        self.statics = tuple(p for p in definition.statics(given) if p.kind is not None)
        self._check_carried(given)
        self.script = digest_of(program, 64)
        # torch has no tuple of one tensor
        self.wraps_result = program.returns_tuple and len(program.returns) == 1
        origin = names.Origin(
            definition.func.__module__, definition.func.__qualname__, self.script[:8]
        )
        namespace, _, name = (definition.options.name or definition.name).rpartition("::")
        namespace = namespace or NAMESPACE
        inputs = (*definition.inputs, *(p.name for p in self.statics))
        schema_names.check(namespace, name, inputs, program=definition.func.__qualname__)
        spec = spec_of(
            program,
            namespace=namespace,
            name=name,
            statics=tuple(p.arg(is_chosen=self.is_tuned) for p in self.statics),
            mutates=self._mutates(program),
            optional=definition.optional,
            copies_inputs=definition.options.contiguous == "copy",
        )
        holder = names.Holder(origin, self.retire, lambda: self.identity(spec))
        holder = names.ready_to_meet(namespace, name, holder)
        is_differentiable = definition.options.differentiable is not False
        # A child has the name, the op, its rules and its place here, or none of them.
        with forks.guard:
            take = names.take_derived if is_derived or self._is_retired else names.claim
            claim = take(
                namespace, name, holder, is_held_outside=lambda n: held_outside(namespace, n)
            )
            op = register(spec, self, claim, definition.origin, is_differentiable=is_differentiable)
            self._spec = op.spec
            if not is_differentiable:
                pass_autograd(op.spec)
            if self.tuning is not None:
                op.bucketing = self.tuning.buckets
            op.keep_variant(self.static_of(op.spec, given), program)
            self.transforms.install(op)
            self.op = op
        claim.warn()
        return op

    def identity(self, spec: OpSpec) -> Identity:
        """What tells this program from another one whose op is ``spec``."""
        return definition_identity(self.definition, spec)

    def change_transforms(self, change: Callable[[Transforms], None]) -> None:
        """Change the rules of the op: now if it is registered, else when it will be."""
        with self.lock, forks.guard:
            change(self.transforms)
            if self.op is not None:
                self.transforms.install(self.op)

    def _check_carried(self, given: Mapping[str, object]) -> None:
        carried = {p.name for p in self.statics}
        for name in given:
            if name not in carried and name not in self.definition.bound:
                raise ArgumentTypeError(
                    f"{self.definition.name}: argument '{name}' cannot be carried by an op's "
                    f"schema; fix it with bind({name}=...)"
                )

    def _mutates(self, program: Program) -> frozenset[str] | None:
        declared = self.definition.options.mutates
        if declared is None:
            return None
        known = {p.name for p in program.tensors() if not p.allocated}
        for name in declared:
            if name not in known:
                raise ArgumentError(
                    f"{self.definition.name}: mutates names '{name}', which is no tensor argument "
                    f"({', '.join(sorted(known)) or 'there are none'})"
                )
        return frozenset(declared)

    def retire(self, message: str) -> None:
        """A later definition has taken the address: old handles raise, and this program moves.

        The program object itself goes on running its own program, under a name of its own.
        """
        with forks.guard:  # the later definition's registration, which is under it, calls this
            if self.op is not None:
                retire(self.op, message)
            self.op = None
            self._is_retired = True
            if self.on_retired is not None:
                self.on_retired()

    def unload(self) -> None:
        """Free the op's kernels, if there is an op."""
        op = self.op
        if op is not None:
            op.unload()

    # -- what the op asks for ------------------------------------------------------------------
    def values_of(self, static: tuple[object, ...]) -> dict[str, object]:
        """The program's compile-time values for what the op received."""
        given = {
            param.name: param.decode(value)
            for param, value in zip(self.statics, static, strict=False)
            if value is not None
        }
        return self.definition.static_values(given)

    def static_of(
        self,
        spec: OpSpec,
        given: Mapping[str, object],
        dtypes: Mapping[str, object] | None = None,
        left_out: Container[str] = (),
    ) -> tuple[object, ...]:
        """What the op receives for compile-time values, and for dtypes by their variables.

        A dtype that is not named is the first that its variable may be.
        """
        encoded = [p.encode(given[p.name]) if p.name in given else None for p in self.statics]
        flags = [a.name not in left_out for a in spec.optional_tensors()]
        named = dtypes or {}
        kinds = [named.get(rule.name, rule.dtypes[0]) for rule in spec.dtype_rules]
        return (*encoded, *flags, *(None if k is None else str(k) for k in kinds))

    def traced_values(self, static: tuple[object, ...]) -> dict[str, object]:
        """What a trace takes: compile-time values, None for tensors that were not given, dtypes."""
        assert self._spec is not None
        _, flags, dtypes = self._spec.parts(static)
        optional = [a.name for a in self._spec.optional_tensors()]
        absent = [n for n, is_given in zip(optional, flags, strict=True) if not is_given]
        kinds = {n: None if d is None else DType(d) for n, d in dtypes.items()}
        return {**self.values_of(static), **dict.fromkeys(absent), **kinds}

    def trace_symbolic(self, static: tuple[object, ...]) -> Program:
        """The program with these compile-time values and symbolic sizes."""
        pairs = zip(self.statics, static, strict=False)
        given = {param.name for param, value in pairs if value is not None}
        return self._symbolic(self.traced_values(static), given)

    def _symbolic(self, values: Mapping[str, object], given: Container[str]) -> Program:
        def trace(tried: Mapping[str, object]) -> Program:
            return self.definition.trace(tried, None)

        tuning = self.tuning
        program = trace(values) if tuning is None else tuning.sample(values, given, trace)
        self._is_tried = self._is_tried or program.is_tried
        return program

    def trace_special(
        self,
        spec: OpSpec,
        static: Mapping[str, object],
        consts: Mapping[str, int],
        *,
        wide_sizes: bool = False,
    ) -> Program:
        """The program with integers for its ``T.const`` sizes; an error if it writes elsewhere."""
        program = self.definition.trace(static, consts, wide_sizes=wide_sizes)
        if self._is_tried:
            frontend.check_specialised(self.definition.trace(static, None), program, consts)
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

    def supply_entry(self, op: Op, variant: Variant, request: Mapping[str, Any]) -> None:
        """Compile or load the program for the sizes, device and facts of a call."""
        device = (request["device_type"], request["device_index"])
        target = self.build.target
        if target is None:
            target = device_target(*device)
        elif not is_runnable_on(target, *device):
            raise ArgumentError(
                f"{op.spec.name}: the program is compiled for {target} (jit's target=) and cannot "
                f"run on {device_text(*device)}, which is {device_target(*device)}"
            )
        consts = tuple(request["consts"])
        spec = Specialization(request["fast"], request["index64"])
        wanted, config = self._request(
            op, variant, target, spec, consts, request.get("sizes", {}), device,
            request.get("scalars", {}),
        )  # fmt: skip
        entry = self._obtain(wanted)
        supply(
            op,
            variant,
            entry,
            target=target,
            spec=spec,
            consts=consts,
            reports=described(wanted.program, target),
            buckets=op.bucket(variant, request.get("sizes", {})),
            config=config,
        )

    def obtain(
        self,
        op: Op,
        variant: Variant,
        target: Target,
        spec: Specialization,
        const_values: tuple[int, ...],
        sizes: Mapping[str, int],
    ) -> Entry:
        """The compiled form for these const sizes; ``sizes`` are for people to read."""
        return self._obtain(self._request(op, variant, target, spec, const_values, sizes)[0])

    def tuned(
        self,
        op: Op,
        variant: Variant,
        target: Target,
        spec: Specialization,
        const_values: tuple[int, ...],
    ) -> Program | None:
        """The program under the tuned choice, which may measure; None where nothing is chosen.

        ArgumentError where the choice depends on a call's sizes, or no device here runs ``target``.
        """
        if self.tuning is None or not self.tuning.is_needed(_given(self, variant)):
            return None
        device = device_for(target)
        reason = None
        if device is None:
            reason = f"no device here runs {target}"
        elif op.buckets(variant):
            reason = "its choice depends on the run-time sizes of a call"
        if reason is not None:
            raise ArgumentError(
                f"{op.spec.name} is tuned and {reason}; give its configuration with the program"
            )
        return self._request(op, variant, target, spec, const_values, {}, device)[0].program

    def _obtain(self, wanted: Request) -> Entry:
        entry = obtain(wanted)
        note_script(wanted, entry)
        return entry

    def _request(
        self,
        op: Op,
        variant: Variant,
        target: Target,
        spec: Specialization,
        const_values: tuple[int, ...],
        sizes: Mapping[str, int],
        device: tuple[str, int] | None = None,
        scalars: Mapping[str, object] | None = None,
    ) -> tuple[Request, str]:
        """What to compile, and the compile-time values that it is compiled for in words."""
        names_of_consts = [s.name for s in variant.sizes if s.kind == "const"]
        consts = dict(zip(names_of_consts, const_values, strict=True))
        traced = self.traced_values(variant.static)
        options: tuple[tuple[str, str], ...] = ()
        if self.tuning is not None:
            given = _given(self, variant)
            script = self.script or ""
            choice = Choice(
                op.spec.name, script, traced, given, consts, sizes, target, spec, device,
                scalars or {},
            )  # fmt: skip
            chosen = dict(self.tuning.choose(choice))
            options = options_of(chosen.pop("pass_configs", None), None)
            traced = {**traced, **chosen}
        program = with_options(
            # On GPUs code generation itself widens what holds a size.
            self.trace_special(
                op.spec, traced, consts, wide_sizes=spec.index64 and target.kind == "cpu"
            ),
            options,
        )
        config = ", ".join(f"{name} = {value!r}" for name, value in traced.items())
        return Request(
            program=program,
            target=target,
            spec=spec,
            op=op.spec.name,
            title=op.spec.title,
            why=_reason(spec, consts),
            sizes={**op.spec.dtypes_of(variant.static), **(consts or sizes)},
            script=self.script,
            debug_root=self.build.debug_root,
            verbose=self.build.verbose,
            named=Named(
                op.spec.qualified_name, self.definition.origin, lambda: self.identity(op.spec)
            ),
        ), config


def _given(provider: EagerProvider, variant: Variant) -> frozenset[str]:
    pairs = zip(provider.statics, variant.static, strict=False)
    return frozenset(param.name for param, value in pairs if value is not None)


def _reason(spec: Specialization, consts: Mapping[str, int]) -> str:
    facts = "fast facts" if spec.fast else "general facts"
    width = ", 64-bit offsets" if spec.index64 else ""
    return (
        f"first call with these sizes, {facts}{width}" if consts else f"first call, {facts}{width}"
    )
