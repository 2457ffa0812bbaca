"""What stands behind ops: their registration, the code that calls ask for, and kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from operator import methodcaller
from typing import Any

from tileops import cache, forks, runtime, settings
from tileops.codegen.kernel_code import Specialization
from tileops.errors import ArgumentError, CompileMissError, InternalError
from tileops.ir.extern import words_of
from tileops.ir.program import INDEX32_LIMIT, Program, const_value
from tileops.jit.captured import code_digest
from tileops.jit.choosing import Words, chosen, general_words
from tileops.jit.compiling import Request, check_reports, obtain_listed
from tileops.jit.record import entry_of
from tileops.jit.targets import default_target, device_for, device_target, is_runnable_on
from tileops.op import names
from tileops.op.names import Identity
from tileops.op.registration import Op, Provider, digest_of, register
from tileops.op.spec import OpSpec, spec_of
from tileops.op.transforms import Transforms
from tileops.op.variant import Variant
from tileops.target import Target

NAMESPACE = "tileops"

Device = tuple[str, int]  # type and index, as torch names it


@dataclass(frozen=True)
class Build:
    """How a program is compiled: target (None: the device decides), and where text is exported."""

    target: Target | None = None
    verbose: bool = False
    debug_root: str | None = None

    @property
    def is_interpreted(self) -> bool:
        return self.target is not None and self.target.kind == "interpreter"


@dataclass(frozen=True)
class Wanted:
    """Code that a call, a warmup or a bundle needs of an op.

    ``sizes`` and ``scalars`` are a call's; ``device`` is None if the code is for no device here.
    ``words`` are the facts of numbers that foreign kernels may assume; None: those of the call.
    """

    op: Op
    variant: Variant
    target: Target
    spec: Specialization
    consts: tuple[int, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    device: Device | None = None
    scalars: Mapping[str, object] = field(default_factory=dict)
    words: Words | None = None

    def entry_of(self, entry: cache.Entry, config: str = "") -> dict[str, Any]:
        """The compiled program as an entry of the op's variant."""
        return entry_of(
            entry.manifest["record"], self.op.spec, self.variant,
            target=self.target, spec=self.spec, consts=self.consts, config=config,
        )  # fmt: skip


class CodeProvider(Provider):
    """Registers one op, and compiles or loads what its calls ask for."""

    compiled_for = "the program is compiled for {} (jit's target=)"  # for an error

    def __init__(self, build: Build, transforms: Transforms) -> None:
        self.build = build
        self.transforms = transforms
        self.op: Op | None = None
        self.lock = forks.renewed_lock()

    def request_for(self, wanted: Wanted) -> Request:
        """What to compile for ``wanted``."""
        raise NotImplementedError

    def measured(self, wanted: Wanted) -> Wanted:
        """``wanted`` with a device to measure on, if a tuner has something to choose for it."""
        return wanted

    def adopt(self, op: Op) -> None:
        """Take a new op, before others see it."""
        self.transforms.install(op)
        self.op = op

    def change_transforms(self, change: Callable[[Transforms], None]) -> None:
        """Change the rules of the op: now if it is registered, else when it will be."""
        with self.lock, forks.guard:
            change(self.transforms)
            if self.op is not None:
                self.transforms.install(self.op)

    def take_transforms(self, rules: Transforms) -> None:
        """Give the op the rules that were registered for another provider's."""
        with self.lock, forks.guard:
            self.transforms = rules
            if self.op is not None:
                rules.install(self.op)

    def retire(self, message: str) -> None:
        """Let calls through old handles of the op raise RedefinedOpError with ``message``."""
        if self.op is not None:
            self.op.retire(message)

    def unload(self) -> None:
        """Free the op's kernels, if there is an op."""
        if op := self.op:
            op.unload()

    def supply_entry(self, op: Op, variant: Variant, request: Mapping[str, Any]) -> None:
        """Compile or load the code for the sizes, device and facts of a call."""
        device = (request["device_type"], request["device_index"])
        wanted = Wanted(
            op,
            variant,
            self.target_on(op, device),
            Specialization(request["fast"], request["index64"]),
            tuple(request["consts"]),
            request.get("sizes", {}),
            device,
            request.get("scalars", {}),
        )
        try:
            self.supply(wanted)
        except CompileMissError:
            if not self._supply_general(wanted):
                raise

    def _supply_general(self, wanted: Wanted) -> bool:
        """Let code that assumes less serve such calls, where strict mode allows no compile.

        False if there is none in the cache.
        """
        program = self.request_for(wanted).program
        own, general = words_of(program), general_words(program)
        asked, *others = dict.fromkeys(
            (spec, words)
            for spec in (wanted.spec, replace(wanted.spec, fast=False))
            for words in (own, own if general is None else general)
        )
        for spec, words in others:
            try:
                self.supply(replace(wanted, spec=spec, words=words or None), asked)
            except CompileMissError:
                continue
            return True
        return False

    @settings.read_once()
    def supply(self, wanted: Wanted, served: tuple[Specialization, Words] | None = None) -> None:
        """Compile or load what is wanted, and give it to the op.

        ``served``: the facts of the calls that it is for, where they are more than it assumes.
        """
        gpu = None if wanted.device is None or wanted.device[0] == "cpu" else wanted.device[1]
        request = replace(self.request_for(wanted), gpu=gpu)
        entry = obtain_listed(request)
        op, variant, target, spec = wanted.op, wanted.variant, wanted.target, wanted.spec
        entry_json = wanted.entry_of(entry, request.config)
        buckets = op.bucket(variant, wanted.sizes)
        entry_json["consts"] += buckets
        # What a failed check means, with this process's files and lines.
        if reports := check_reports(request.program, target):
            entry_json["reports"] = reports
        images: dict[str, runtime.Image] = {}
        for launch in entry_json["launches"]:
            name = launch["image"]
            # The verified bytes: the file can have changed since, or go while the code runs.
            data = entry.files[name]
            images[name] = data if entry.path is None else (data, str(entry.path / name))
        words = words_of(request.program)
        if served is not None:
            spec, words = served
            entry_json["fast"] = spec.fast
            if words:
                entry_json["choice"]["words"] = list(words)
        key = (str(target), wanted.consts, spec.fast, spec.index64, buckets, words)
        op.add_entry(variant, key, entry_json, images)

    def target_on(self, op: Op, device: Device) -> Target:
        """The target of a call on ``device``; ArgumentError if the program cannot run there."""
        target = self.build.target
        if target is None:
            return device_target(*device)
        if not is_runnable_on(target, *device):
            where = "cpu" if device[0] == "cpu" else f"{device[0]}:{device[1]}"
            raise ArgumentError(
                f"{op.spec.name}: {self.compiled_for.format(target)} and cannot run on {where}, "
                f"which is {device_target(*device)}"
            )
        return target


def _gpu_for(target: Target) -> int | None:
    """The index of the current GPU if code for ``target`` runs there."""
    device = device_for(target) if target.is_gpu else None
    return None if device is None else device[1]


def facts_text(spec: Specialization) -> str:
    """The facts that code assumes, in words."""
    width = ", 64-bit offsets" if spec.index64 else ""
    return f"{'fast' if spec.fast else 'general'} facts{width}"


def reaches_index64(program: Program) -> bool:
    """True if a tensor of constant shape has ``INDEX32_LIMIT`` elements or more."""
    for buffer in (*(p.buffer for p in program.tensors()), *program.workspaces):
        count = 1
        for extent in buffer.shape:
            count *= const_value(extent) or 1
        if count >= INDEX32_LIMIT:
            return True
    return False


class Transformable:
    """The methods that give the op of a program or kernel a gradient and a batching rule.

    The rules belong to this process: a pickled kernel comes back without them.
    """

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        """Give the op a gradient, as ``torch.library.register_autograd`` takes it.

        ``setup_context(ctx, inputs, output)`` gets tensors and run-time scalars in order; one that
        has a parameter ``keyword_only_inputs`` also gets all compile-time values by name.
        ``backward(ctx, *grads)`` returns a gradient, or None, for each input; the gradients that
        it gets are contiguous. A later registration replaces an earlier one. ArgumentError for a
        lazy function, for a program that writes its inputs, and under ``differentiable=False``.
        """
        provider = self._transformed("register_autograd")
        provider.change_transforms(methodcaller("set_gradient", backward, setup_context))

    def register_vmap(self, rule: Callable[..., Any], /) -> None:
        """Give the op a batching rule, as ``torch.library.register_vmap`` takes it.

        ``rule(info, in_dims, *inputs)`` returns ``(output, out_dims)``. ArgumentError for a lazy
        function.
        """
        self._transformed("register_vmap").change_transforms(methodcaller("set_batching", rule))

    def fallback(self, device: str, function: Callable[..., Any], /) -> None:
        """Let calls on ``device``, which is ``"cpu"``, run ``function`` in place of compiled code.

        It is for programs whose foreign kernels run on GPUs alone. ``function`` gets tensors and
        run-time scalars in order, and by name the compile-time values that it has parameters for;
        it returns new tensors as the op does, or writes its arguments. A later fallback replaces an
        earlier one. Bundles do not hold it.
        """
        provider = self._transformed("fallback")
        provider.change_transforms(methodcaller("set_fallback", device, function))

    def _transformed(self, method: str) -> CodeProvider:
        raise NotImplementedError


# -- kernels -----------------------------------------------------------------------------------
class KernelState(CodeProvider):
    """One kernel: a program without ``T.const`` sizes, compiled for one target.

    Its name, and that of its op, is ``<base>__<10 hexadecimal digits>`` of the program, its options
    and its target.
    """

    compiled_for = "the kernel was compiled for {}"

    def __init__(self, base: str, program: Program, build: Build) -> None:
        super().__init__(build, Transforms(lambda static: {}, code_digest))
        self.base = base
        self.program = program
        tag = () if build.target is None else (("target", str(build.target)),)
        self.digest = digest_of(replace(program, options=(*program.options, *tag)), 10)
        self.name = f"{base}__{self.digest}"
        self._entry: cache.Entry | None = None
        # What a tuner found.
        self.config: dict[str, object] | None = None
        self.latency: float | None = None
        self.ref_latency: float | None = None

    @property
    def target(self) -> Target:
        """The target that the kernel was compiled for."""
        return self.build.target or default_target()

    @property
    def entry(self) -> cache.Entry:
        """The compiled form for the usual facts: aligned pointers, divisible sizes."""
        with self.lock:
            if self._entry is None or settings.current().dump_ir:  # a dump may be due
                spec = Specialization(fast=True, index64=reaches_index64(self.program))
                program = chosen(self.program, {}, {}, None)
                request = self._request(program, self.target, spec, "compile")
                self._entry = obtain_listed(replace(request, gpu=_gpu_for(self.target)))
            return self._entry

    def registered(self) -> Op:
        """The op of the kernel, registered when first asked for."""
        with self.lock:
            if self.op is None:
                inputs = [p.name for p in self.program.params]
                names.check(NAMESPACE, self.base, inputs, program=f"kernel {self.name}")
                spec = spec_of(self.program, namespace=NAMESPACE, name=self.base)
                origin = names.Origin("tileops", f"<locals>.{self.name}", self.digest)
                loc = self.program.launches[0].loc if self.program.launches else None
                place = "" if loc is None else loc.place
                return register(spec, self, origin, place, prepare=self.adopt, is_derived=True)
            return self.op

    def trace_symbolic(self, static: tuple[object, ...]) -> Program:
        """The kernel's program: it has no compile-time arguments left."""
        if static:
            raise InternalError(f"kernel {self.name} takes no compile-time arguments")
        return self.program

    def identity(self, spec: OpSpec) -> Identity:
        """The program is all that a kernel is; bundles name the target of each kernel."""
        return Identity.of(spec, digest_of(self.program, 64), "", str(self.build.target))

    def request_for(self, wanted: Wanted) -> Request:
        """What to compile: the program, for a target and facts."""
        program = chosen(self.program, wanted.sizes, wanted.scalars, wanted.words)
        return self._request(program, wanted.target, wanted.spec, facts_text(wanted.spec))

    def _request(self, program: Program, target: Target, spec: Specialization, why: str) -> Request:
        return Request(
            program=program,
            target=target,
            spec=spec,
            op=self.base,
            why=why,
            script=self.digest,
            debug_root=self.build.debug_root,
            verbose=self.build.verbose,
        )


_states: dict[str, KernelState] = {}


def state_for(base: str, program: Program, build: Build) -> KernelState:
    """The state of a kernel; equal programs for one target share it."""
    made = KernelState(base, program, build)
    with forks.guard:
        return _states.setdefault(made.name, made)


def state_of(name: str) -> KernelState:
    """The state of the kernel ``name``; InternalError if this process has none."""
    try:
        return _states[name]
    except KeyError:
        raise InternalError(f"no kernel {name!r} in this process") from None
