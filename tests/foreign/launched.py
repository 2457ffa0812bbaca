"""Programs with foreign kernels, compiled and launched on the driver that records its calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tileops import cache, runtime
from tileops.codegen.kernel_code import Specialization
from tileops.compiler.elf import kernel_notes
from tileops.jit.choosing import Words
from tileops.jit.compiling import obtain_listed
from tileops.jit.provider import Wanted
from tileops.jit.targets import requested_target
from tileops.op.fake import sizes_given
from tileops.op.spec import bound_dtypes

TARGET = "cuda:sm_90"


class Launched:
    """One program's op, with entries as calls would add them, on raw addresses."""

    def __init__(self, program: Any, dtypes: Mapping[str, str] | None = None, **given: Any) -> None:
        self.provider, self.op, values = program.routed(given)
        static = self.provider.static_of(self.op.spec, values, dtypes or {})
        self.variant = self.op.variant(static)
        self.number = self.op.publish_variant(static)

    @classmethod
    def of_call(cls, program: Any, inputs: Sequence[Any], **given: Any) -> tuple[Launched, Wanted]:
        """The op, and what a call with ``inputs`` wants of it."""
        _, op, _ = program.routed(given)
        names = [arg.name for arg in op.spec.args if arg.role != "static"]
        values = dict(zip(names, inputs, strict=True))
        found = bound_dtypes(op.spec, values)
        dtypes = {r.name: str(d) for r, d in zip(op.spec.dtype_rules, found, strict=True)}
        self = cls(program, dtypes, **given)
        sizes = sizes_given(op.spec, self.variant, values)
        scalars = {n: v for n, v in values.items() if not isinstance(v, torch.Tensor)}
        return self, self.wanted(sizes, scalars=scalars)

    def wanted(
        self,
        sizes: Mapping[str, int],
        *,
        aligned: bool = True,
        scalars: Mapping[str, object] | None = None,
        words: Words | None = None,
    ) -> Wanted:
        """What a call wants whose tensors begin at 16-byte multiples, or need not."""
        consts = tuple(sizes[s.name] for s in self.variant.sizes if s.kind == "const")
        checked = (self.variant.sizes[n].name for n in self.variant.align_sizes)
        spec = Specialization(fast=aligned and all(sizes[name] % 16 == 0 for name in checked))
        target = requested_target(TARGET)
        assert target is not None
        return Wanted(
            self.op, self.variant, target, spec, consts, dict(sizes), None, scalars or {}, words
        )

    def compiled(self, wanted: Wanted) -> cache.Entry:
        return obtain_listed(self.provider.request_for(wanted))

    def add(self, wanted: Wanted) -> cache.Entry:
        """Compile an entry and give it to the runtime, with images that the recorded driver reads."""
        entry = self.compiled(wanted)
        images = {}
        for launch in entry.manifest["record"]["launches"]:
            notes = kernel_notes(entry.files[launch["image"]], launch["entry"])
            assert notes is not None
            sizes = " ".join(map(str, notes.parameters))
            images[launch["image"]] = f"FAKE\n{launch['entry']} {sizes}\n".encode()
        described = wanted.entry_of(entry)
        described["consts"] += self.op.bucket(self.variant, wanted.sizes)
        runtime.add_entry(self.op.handle, self.number, described, images)
        return entry

    def run(self, sizes: Mapping[str, int], tensors: Sequence[int], **fields: Any) -> None:
        """Launch what a call with these sizes would; ``tensors`` are addresses, outputs too."""
        ordered = [sizes[s.name] for s in self.variant.sizes]
        count = len(self.variant.scalars)
        base = {"int_scalars": [0] * count, "float_scalars": [0.0] * count}
        runtime.run_raw(
            self.op.handle, self.number, sizes=ordered, tensors=list(tensors), **(base | fields)
        )


def words_of_record(entry: cache.Entry) -> list[int]:
    choice = entry.manifest["record"].get("choice", {})
    return list(choice.get("words", []))
