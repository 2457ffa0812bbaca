"""What a process needs to run a compiled program without tracing it, as plain JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileops import cache, forks, runtime
from tileops.cache.entry import fact_of
from tileops.codegen.kernel_code import Specialization
from tileops.errors import ArgumentError, InternalError
from tileops.ir.program import Program
from tileops.ir.stmt import AddressView
from tileops.ir.walk import walk
from tileops.jit.compiling import Request, key_of
from tileops.jit.look_up import LookUp
from tileops.jit.record import entry_of
from tileops.op.spec import spec_of, written_parameters
from tileops.op.variant import variant_of

if TYPE_CHECKING:
    import torch

NAMESPACE = "tileops_loaded"


def loadable_of(request: Request, entry: cache.Entry) -> dict[str, Any]:
    """The op, variant and entry of a compiled program as the runtime takes them, and its images.

    ``images`` maps a file name to its ``path`` (None for an entry in memory only) and ``sha256``.
    The op is ``tileops_loaded::<program>__<10 hexadecimal digits of the entry>``.
    """
    program = request.program
    name = f"{program.name}__{entry.hash[:10]}"
    spec = spec_of(program, namespace=NAMESPACE, name=name)
    variant = variant_of(program, spec, ())
    described = entry_of(
        entry.manifest["record"], spec, variant, target=request.target, spec=request.spec, consts=()
    )
    images = {}
    for image in sorted({launch["image"] for launch in described["launches"]}):
        path = None if entry.path is None else str(entry.path / image)
        images[image] = {"path": path, "sha256": fact_of(entry.files[image])["sha256"]}
    texts = {"op": spec.to_json(), "variant": variant.to_json()}
    return {**texts, "entry": described, "images": images}


def written_arguments(op: Mapping[str, Any]) -> tuple[int, ...]:
    """The numbers of the arguments of a call that an op, as ``loadable_of`` has it, writes."""
    inputs = [a for a in op["args"] if a["role"] in ("tensor", "scalar")]
    return tuple(n for n, a in enumerate(inputs) if a["mutated"])


_handles: dict[str, int] = {}


class LoadedOp:
    """The op of what ``loadable_of`` gave; ``written`` are the numbers of arguments it writes."""

    def __init__(self, loadable: Mapping[str, Any]) -> None:
        import torch  # compile workers use this module and do not pay for torch

        op = loadable["op"]
        self.written = written_arguments(op)
        self._takes_device = any(a["role"] == "device" for a in op["args"])
        # An op lives as long as its process, and may be loaded again after it was unloaded.
        qualified = f"{op['namespace']}::{op['name']}"
        with forks.guard:
            if qualified not in _handles:
                _handles[qualified] = runtime.create_op(op)
            self.handle = _handles[qualified]
        variant = runtime.add_variant(self.handle, loadable["variant"])
        images: dict[str, runtime.Image] = {}
        for image, fact in loadable["images"].items():
            data = Path(fact["path"]).read_bytes()
            if hashlib.sha256(data).hexdigest() != fact["sha256"]:
                raise ArgumentError(f"{fact['path']} is not what was compiled")
            images[image] = (data, fact["path"])
        runtime.add_entry(self.handle, variant, loadable["entry"], images)
        self._overload = getattr(getattr(torch.ops, op["namespace"]), op["name"]).default

    def call(self, arguments: Sequence[Any], device: torch.device) -> list[torch.Tensor]:
        """What the op returns."""
        extra = {"device": device} if self._takes_device else {}
        result = self._overload(*arguments, **extra)
        if result is None:
            return []
        return list(result) if isinstance(result, (list, tuple)) else [result]


def is_movable(program: Program) -> bool:
    """Whether another process can run the program on copies of its arguments.

    False for one that uses bare addresses. ArgumentError for one that writes through them.
    """
    raw = {p.name for p in program.tensors() if p.raw}
    views = [s for launch in program.launches for s in walk(launch.body)]
    addressed = [s for s in views if isinstance(s, AddressView)]
    if not raw and not addressed:
        return True
    tables = {s.table.id: s for s in addressed if s.table is not None}
    suspects = raw | {p.name for p in program.tensors() if p.buffer.id in tables}
    written = suspects & written_parameters(program)
    if written or any(s.table is None for s in addressed):
        names = ", ".join(sorted(written)) or "an address that no tensor holds"
        raise ArgumentError(
            f"{program.name} cannot be tuned on copies: it may write to memory at addresses "
            f"({names}); give its configuration instead"
        )
    return False


def found_in_cache(request: Request) -> tuple[str, dict[str, Any]] | None:
    """Hash and loadable form of a request that is in the cache; None if it must be compiled."""
    looked, key = LookUp(request.op, request.target), key_of(request)
    entry = cache.store().get(key, lambda layer: looked.hit(layer, key.hash()))
    return None if entry is None else (entry.hash, loadable_of(request, entry))


class _AskedError(Exception):
    """Ends a call whose facts are known."""


_asking = forks.renewed_lock()  # over a call, whose answer is in _asked
_askers: set[str] = set()  # names of the ops that were made for it
_asked: dict[str, Any] = {}


def facts_of(program: Program, arguments: Sequence[Any]) -> Specialization:
    """The facts that a call of ``program`` with these arguments gives its code; errors as a call.

    The call path finds them: an op of the same signature that has no code is called and asks.
    """
    import torch  # as in LoadedOp

    spec = spec_of(program, namespace=NAMESPACE, name="facts")
    variant = variant_of(program, spec, ())
    text = json.dumps([spec.to_json(), variant.to_json()], sort_keys=True)
    name = f"facts_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    with _asking:
        with forks.guard:
            if name not in _askers:
                handle = runtime.create_op(replace(spec, name=name).to_json())
                runtime.add_variant(handle, variant.to_json())
                runtime.set_resolver(handle, _note_facts)
                _askers.add(name)
        try:
            getattr(getattr(torch.ops, NAMESPACE), name).default(*arguments)
        except _AskedError:
            return Specialization(_asked["fast"], _asked["index64"])
    raise InternalError(f"{program.name}: a call without code did not ask for it")


def _note_facts(handle: int, request: Mapping[str, Any]) -> None:
    del handle
    _asked.update(request)
    raise _AskedError
