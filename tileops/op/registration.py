"""Registered ops: their creation in torch, and the answers to the runtime's misses."""

from __future__ import annotations

import bisect
import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from tileops import counters, forks, optional_torch, runtime, settings
from tileops.errors import ArgumentError
from tileops.ir.printer import print_program
from tileops.ir.program import Program
from tileops.op import names
from tileops.op.fake import fake_of
from tileops.op.names import Identity
from tileops.op.overload import Overload, packet_of
from tileops.op.spec import OpSpec
from tileops.op.variant import Variant, variant_of
from tileops.optional_torch import torch

if TYPE_CHECKING:
    from tileops.op.bundle_ops import BundledOp

# Target, values of the const sizes, fast, 64-bit offsets, buckets of the sizes that have some, and
# the facts that foreign kernels assume.
EntryKey = tuple[str, tuple[int, ...], bool, bool, tuple[int, ...], tuple[int, ...]]
# Number of a size and its buckets' upper bounds; without bounds each value is a bucket.
Buckets = tuple[tuple[int, tuple[int, ...]], ...]


class Provider(Protocol):
    """The program or kernel behind an op: it traces and supplies compiled kernels."""

    def trace_symbolic(self, static: tuple[object, ...]) -> Program:
        """The program for these compile-time arguments, its sizes symbolic."""

    def supply_entry(self, op: Op, variant: Variant, request: Mapping[str, Any]) -> None:
        """Compile or load what ``request`` asks for and give it to ``op.add_entry``."""

    def retire(self, message: str) -> None:
        """The op's address now leads to a later definition."""

    def identity(self, spec: OpSpec) -> Identity:
        """What tells the program from another one whose op is ``spec``."""


class Op:
    """One op that torch knows; it lives as long as the process."""

    def __init__(self, spec: OpSpec, provider: Provider) -> None:
        self.spec = spec
        self.provider = provider
        self.handle: int = -1
        # One thread traces a variant. What is noted both here and in the runtime is noted under the
        # guard: a forked child that had one without the other could not call the op.
        self._lock = forks.renewed_lock()
        self._variants: dict[tuple[object, ...], Variant] = {}
        self._numbers: dict[tuple[object, ...], int] = {}
        self._by_number: dict[int, Variant] = {}  # also of those that were unloaded
        self._resolving = threading.local()  # number: the variant that this thread's call has
        self._entries: set[tuple[int, EntryKey]] = set()
        self._installed: set[str] = set()
        self.calls: Overload  # what calls through torch.ops pass; set once torch has the op
        self.bucketing: Callable[[Variant], Buckets] | None = None
        self.rules: Callable[[], str] = str  # a digest of its gradient, batching and autocast

    def is_new(self, rule: str) -> bool:
        """True at the first request for a rule."""
        is_new = rule not in self._installed
        self._installed.add(rule)
        return is_new

    @property
    def overload(self) -> torch._ops.OpOverload:
        """The callable of torch: ``torch.ops.<namespace>.<name>.default``."""
        return packet_of(self.spec).default  # type: ignore[no-any-return]

    def variant(self, static: Sequence[object]) -> Variant:
        """The shape rules for compile-time arguments (None where left to the default)."""
        static = self.spec.normal(static)
        key = static_key(static)
        with self._lock:
            found = self._variants.get(key)
            if found is None:
                program = self.provider.trace_symbolic(tuple(static))
                found = variant_of(program, self.spec, static)
                self._variants[key] = found
            return found

    def expect(self, variants: Iterable[Variant]) -> None:
        """Know the numbers of variants that the runtime has: calls that are inside may ask."""
        for variant in variants:
            self._by_number[runtime.add_variant(self.handle, variant.to_json())] = variant

    def keep_variant(self, static: Sequence[object], program: Program) -> None:
        """Remember a symbolic trace that was made anyway."""
        static = self.spec.normal(static)
        self._variants[static_key(static)] = variant_of(program, self.spec, static)

    def keep_given(self) -> None:
        """Tell default values from missing ones: a tuner chooses the arguments that are missing."""
        with forks.guard:
            args = tuple(replace(a, standard=None) for a in self.spec.args)
            self.spec = replace(self.spec, args=args)
            runtime.keep_given(self.handle)

    def publish_variant(self, static: Sequence[object]) -> int:
        """Give the runtime the variant of ``static`` if it lacks it; returns its number."""
        static = self.spec.normal(static)
        key = static_key(static)
        while True:
            with forks.guard:  # not in the middle of an unload, which makes numbers invalid
                number = self._numbers.get(key)
            if number is not None:
                return number
            variant = self.variant(static)
            content = variant.to_json()
            content["buckets"] = [[n, list(bounds)] for n, bounds in self.buckets(variant)]
            with forks.guard:
                if key not in self._numbers:
                    number = runtime.add_variant(self.handle, content)
                    self._numbers[key] = number
                    self._by_number[number] = variant

    def buckets(self, variant: Variant) -> Buckets:
        """The run-time sizes that kernels of the variant are chosen by, besides the facts."""
        return () if self.bucketing is None else self.bucketing(variant)

    def bucket(self, variant: Variant, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The place of ``sizes`` among the buckets, as the call path finds it."""
        found = []
        for number, bounds in self.buckets(variant):
            value = sizes[variant.sizes[number].name]
            found.append(bisect.bisect_left(bounds, value) if bounds else value)
        return tuple(found)

    def resolve(self, request: Mapping[str, Any]) -> None:
        """Answer a miss of the call path; errors reach the caller."""
        if request["kind"] == "variant":
            self.publish_variant(request["static"])
            return
        # Another thread may have given the runtime this variant and not noted its number here yet.
        with forks.guard:
            variant = self._by_number[request["variant"]]
        outer = getattr(self._resolving, "number", None)
        self._resolving.number = request["variant"]
        try:
            self.provider.supply_entry(self, variant, request)
        finally:
            self._resolving.number = outer

    def add_entry(
        self,
        variant: Variant,
        key: EntryKey,
        entry: dict[str, Any],
        images: dict[str, runtime.Image],
    ) -> None:
        """Give the runtime a compiled kernel, once for each ``key`` within the variant."""
        asked = getattr(self._resolving, "number", None)
        place = static_key(variant.static)
        while True:
            number = self.publish_variant(variant.static)
            with forks.guard:
                # A call that ran while the op was unloaded has the earlier number.
                if asked is not None and self._by_number[asked] is variant:
                    number = asked
                elif self._numbers.get(place) != number:
                    continue  # unloaded meanwhile
                if (number, key) not in self._entries:
                    runtime.add_entry(self.handle, number, entry, images)
                    self._entries.add((number, key))
                return

    def retire(self, message: str) -> None:
        """Make calls of the op raise RedefinedOpError with ``message``."""
        runtime.retire_op(self.handle, message)

    def combinations(self) -> list[tuple[Variant, tuple[int, ...], bool, tuple[int, ...]]]:
        """What calls have asked for: variant, const sizes, whether offsets are 64-bit, facts."""
        with forks.guard:
            current = set(self._numbers.values())
            found = {
                (number, key[1], key[3], key[5]): None
                for number, key in sorted(self._entries, key=repr)
                if number in current
            }
            return [(self._by_number[n], consts, wide, words) for n, consts, wide, words in found]

    def unload(self) -> None:
        """Free the op's kernels once its running calls are done; the next call loads them again."""
        self.detach()
        self.release()

    def detach(self) -> None:
        """The first half of ``unload``, which waits for nothing."""
        with forks.guard:
            runtime.detach(self.handle)
            self._entries.clear()
            self._numbers.clear()

    def release(self) -> None:
        """The second half. Not under a lock: running calls may be waiting for it."""
        runtime.release(self.handle)


_ops: list[Op] = []


def digest_of(program: Program, digits: int) -> str:
    """The first hexadecimal digits of the SHA-256 of the program's canonical text."""
    return hashlib.sha256(print_program(program).encode()).hexdigest()[:digits]


def register(
    spec: OpSpec,
    provider: Provider,
    origin: names.Origin,
    place: str,
    *,
    prepare: Callable[[Op], None],
    is_derived: bool = False,
    is_differentiable: bool = True,
) -> Op:
    """Create the op of ``spec`` in torch, under its name or, with ``is_derived``, a derived one.

    ``place`` is where the program was defined, for errors of the device. ``prepare`` gets the op
    before others see it. ``is_differentiable`` False: a backward pass through it is not an error. A
    replaced op raises RedefinedOpError from now on, and ``torch.ops`` leads to the new one. Where a
    bundle brought an op of the same program, it becomes the program's: no other one is made.
    """
    if not optional_torch.IS_HERE:
        return _without_torch(spec, provider, origin, prepare, is_derived)
    holder = names.Holder(origin, provider.retire, lambda: provider.identity(spec))
    asked = names.derived_name(spec.name, origin) if is_derived else spec.name
    holder = names.ready_to_meet(spec.namespace, asked, holder)
    take = names.take_derived if is_derived else names.claim
    # A child has the name, the op, its rules and its provider's state, or none of them.
    with forks.guard:
        claim = take(spec.namespace, spec.name, holder)
        named = replace(spec, name=claim.name)
        if claim.adopted is None:
            op = _created(named, provider, place, is_differentiable)
        else:
            op = _adopted(claim.adopted, named, provider, place, is_differentiable)
        if claim.address != claim.name:
            space = getattr(torch.ops, spec.namespace)
            setattr(space, claim.address, getattr(space, claim.name))
        if claim.replaced is not None:
            claim.replaced.retire(
                f"the op {spec.namespace}::{claim.address} was defined again; this handle leads to "
                f"the earlier definition. Call the new function, or torch.ops.{spec.namespace}."
                f"{claim.address}"
            )
        prepare(op)
    claim.warn()
    return op


def _created(spec: OpSpec, provider: Provider, place: str, is_differentiable: bool) -> Op:
    op = Op(spec, provider)
    op.handle = runtime.create_op(spec.to_json())
    _keep(op, place)
    fake = fake_of(spec, op.variant, lambda: op.rules())
    op.calls = Overload(spec, fake, is_differentiable=is_differentiable)
    return op


def _without_torch(
    spec: OpSpec,
    provider: Provider,
    origin: names.Origin,
    prepare: Callable[[Op], None],
    is_derived: bool,
) -> Op:
    """An op that no call reaches: what a bundle is written from."""
    name = names.derived_name(spec.name, origin) if is_derived else spec.name
    with forks.guard:
        op = Op(replace(spec, name=name), provider)
        op.handle = len(_ops)
        _ops.append(op)
        prepare(op)
    return op


def _keep(op: Op, place: str) -> None:
    if not _ops:
        counters.set_provider(runtime.counters)
        settings.on_code_change(_detach_all)
    _ops.append(op)
    runtime.set_sync(settings.current().sync)
    runtime.set_origin(op.handle, place)
    runtime.set_resolver(op.handle, lambda handle, request: op.resolve(request))


def _adopted(
    bundled: BundledOp, spec: OpSpec, provider: Provider, place: str, is_differentiable: bool
) -> Op:
    """The op of a bundle as that of the program, which answers its misses from now on.

    The kernels that the bundle brought are set aside: the program looks for its own by their code,
    in that bundle too.
    """
    op = Op(spec, provider)
    op.handle, op.calls = bundled.handle, bundled.calls[spec.name]
    op.calls.is_differentiable = is_differentiable
    if [a.standard for a in spec.args] != [a.standard for a in bundled.spec.args]:
        op.keep_given()  # one of the two is tuned: the runtime does not know the program's defaults
    op.expect(bundled.variants())
    _keep(op, place)
    runtime.adopt_op(op.handle)
    bundled.source = op
    return op


def _detach_all() -> Callable[[], None]:
    with forks.guard:
        ops = tuple(_ops)
        for op in ops:
            op.detach()

    def release() -> None:
        for op in ops:
            op.release()

    return release


def refuse_capture(what: str) -> None:
    """ArgumentError if a stream that torch would use on this thread records a CUDA graph."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return
    for index in range(torch.cuda.device_count()):
        if runtime.is_capturing(index):
            raise ArgumentError(
                f"{what}: not while a CUDA graph is being captured, which it would break "
                f"(torch's current stream on cuda:{index})"
            )


def static_key(static: Sequence[object]) -> tuple[object, ...]:
    """A hashable key of compile-time arguments as an op receives them."""
    # 1, True and 1.0 are equal to Python and three different programs; so are 0.0 and -0.0.
    return tuple((type(v), repr(v)) for v in static)
