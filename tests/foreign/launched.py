"""Programs with foreign kernels, compiled and launched on the driver that records its calls."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tileops import cache, runtime
from tileops.codegen.kernel_code import Specialization
from tileops.jit.choosing import Words
from tileops.jit.compiling import obtain_listed
from tileops.jit.provider import Wanted
from tileops.jit.targets import requested_target

TARGET = "cuda:sm_90"


class Launched:
    """One program's op, with entries as calls would add them, on raw addresses."""

    def __init__(self, program: Any, dtypes: Mapping[str, str] | None = None, **given: Any) -> None:
        self.provider, self.op, values = program.routed(given)
        static = self.provider.static_of(self.op.spec, values, dtypes or {})
        self.variant = self.op.variant(static)
        self.number = self.op.publish_variant(static)

    def wanted(
        self,
        sizes: Mapping[str, int],
        *,
        fast: bool = True,
        scalars: Mapping[str, object] | None = None,
        words: Words | None = None,
    ) -> Wanted:
        consts = tuple(sizes[s.name] for s in self.variant.sizes if s.kind == "const")
        spec = Specialization(fast)
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
            name = launch["image"]
            ptx = entry.files[name.replace("cubin", "ptx")].decode()
            sizes = " ".join(map(str, parameter_sizes(ptx)))
            images[name] = f"FAKE\n{launch['entry']} {sizes}\n".encode()
        runtime.add_entry(self.op.handle, self.number, wanted.entry_of(entry), images)
        return entry

    def run(self, sizes: Mapping[str, int], tensors: Sequence[int], **fields: Any) -> None:
        """Launch what a call with these sizes would; ``tensors`` are addresses, outputs too."""
        ordered = [sizes[s.name] for s in self.variant.sizes]
        count = len(self.variant.scalars)
        base = {"int_scalars": [0] * count, "float_scalars": [0.0] * count}
        runtime.run_raw(
            self.op.handle, self.number, sizes=ordered, tensors=list(tensors), **(base | fields)
        )


_SIZES = {
    "u8": 1,
    "b8": 1,
    "u16": 2,
    "b16": 2,
    "u32": 4,
    "b32": 4,
    "f32": 4,
    "u64": 8,
    "b64": 8,
    "f64": 8,
}


def parameter_sizes(ptx: str) -> list[int]:
    """The bytes of each parameter of the entry in a PTX text."""
    head = ptx[ptx.index(".entry") :]
    head = head[: head.index("{")]
    found = []
    for line in re.findall(r"\.param ([^,\n]*)", head):
        array = re.search(r"\.b8 \w+\[(\d+)\]", line)
        kind = re.search(r"\.([ubf]\d+)", line)
        assert kind is not None
        found.append(int(array.group(1)) if array else _SIZES[kind.group(1)])
    return found


def words_of_record(entry: cache.Entry) -> list[int]:
    choice = entry.manifest["record"].get("choice", {})
    return list(choice.get("words", []))
