"""Owns what stands behind a compiled kernel: its program, its artifact and its op."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tileops import cache, forks, runtime, settings
from tileops.codegen.kernel_code import Specialization
from tileops.errors import ArgumentError, InternalError
from tileops.ir.program import INDEX32_LIMIT, Program, const_value
from tileops.jit.checking import described
from tileops.jit.compiling import Request, note_script, obtain
from tileops.jit.record import entry_of
from tileops.jit.targets import default_target, device_target, device_text, is_runnable_on
from tileops.op import names, schema_names
from tileops.op.identity import Identity, identity_of
from tileops.op.registration import Op, Provider, digest_of, held_outside, register, retire
from tileops.op.spec import OpSpec, spec_of
from tileops.op.transforms import Transforms
from tileops.op.variant import Variant
from tileops.target import Target

NAMESPACE = "tileops"


@dataclass(frozen=True)
class Build:
    """How a program is compiled: target (None: the device decides), and where text is exported."""

    target: Target | None = None
    verbose: bool = False
    debug_root: str | None = None


class KernelState(Provider):
    """One kernel: a program without ``T.const`` sizes, compiled for one target."""

    def __init__(self, base: str, program: Program, build: Build) -> None:
        self.base = base
        self.program = program
        self.build = build
        self.digest = kernel_digest(program, build.target)
        self._lock = forks.renewed_lock()
        self._op: Op | None = None
        self._entry: cache.Entry | None = None
        self.config: dict[str, object] | None = None
        self.latency: float | None = None
        self.ref_latency: float | None = None
        self._transforms = Transforms(lambda static: {})

    @property
    def name(self) -> str:
        """The name of the kernel and of its op: ``<base>__<10 hexadecimal digits>``."""
        return f"{self.base}__{self.digest}"

    @property
    def target(self) -> Target:
        """The target that the kernel was compiled for."""
        return self.build.target or default_target()

    @property
    def entry(self) -> cache.Entry:
        """The compiled form for the usual facts: aligned pointers, divisible sizes."""
        with self._lock:
            if self._entry is None or settings.current().dump_ir:  # a dump may be due
                spec = Specialization(fast=True, index64=reaches_index64(self.program))
                self._entry = self._obtain(self.target, spec, "compile")
            return self._entry

    def op(self) -> Op:
        """The op of the kernel, registered when first asked for."""
        with self._lock:
            if self._op is None:
                inputs = [p.name for p in self.program.params]
                schema_names.check(NAMESPACE, self.base, inputs, program=f"kernel {self.name}")
                spec = spec_of(self.program, namespace=NAMESPACE, name=self.name)
                origin = names.Origin("tileops", f"<locals>.{self.name}", self.digest)
                holder = names.Holder(origin, self.retire, lambda: self.identity(spec))
                with forks.guard:
                    claim = names.take_derived(
                        NAMESPACE, self.base, holder, is_held_outside=_held_outside
                    )
                    op = register(spec, self, claim, _origin(self.program))
                    self._transforms.install(op)
                    self._op = op
            return self._op

    def change_transforms(self, change: Callable[[Transforms], None]) -> None:
        """Change the rules of the op, and register it with them."""
        with self._lock:
            change(self._transforms)
            op = self.op()
            with forks.guard:
                self._transforms.install(op)

    def unload(self) -> None:
        """Free the op's loaded code, if there is an op; the artifact stays."""
        op = self._op
        if op is not None:
            op.unload()

    # -- what the op asks for ------------------------------------------------------------------
    def trace_symbolic(self, static: tuple[object, ...]) -> Program:
        """The kernel's program: it has no compile-time arguments left."""
        if static:
            raise InternalError(f"kernel {self.name} takes no compile-time arguments")
        return self.program

    def supply_entry(self, op: Op, variant: Variant, request: Mapping[str, Any]) -> None:
        """Give the op the code for a device and its facts."""
        device = (request["device_type"], request["device_index"])
        if self.build.target is not None and not is_runnable_on(self.build.target, *device):
            raise ArgumentError(
                f"{op.spec.name}: the kernel was compiled for {self.build.target} and cannot run "
                f"on {device_text(*device)}, which is {device_target(*device)}"
            )
        target = self.build.target or device_target(*device)
        spec = Specialization(request["fast"], request["index64"])
        entry = self.obtain(op, variant, target, spec, (), {})
        reports = described(self.program, target)
        supply(op, variant, entry, target=target, spec=spec, consts=(), reports=reports)

    def identity(self, spec: OpSpec) -> Identity:
        """The program is all that a kernel is; its target is said of each kernel of a bundle."""
        return identity_of(spec, digest_of(self.program, 64), "", str(self.build.target))

    def retire(self, message: str) -> None:
        """Nothing replaces a kernel: its name is made from its content."""
        op = self._op
        if op is not None:
            retire(op, message)

    def obtain(
        self,
        op: Op,
        variant: Variant,
        target: Target,
        spec: Specialization,
        const_values: tuple[int, ...],
        sizes: Mapping[str, int],
    ) -> cache.Entry:
        """The compiled form under these facts; a kernel has no sizes left to choose."""
        return self._obtain(target, spec, "fast facts" if spec.fast else "general facts")

    def _obtain(self, target: Target, spec: Specialization, why: str) -> cache.Entry:
        request = Request(
            program=self.program,
            target=target,
            spec=spec,
            op=self.base,
            why=why,
            script=self.digest,
            debug_root=self.build.debug_root,
            verbose=self.build.verbose,
        )
        entry = obtain(request)
        note_script(request, entry)
        return entry


def supply(
    op: Op,
    variant: Variant,
    entry: cache.Entry,
    *,
    target: Target,
    spec: Specialization,
    consts: tuple[int, ...],
    reports: list[dict[str, Any]],
    buckets: tuple[int, ...] = (),
    config: str = "",
) -> None:
    """Hand a compiled program to an op as the entry for these const sizes and facts.

    ``reports`` say what a failed check means, with this process's files and lines; ``buckets`` are
    the places of the sizes that the op chooses kernels by; ``config`` the compile-time values in
    words.
    """
    entry_json = entry_of(
        entry.manifest["record"], op.spec, variant,
        target=target, spec=spec, consts=consts, config=config,
    )  # fmt: skip
    if buckets:
        entry_json["consts"] = [*entry_json["consts"], *buckets]
    images: dict[str, runtime.Image] = {}
    if reports:
        entry_json["reports"] = reports
    for launch in entry_json["launches"]:
        name = launch["image"]
        # The verified bytes: what lies on disk can have changed since, or go while it runs.
        data = entry.files[name]
        images[name] = data if entry.path is None else (data, str(entry.path / name))
    key = (str(target), consts, spec.fast, spec.index64, buckets)
    op.add_entry(variant, key, entry_json, images)


def reaches_index64(program: Program) -> bool:
    """True if a tensor of constant shape has ``INDEX32_LIMIT`` elements or more."""
    for buffer in (*(p.buffer for p in program.tensors()), *program.workspaces):
        count = 1
        for extent in buffer.shape:
            count *= const_value(extent) or 1
        if count >= INDEX32_LIMIT:
            return True
    return False


def kernel_digest(program: Program, target: Target | None) -> str:
    """Ten hexadecimal digits of the program, its options and its target."""
    if target is None:
        return digest_of(program, 10)
    tagged = replace(program, options=(*program.options, ("target", str(target))))
    return digest_of(tagged, 10)


def _origin(program: Program) -> str:
    loc = program.launches[0].loc if program.launches else None
    return "" if loc is None else loc.place


def _held_outside(name: str) -> str | None:
    return held_outside(NAMESPACE, name)


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
