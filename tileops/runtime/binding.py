"""Owns the typed wrappers over the native control plane ``tileops._C``."""

from __future__ import annotations

import functools
import importlib
import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tileops import errors

# Called with (handle, request) where a call finds no variant or entry: adds it, or raises.
Resolver = Callable[[int, dict[str, Any]], None]

# The content, a path, or both: the content, and where a copy of it lies.
Image = bytes | str | os.PathLike[str] | tuple[bytes, str]


@functools.cache
def native() -> Any:  # noqa: ANN401 - a module without type information
    """The binding module, loaded at the first use; raises ToolchainError if it was not built."""
    # libtileops is linked with libtorch, which only torch's own import puts into the process.
    import torch

    try:
        module = importlib.import_module("tileops._C")
    except ImportError as error:
        raise errors.ToolchainError(
            f"tileops' native part cannot be loaded ({error}); reinstall tileops, or in a checkout "
            "run 'pip install --no-build-isolation -e .'"
        ) from error
    module.set_error_classes(
        [
            errors.ArgumentError,
            errors.ArgumentTypeError,
            errors.RedefinedOpError,
            errors.CompileMissError,
            errors.ToolchainError,
            errors.DriverError,
            errors.InternalError,
            torch.OutOfMemoryError,
        ]
    )
    return module


def _text(value: Mapping[str, Any] | str) -> str:
    return value if isinstance(value, str) else json.dumps(value, allow_nan=False)


def static_json(value: object) -> object:
    """The JSON form of a static argument: infinities and NaN, which JSON lacks, become strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def create_op(op: Mapping[str, Any] | str) -> int:
    """Register an op with torch as its op.json says; return its handle, valid until exit.

    Raises ArgumentError where torch refuses the schema or the name, InternalError for a malformed
    description.
    """
    return int(native().create_op(_text(op)))


def add_variant(handle: int, variant: Mapping[str, Any] | str) -> int:
    """Add the checks and bindings of one combination of static arguments; return its number.

    ``static`` holds the values in order, then for each optional tensor whether it is given. In
    JSON text a value must be in the form of ``static_json``.

    An equal combination that is there already wins: its number is returned.
    """
    if not isinstance(variant, str):
        variant = {**variant, "static": [static_json(value) for value in variant["static"]]}
    return int(native().add_variant(handle, _text(variant)))


def add_entry(
    handle: int, variant: int, entry: Mapping[str, Any] | str, images: Mapping[str, Image]
) -> None:
    """Add a compiled specialisation of a variant. ``images`` maps file names to what they hold.

    With the content given, nothing that happens to a file later can reach the code that runs.
    Nothing is loaded before the first call that needs it. An equal specialisation that is there
    already wins.
    """
    sources = {name: _source(image) for name, image in images.items()}
    native().add_entry(handle, variant, _text(entry), sources)


def _source(image: Image) -> Image | tuple[bytes, bytes]:
    # A path is bytes for the system; as text it need not be one that UTF-8 can hold.
    return (image[0], os.fsencode(image[1])) if isinstance(image, tuple) else image


def load_entry(
    handle: int,
    variant: int,
    *,
    cuda: bool,
    device_index: int,
    consts: Sequence[int],
    fast: bool,
    index64: bool,
) -> None:
    """Load the code of an entry on a device, so that its first call loads nothing.

    InternalError where no such entry was added, DriverError where the driver refuses it.
    """
    native().load_entry(handle, variant, cuda, device_index, list(consts), fast, index64)


def set_resolver(handle: int, resolver: Resolver | None) -> None:
    """Set what a call runs when it finds no variant or entry: once a key, however many wait.

    A request is ``{"kind": "variant", "static": [...]}`` (static arguments in order, then for each
    optional tensor whether it was given) or ``{"kind": "entry", "variant", "device_type",
    "device_index", "capability", "consts", "fast", "index64", "sizes", "scalars", "entries"}``;
    ``entries`` is how many specialisations the variant has already.
    """
    native().set_resolver(handle, resolver)


def keep_given(handle: int) -> None:
    """Let a static argument that is given its default's value select a variant of its own."""
    native().keep_given(handle)


def retire_op(handle: int, message: str) -> None:
    """Make every later call of the op raise RedefinedOpError with ``message``."""
    native().retire_op(handle, message)


def unload(handle: int) -> None:
    """Drop the op's variants, entries and loaded code, waiting for the calls that run them.

    The op stays: its next call asks the resolver again.
    """
    detach(handle)
    release(handle)


def detach(handle: int) -> None:
    """The first half of ``unload``: calls find nothing any more; those inside finish.

    Variant numbers that those calls still ask for stay good.
    """
    native().detach(handle)


def release(handle: int) -> None:
    """The second half: waits for those calls and frees what they used.

    Not under a lock that a resolver takes, which may be what they wait for.
    """
    native().release(handle)


@dataclass(frozen=True)
class BundledText:
    """One op of a bundle: its qualified name here, its ``op.json``, and the bundle's folder."""

    name: str
    text: str
    path: str


def read_bundles(
    paths: Sequence[str], *, shared: bool = False, namespace: str = ""
) -> list[BundledText]:
    """The ops that ``load_bundles`` would register; errors as there, but for those of names."""
    found = native().read_bundles([os.fsencode(path) for path in paths], shared, namespace)
    return _texts(found)


def load_bundles(
    paths: Sequence[str],
    *,
    shared: bool = False,
    namespace: str = "",
    left: Collection[str] = (),
) -> list[BundledText]:
    """Register the ops of bundles, all or none; ``left`` names those that are not registered.

    ``namespace`` takes the place of the ops' own; ``shared`` allows files that others may have
    written. ArgumentError naming the file where a bundle is missing, damaged or not trusted, and
    for a name that another op has; InternalError for a malformed bundle.
    """
    plain = [os.fsencode(path) for path in paths]
    return _texts(native().load_bundles(plain, shared, namespace, set(left)))


def _texts(found: Iterable[tuple[int, str, str, str, bytes]]) -> list[BundledText]:
    return [
        BundledText(f"{ns}::{name}", text, os.fsdecode(path)) for _, ns, name, text, path in found
    ]


def set_origin(handle: int, text: str) -> None:
    """Tell where the op's program stands, ``file:line``, for errors of the device."""
    native().set_origin(handle, os.fsencode(text))


def set_sync(sync: bool) -> None:
    """Make each CUDA call wait for its kernels, so that a fault is the error of its op."""
    native().set_sync(sync)


def recent_launches(device_index: int) -> list[str]:
    """The latest launches of this process on a CUDA device, newest first: op and sizes.

    Some may still be running: what a CUDA error that torch reports may stem from.
    """
    return [line for line in native().recent_launches(device_index).split("\n") if line]


def set_strict(strict: bool) -> None:
    """Make a missing kernel raise CompileMissError instead of asking the resolver."""
    native().set_strict(strict)


def is_strict() -> bool:
    """Whether a missing kernel is an error."""
    return bool(native().strict())


def counters() -> dict[str, int]:
    """Events of this process: ``launches loads memory_hits resolves``; ``load_ns`` is a time."""
    return dict(native().counters())


def set_stage_clock(is_on: bool) -> None:
    """Start or stop the clock of the stages of calls, in all threads; what it counted is forgotten.

    It costs a call some 0.2 us; without it a call reads no clock.
    """
    native().set_stage_clock(is_on)


def stage_totals() -> dict[str, int]:
    """Nanoseconds by stage since the clock was started.

    ``read`` the arguments, ``look up`` the kernel and check, ``allocate`` outputs, ``launch`` with
    its part ``kernel`` (the driver's call; on a CPU the kernel itself), ``free`` the arguments.
    """
    return dict(native().stage_totals())
