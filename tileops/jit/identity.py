"""Owns the identity of a program as its author wrote it: what bundles compare."""

from __future__ import annotations

from tileops.jit.captured import source_of, text_of, values_of
from tileops.jit.definition import Definition
from tileops.op.identity import Identity, identity_of
from tileops.op.spec import OpSpec


def definition_identity(definition: Definition, spec: OpSpec) -> Identity:
    """The identity of a definition whose op is ``spec``."""
    options = definition.options
    # Left out: names, where text is exported, and the target, which is said of each kernel.
    given = (
        definition.program_options,
        options.out_idx,
        sorted(options.mutates or ()),
        options.mutates is None,
        options.differentiable,
        dict(options.autocast),
        options.contiguous,
    )
    return identity_of(
        spec,
        source_of(definition.func),
        values_of(definition.func, dict(definition.bound)),
        text_of(given),
    )
