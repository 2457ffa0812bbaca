"""Owns ops that come from bundles: registered by the runtime, with their fakes from the rules."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from typing import Any

import torch

from tileops import counters, runtime, settings
from tileops.errors import ArgumentError, CompileMissError, RedefinedOpError
from tileops.op import default_device, names
from tileops.op.fake import fake_of
from tileops.op.reading import spec_from_json, variant_from_json
from tileops.op.registration import defined_by, static_key
from tileops.op.spec import OpSpec
from tileops.op.variant import Variant

_lock = threading.Lock()
_loaded: dict[str, _BundledOp] = {}  # by qualified name


class _BundledOp:
    """One op that bundles brought, with the rules that its fake needs."""

    def __init__(self, spec: OpSpec) -> None:
        self.spec = spec
        self.origins: list[str] = []
        self.names: set[str] = set()
        self._variants: dict[object, Variant] = {}

    def add(self, origin: str, document: Mapping[str, Any]) -> None:
        """Note what one bundle says of the op."""
        if origin not in self.origins:
            self.origins.append(origin)
        for item in document["variants"]:
            variant = variant_from_json(item["variant"], self.spec)
            self._variants.setdefault(static_key(variant.static), variant)

    def variant(self, static: tuple[object, ...]) -> Variant:
        """The rules for compile-time arguments; CompileMissError where no bundle has them."""
        found = self._variants.get(static_key(static))
        if found is None:
            given = ", ".join(
                f"{a.name} = {v!r}" for a, v in zip(self.spec.statics(), static, strict=False)
            )
            raise CompileMissError(
                f"{self.spec.name}: no kernel with {given} in the bundle "
                f"{' and '.join(self.origins)}; add this combination with tileops.bundle"
            )
        return found


def load_bundle(
    path: str | os.PathLike[str] | None = None,
) -> dict[str, torch._ops.OpOverload]:
    """Register the ops of the bundle in folder ``path``; returns them by qualified name.

    The ops need neither their source nor a compiler, and ``torch.compile`` and ``torch.export``
    trace them. None loads every bundle that ``TILEOPS_BUNDLE`` names. A second bundle with the same
    op adds its kernels. A call that needs a kernel that no bundle has raises CompileMissError.

    ArgumentError for a bundle that is missing or damaged, or whose op is defined in this process
    with source; InternalError for one that is malformed.
    """
    if path is None:
        found = settings.current().bundle
        if not found:
            raise ArgumentError("load_bundle: give a path, or name bundles in TILEOPS_BUNDLE")
        loaded: dict[str, torch._ops.OpOverload] = {}
        for each in found:
            loaded.update(_load(os.path.abspath(each)))  # noqa: PTH100
        return loaded
    return _load(os.path.abspath(path))  # noqa: PTH100  (resolve() would follow links)


def _load(path: str) -> dict[str, torch._ops.OpOverload]:
    with _lock:
        _refuse_defined(path)
        counters.set_provider(runtime.counters)
        runtime.set_sync(settings.current().sync)
        loaded = runtime.load_bundle(path)
        return {name: _adopt(name, path, json.loads(text)) for name, text in loaded.items()}


def _refuse_defined(path: str) -> None:
    try:
        with open(os.path.join(path, "bundle.json"), "rb") as file:  # noqa: PTH118, PTH123
            ops = dict(json.load(file)["ops"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return  # the runtime says what is wrong with it
    for folder in ops:
        name = _qualified(str(folder))
        place = defined_by(name)
        if place is not None:
            raise ArgumentError(
                f"{path}: the op {name} is defined in this process already, by {place}; load the "
                "bundle in a process without that definition, or name it in TILEOPS_BUNDLE, from "
                "which the definition takes its kernels"
            )


def _qualified(folder: str) -> str:
    # The inverse of how folders are named: op names hold no point, and tileops is left out.
    namespace, _, name = folder.rpartition(".")
    return f"{namespace or 'tileops'}::{name}"


def _adopt(name: str, path: str, document: Mapping[str, Any]) -> torch._ops.OpOverload:
    known = _loaded.get(name)
    op = _BundledOp(spec_from_json(document["op"])) if known is None else known
    op.add(path, document)
    _loaded[name] = op
    spec = op.spec
    for each in (spec.name, *document.get("aliases", ())):
        if each not in op.names:
            op.names.add(each)
            names.hold(spec.namespace, each, names.Holder(_origin(op), _cannot_retire))
            torch.library.register_fake(f"{spec.namespace}::{each}", fake_of(spec, op.variant))
            default_device.follow(spec, each)
    packet = getattr(getattr(torch.ops, spec.namespace), spec.name)
    return packet.default  # type: ignore[no-any-return]


def _origin(op: _BundledOp) -> names.Origin:
    return names.Origin("the bundle", f"<locals> {op.origins[0]}", "")


def _cannot_retire(message: str) -> None:
    raise RedefinedOpError(f"an op of a bundle cannot be replaced: {message}")
