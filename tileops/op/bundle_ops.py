"""Ops of bundles: their loading, and what calls of them run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, overload

import torch

from tileops import counters, forks, runtime, settings
from tileops.errors import ArgumentError, CompileMissError, RedefinedOpError
from tileops.op import bundle_paths, names
from tileops.op.fake import fake_of
from tileops.op.overload import Overload, packet_of
from tileops.op.registration import Op, static_key
from tileops.op.spec import OpSpec
from tileops.op.variant import Variant

Trusted = Literal["user", "shared"]

_lock = forks.renewed_lock()  # over files; a second load in a child finds what is there
_loaded: dict[str, BundledOp] = {}  # by qualified name


@dataclass(frozen=True)
class _Part:
    """What one bundle says of an op, read before anything is registered."""

    spec: OpSpec
    handle: int  # 0 until it is registered
    path: str
    file: str
    aliases: tuple[str, ...]
    variants: tuple[Variant, ...]
    definition: str | None  # None: of format 1
    parts: Mapping[str, str]


class BundledOp:
    """One op that bundles brought, with the rules that its fake needs.

    ``calls`` are its Python side, by name. ``source`` is set once a program has taken it over.
    """

    def __init__(self, part: _Part) -> None:
        self.spec = part.spec
        self.handle = part.handle
        self.calls: dict[str, Overload] = {}
        self.source: Op | None = None
        self.first = part
        self.origins: dict[str, bool] = {}  # by folder: whether others may have written it
        self.names: set[str] = set()
        self._variants: dict[object, Variant] = {}

    def add(self, part: _Part, *, shared: bool) -> None:
        """Note what one bundle says of the op."""
        self.origins.setdefault(part.path, shared)
        for variant in part.variants:
            static = self.spec.normal(variant.static)
            self._variants.setdefault(static_key(static), variant)

    def variant(self, static: tuple[object, ...]) -> Variant:
        """The rules for compile-time arguments; CompileMissError where no bundle has them."""
        if self.source is not None:
            return self.source.variant(static)
        static = self.spec.normal(static)
        found = self._variants.get(static_key(static))
        if found is None:
            values, _, dtypes = self.spec.parts(static)
            names = [a.name for a in self.spec.statics()]
            named = {**dict(zip(names, values, strict=True)), **dtypes}
            given = ", ".join(f"{name} = {value!r}" for name, value in named.items())
            raise CompileMissError(
                f"{self.spec.title}: no kernel with {given} in the bundle "
                f"{' and '.join(self.origins)}; add this combination with tileops.bundle"
            )
        return found

    def variants(self) -> Iterable[Variant]:
        """The variants that bundles brought."""
        return self._variants.values()

    def rules(self) -> str:
        """A digest of what else than variants a traced graph takes of the op."""
        return "" if self.source is None else self.source.rules()

    def meet(self, holder: names.Holder) -> None:
        """Refuse a program with source that asks for the op's name, unless it is the same."""
        _require_same(self.first, holder)
        for path, shared in self.origins.items():
            bundle_paths.add(path, shared=shared)


Ops = dict[str, torch._ops.OpOverload]
Digests = dict[str, str | None]
_Path = str | os.PathLike[str] | None


@overload
def load_bundle(
    path: _Path = None,
    *,
    namespace: str | None = None,
    trust: Trusted | None = None,
    as_fallback: Literal[False] = False,
) -> Ops: ...


@overload
def load_bundle(
    path: _Path = None,
    *,
    namespace: None = None,
    trust: Trusted | None = None,
    as_fallback: Literal[True],
) -> Digests: ...


def load_bundle(
    path: _Path = None,
    *,
    namespace: str | None = None,
    trust: Trusted | None = None,
    as_fallback: bool = False,
) -> Ops | Digests:
    """Register the ops of the bundle in folder ``path``; returns them by qualified name.

    The ops need neither their source nor a compiler, and ``torch.compile`` and ``torch.export``
    trace them. None loads every bundle that ``TILEOPS_BUNDLE`` names. A call that needs a kernel
    that no bundle has raises CompileMissError.

    A bundle with an op that is here already adds its kernels if the op is the same program, as the
    digests in both bundles tell. The op of a program with source is left as it is, and takes its
    kernels from the bundle before it compiles. ``namespace`` registers the ops under it instead,
    beside those of other bundles: ``torch.ops.<namespace>.<name>``.

    ``as_fallback`` registers nothing: programs with source look into the bundle before they
    compile, as into those of ``TILEOPS_BUNDLE``, and take its kernels if program and options are
    equal. The result is then the digest of each op's program by qualified name; None for an op
    of an older bundle, which has none.

    A bundle is code. ``trust`` is ``"user"`` for a bundle that only this user and root can write,
    ``"shared"`` for any; None is ``"user"``, or as ``TILEOPS_CACHE_TRUST_SHARED`` says.

    ArgumentError, with nothing registered, for a bundle that is missing, damaged or not trusted,
    and for an op whose name another program has: the message names both files. InternalError for a
    bundle that is malformed.
    """
    if path is None:
        found: Sequence[str] = settings.current().bundle
        if not found:
            raise ArgumentError("load_bundle: give a path, or name bundles in TILEOPS_BUNDLE")
    else:
        found = [os.fspath(path)]
    if namespace is not None:
        names.check_namespace(namespace, where="load_bundle(namespace=...)")
    if trust not in (None, "user", "shared"):
        raise ArgumentError(f'load_bundle: trust is "user" or "shared", got {trust!r}')
    shared = trust == "shared" if trust is not None else settings.current().cache_trust_shared
    # Not resolve(), which would follow links.
    paths = [os.path.abspath(p) for p in found]  # noqa: PTH100
    if not as_fallback:
        return _load(paths, namespace or "", shared)
    if namespace is not None:
        raise ArgumentError(
            "load_bundle: as_fallback registers no ops, so there is nothing to put into "
            f"namespace={namespace!r}"
        )
    return _serve(paths, shared)


def _serve(paths: list[str], shared: bool) -> Digests:
    """Let programs with source look into bundles, once all of them have been read."""
    with _lock:
        found = _parts(runtime.read_bundles(paths, shared=shared))
        for path in paths:
            bundle_paths.add(path, shared=shared)
    return {name: each[0].definition for name, each in found.items()}


def _load(paths: list[str], namespace: str, shared: bool) -> dict[str, torch._ops.OpOverload]:
    with _lock:
        counters.set_provider(runtime.counters)
        runtime.set_sync(settings.current().sync)
        parts = _parts(runtime.read_bundles(paths, shared=shared, namespace=namespace))
        defined = {name for name, each in parts.items() if _is_defined(name, each)}
        texts = runtime.load_bundles(paths, shared=shared, namespace=namespace, left=defined)
        for part in (part for name in parts if name in defined for part in parts[name]):
            bundle_paths.add(part.path, shared=shared)
        adopted = _parts(texts)
        with forks.guard:
            for name, each in adopted.items():
                _adopt(name, each, shared)
    return {name: packet_of(each[0].spec).default for name, each in parts.items()}


def _parts(texts: Sequence[runtime.BundledOp]) -> dict[str, list[_Part]]:
    """What bundles say of each op; InternalError for what is malformed."""
    found: dict[str, list[_Part]] = {}
    for item in texts:
        document = json.loads(item.text)
        namespace, _, _ = item.name.partition("::")
        spec = OpSpec.from_json(document["op"])
        folder = spec.name if spec.namespace == "tileops" else f"{spec.namespace}.{spec.name}"
        variants = tuple(Variant.from_json(v["variant"], spec) for v in document["variants"])
        found.setdefault(item.name, []).append(
            _Part(
                replace(spec, namespace=namespace),
                item.handle,
                item.path,
                os.path.join(item.path, "ops", folder, "op.json"),  # noqa: PTH118
                tuple(document.get("aliases", ())),
                variants,
                document["definition"] if document["format"] > 1 else None,
                document.get("parts", {}),
            )
        )
    return found


def _is_defined(name: str, parts: Sequence[_Part]) -> bool:
    """Whether a program with source has the name; ArgumentError where it is another program."""
    holder = names.holder_of(*name.split("::"))
    if holder is None or holder.meet is not None:
        return False
    for part in parts:
        _require_same(part, holder)
    return True


def _require_same(part: _Part, holder: names.Holder) -> None:
    identity = None if holder.identity is None else holder.identity()
    if identity is not None and part.definition == identity.digest:
        return
    name = part.spec.qualified_name
    reason = "of format 1, which does not tell whether both are one program"
    if part.definition is not None and identity is not None:
        reason = f"another program (they differ in: {identity.difference(part.parts)})"
    raise ArgumentError(
        f"{part.file}: the op {name} is defined in this process already, by {holder.origin}, and "
        f"that of the bundle is {reason}; to have both, load the bundle with namespace=..., or "
        "give the program another name with jit(name=...)"
    )


def _adopt(name: str, parts: Sequence[_Part], shared: bool) -> None:
    op = _loaded.get(name) or BundledOp(parts[0])
    _loaded[name] = op
    spec = op.spec
    origin = names.Origin("the bundle", f"<locals> {op.first.path}", "")
    for part in parts:
        op.add(part, shared=shared)
        for each in (spec.name, *part.aliases):
            if each not in op.names:
                op.names.add(each)
                # A further name of the op cannot be taken over: programs have one name.
                adopted = op if each == spec.name else None
                holder = names.Holder(origin, _cannot_retire, meet=op.meet, adopted=adopted)
                names.hold(spec.namespace, each, holder)
                fake = fake_of(spec, op.variant, op.rules)
                op.calls[each] = Overload(replace(spec, name=each), fake)


def _cannot_retire(message: str) -> None:
    raise RedefinedOpError(f"an op of a bundle cannot be replaced: {message}")
