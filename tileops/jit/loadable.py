"""Owns what a process needs to run a compiled program without tracing it, as plain JSON."""

from __future__ import annotations

import hashlib
from typing import Any

from tileops import cache
from tileops.jit.compiling import Request
from tileops.jit.record import entry_of
from tileops.op.spec import spec_of
from tileops.op.variant import variant_of
from tileops.runtime import static_json

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
        entry.manifest["record"],
        spec,
        variant,
        target=request.target,
        spec=request.spec,
        consts=(),
    )
    content = variant.to_json()
    content["static"] = [static_json(value) for value in variant.static]
    names = {launch["image"] for launch in described["launches"]}
    images = {
        image: {
            "path": None if entry.path is None else str(entry.path / image),
            "sha256": hashlib.sha256(entry.files[image]).hexdigest(),
        }
        for image in sorted(names)
    }
    return {"op": spec.to_json(), "variant": content, "entry": described, "images": images}
