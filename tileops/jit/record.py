"""The manifest of a compiled program, and the record in it of how the program is launched.

A record names the program's own sizes, scalars and tensors. ``entry_of`` turns it into the entry
of one op's variant, which may have them in other places.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tileops import cache
from tileops.codegen.kernel_code import KernelCode, KernelParam, LaunchCode, Specialization
from tileops.dtypes import storage_names
from tileops.errors import InternalError
from tileops.ir import fold
from tileops.ir.expr import Buffer, Expr
from tileops.ir.program import STATUS_ID, Program, TensorParam
from tileops.ir.stmt import Assert
from tileops.ir.walk import walk_expr
from tileops.jit.choosing import choice_of, input_names
from tileops.op.host_program import HostProgram, HostProgramBuilder
from tileops.op.spec import OpSpec
from tileops.op.variant import Variant, pack_of
from tileops.target import Target

if TYPE_CHECKING:
    from tileops.compiler.artifact import Artifact, LaunchImage

# The form of records, and of the calls of compiled code: what the runtime must understand. A bundle
# says which one its programs are for.
CALL_ABI = 1

Json = dict[str, Any]


class _Recorder:
    """Writes down launches and outputs, and collects the host program that they need."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.names = input_names(program)
        self.host = HostProgramBuilder(self.names)
        self.aligned: set[str] = set()

    def record(self, code: KernelCode, images: tuple[LaunchImage, ...]) -> Json:
        """The record of the program compiled to ``images``, one for each launch of ``code``."""
        program = self.program
        made = [p for p in program.tensors() if p.allocated]
        outputs = [p.buffer for p in made]
        buffers = (*program.workspaces, *code.workspaces)
        workspaces = [self._bytes(b) for b in buffers]
        # Checks on a GPU report in this workspace.
        status = [n for n, b in enumerate(buffers) if b.id == STATUS_ID]
        shapes = [[self.host.add(e) for e in b.shape] for b in outputs]
        launches = [
            self._launch(launch, image) for launch, image in zip(code.launches, images, strict=True)
        ]
        asserts = [one for a in program.host_asserts if (one := self._assert(a)) is not None]
        numbers = {p.name: n for n, p in enumerate(made)}
        return self._resolve(
            {
                "sizes": [s.var.name for s in program.sizes],
                "aligned": sorted(self.aligned),
                "outputs": [
                    {
                        "dtype": storage_names(p.buffer.dtype)[0],
                        "shape": [_Ref(r) for r in shape],
                        "pack": pack_of(p.buffer.dtype),
                        **({"leading": True} if p.leading else {}),
                    }
                    for p, shape in zip(made, shapes, strict=True)
                ],
                "workspaces": [{"bytes": _Ref(ref)} for ref in workspaces],
                "tensor_order": [
                    {"output": numbers[p.name]} if p.allocated else {"tensor": p.name}
                    for p in program.tensors()
                ],
                "launches": launches,
                **({"asserts": asserts} if asserts else {}),
                **choice_of(program, self.names),
                **({"status": status[0]} if status else {}),
            }
        )

    def _bytes(self, buffer: Buffer) -> int:
        total: Expr = fold.const(buffer.dtype.bytes, fold.INT64)
        for extent in buffer.shape:
            total = fold.mul(total, fold.cast(extent, fold.INT64))
        if (pack := pack_of(buffer.dtype)) > 1:
            total = fold.binary("floordiv", total, fold.const(pack, fold.INT64))
        return self.host.add(total)

    def _assert(self, stated: Assert) -> Json | None:
        """A condition that each call checks; None for one of floats, which calls do not compute."""
        if any(expr.dtype.is_float for expr in walk_expr(stated.cond)):
            return None
        told = re.sub(r"\b([A-Za-z_]\w*)\.\d+", r"\1", str(stated.cond))
        return {
            "slot": _Ref(self.host.add(stated.cond)),
            "text": f"{stated.message}; expected {told}",
        }

    def _launch(self, launch: LaunchCode, image: LaunchImage) -> Json:
        maps = iter(image.tensormaps)
        params: list[Json] = []
        names: list[str] = []
        for number, param in enumerate(launch.params):
            if image.types:
                param = replace(param, type=image.types[number])
            one = self._described(param, next(maps)) if param.tensormap else [self._param(param)]
            params += one
            names += _names(launch, param.name, len(one))
        params += [{"kind": kind} for kind in image.hidden]
        more = [_Ref(self.host.add(extent)) for extent in launch.more_grid]
        return {
            "image": image.image,
            "entry": image.entry,
            "grid": _Ref(self.host.add(launch.grid)),
            "threads": image.threads,
            "shared_bytes": image.shared_bytes,
            "scratch_bytes": image.global_scratch_bytes or launch.scratch_bytes,
            "op_label": self.program.name,
            "params": params,
            **({"names": names} if names else {}),
            **({"title": launch.entry} if launch.entry != image.entry else {}),
            **({"more_grid": more} if more else {}),
            **({"more_threads": list(image.more_threads)} if image.more_threads else {}),
            **({"cooperative": True} if launch.cooperative else {}),
            **({"grain": launch.grain} if launch.grain > 1 else {}),
            **({"cluster": launch.cluster} if launch.cluster > 1 else {}),
            **({"dependent": True} if launch.dependent else {}),
        }

    def _described(self, param: KernelParam, encoded: Mapping[str, Any]) -> list[Json]:
        """A tensor map, and the numbers that follow it."""
        spec, found = param.tensormap, dict(encoded)
        assert spec is not None

        def slots(exprs: tuple[Expr, ...], kind: str) -> list[Json]:
            return [{"kind": "slot", "slot": _Ref(self.host.add(e)), "type": kind} for e in exprs]

        numbers = slots(spec.shape, "i32") + slots(spec.strides, "i64")
        if "flags" in found:  # for a GPU without maps
            flags = [fold.const(value) for value in (spec.nans, spec.tf32)][: found["flags"]]
            wide = slots((*spec.shape, *spec.strides), "i64")
            tensor = {"kind": "tensor", "index": param.index}
            return [tensor, *wide, *slots(tuple(flags), "i1"), *numbers]
        described = {
            "kind": "tensormap",
            "index": param.index,
            "box": list(found.pop("box", spec.box)),
            "shape": [_Ref(self.host.add(e)) for e in spec.shape],
            "strides": [_Ref(self.host.add(e)) for e in spec.strides],
            **found,
        }
        if not spec.foreign:
            numbers = [{"kind": "null"}] * (param.width - 1)
        return [described, *(numbers if param.width > 1 else [])]

    def _param(self, param: KernelParam) -> Json:
        match param.kind:
            case "tensor" | "workspace":
                return {"kind": param.kind, "index": param.index}
            case "scalar":
                return {"kind": "scalar", "index": param.index, "type": param.type}
            case "size":
                size = self.program.sizes[param.index].var
                if param.aligned:
                    self.aligned.add(size.name)
                slot = _Ref(self.host.reserve(self.names[size.id]))
                return {"kind": "slot", "slot": slot, "type": param.type}
            case "host" if param.value is not None:
                slot = _Ref(self.host.add(param.value))
                return {"kind": "slot", "slot": slot, "type": param.type}
            case "number":
                return {"kind": "number", "value": param.number, "type": param.type}
            case "null":
                return {"kind": "null"}
            case _:
                raise InternalError(f"parameter {param.name} of kind {param.kind!r} is incomplete")

    def _resolve(self, record: Json) -> Json:
        """Replace references by slots, now that every input is known."""
        host = self.host.finish()

        def go(value: object) -> object:
            match value:
                case _Ref(number=number):
                    return self.host.slot(number)
                case dict():
                    return {k: go(v) for k, v in value.items()}
                case list():
                    return [go(v) for v in value]
                case _:
                    return value

        return {"host": host.to_json(), **{k: go(v) for k, v in record.items()}}


def _names(launch: LaunchCode, name: str, count: int) -> list[str]:
    """What errors of a call say of a foreign kernel's argument and of what follows its map."""
    if launch.foreign is None:
        return []
    own = f"argument {name}" if name.isdigit() else f"argument `{name}`"
    return [own, *[f"an extent or stride of {own}"] * (count - 1)]


@dataclass(frozen=True)
class _Ref:
    """A reference of the host program inside a record that is still being made."""

    number: int


def built_of(
    program: Program, target: Target, code: KernelCode, artifact: Artifact, key: cache.Key
) -> cache.Built:
    """What the cache stores of ``program``: the compiler's files, and the manifest."""
    manifest = {
        "format": CALL_ABI,
        "name": program.name,
        "target": str(target),
        "language": code.language,
        "toolchain": json.loads(key.fields["toolchain"]),
        "record": _Recorder(program).record(code, artifact.launches),
        "resources": [
            {
                "entry": launch.entry,
                "language": written.language if code.language == "triton" else code.language,
                "registers": launch.registers,
                "spills": launch.spills,
                "shared_bytes": launch.shared_bytes,
                "notes": list(launch.notes),
            }
            for written, launch in zip(code.launches, artifact.launches, strict=True)
        ],
        "statements": {str(line): number for line, number in sorted(code.statements.items())},
    }
    files = {**artifact.files, "params.json": _params_text(program).encode()}
    images = frozenset(launch.image for launch in artifact.launches)
    return cache.Built(files, manifest, links=_links(files), required=images)


def _links(files: Mapping[str, bytes]) -> dict[str, str]:
    # With one launch the stages are also found under the plain name kernel.*.
    stages = [name for name in files if re.fullmatch(r"launch\d+\..+", name)]
    if {name.partition(".")[0] for name in stages} != {"launch0"}:
        return {}
    links = {f"kernel.{name.partition('.')[2]}": name for name in stages}
    return {link: name for link, name in links.items() if link not in files}


def _params_text(program: Program) -> str:
    params: list[dict[str, object]] = []
    for param in program.params:
        if isinstance(param, TensorParam):
            dtype, rank = str(param.buffer.dtype), param.buffer.ndim
            found = {"name": param.name, "kind": "tensor", "dtype": dtype, "rank": rank}
            leading = {"leading": True} if param.leading else {}
            params.append({**found, "allocated": param.allocated, **leading})
        else:
            dtype = str(param.var.dtype)
            params.append({"name": param.name, "kind": "scalar", "dtype": dtype})
    return json.dumps(params, indent=1) + "\n"


def entry_of(
    record: Mapping[str, Any],
    op: OpSpec,
    variant: Variant,
    *,
    target: Target,
    spec: Specialization,
    consts: tuple[int, ...],
    config: str = "",
) -> Json:
    """The entry that gives ``record`` to an op's variant for these values of its const sizes.

    ``config``: compile-time values in words. InternalError for an alignment that no call checks.
    """
    numbers = [n for n, size in enumerate(variant.sizes) if size.kind == "dynamic"]
    if [variant.sizes[n].name for n in numbers] != record["sizes"]:
        raise InternalError(f"op {op.name}: the compiled program has other sizes than its op")
    checked = {variant.sizes[n].name for n in variant.align_sizes}
    unchecked = [name for name in record["aligned"] if not spec.fast or name not in checked]
    if unchecked:
        raise InternalError(f"op {op.name}: code assumes sizes divisible by 16: {unchecked}")
    renamed = {f"size:{n}": f"size:{number}" for n, number in enumerate(numbers)}
    host = HostProgram.from_json(record["host"]).rename_inputs(renamed)
    order = [
        {"arg": op.index_of(item["tensor"])} if "tensor" in item else item
        for item in record["tensor_order"]
    ]
    entry: Json = {
        "device": "cpu" if target.kind == "cpu" else "cuda",
        "consts": list(consts),
        "fast": spec.fast,
        "index64": spec.index64,
        "host": host.to_json(),
        "outputs": record["outputs"],
        "workspaces": record["workspaces"],
        "tensor_order": order,
        "launches": record["launches"],
    }
    if "asserts" in record:
        entry["asserts"] = record["asserts"]
    if "choice" in record:
        choice_host = HostProgram.from_json(record["choice"]["host"]).rename_inputs(renamed)
        entry["choice"] = {**record["choice"], "host": choice_host.to_json()}
    if config:
        entry["config"] = config
    if "status" in record:
        entry["status"] = record["status"]
    if target.kind == "cuda":
        entry["capability"] = target.capability
    return entry
