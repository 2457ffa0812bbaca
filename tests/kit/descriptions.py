"""Descriptions of ops, variants and entries that the runtime's tests share."""

from __future__ import annotations

import itertools
from typing import Any

from tileops.op import plain_json

_numbers = itertools.count()

Json = dict[str, Any]


def fresh_name(stem: str) -> str:
    """A name that no op of this process has: ops are never deregistered."""
    return f"rt_{stem}_{next(_numbers)}"


def host(inputs: list[str], *code: list[Any]) -> Json:
    return {"inputs": inputs, "code": [list(line) for line in code]}


def arg(name: str, kind: str = "tensor", role: str = "tensor", *, mutated: bool = False) -> Json:
    return {"name": name, "kind": kind, "role": role, "mutated": mutated}


def op(name: str, schema: str, args: list[Json], returns: int = 0) -> Json:
    return {
        "format": 1,
        "namespace": "tileops",
        "name": name,
        "schema": name + schema,
        "args": args,
        "returns": [f"alloc:{i}" for i in range(returns)],
    }


def tensor(
    number: int,
    name: str,
    shape: list[Json],
    dtype: str = "float32",
    strides: list[Json] | None = None,
) -> Json:
    return {
        "arg": number,
        "name": name,
        "dtypes": dtype.split("|"),
        "shape": shape,
        "strides": strides,
    }


def bind(number: int) -> Json:
    return {"bind": number}


def eq(slot: int) -> Json:
    return {"eq": slot}


def size(name: str, kind: str = "dynamic") -> Json:
    return {"name": name, "kind": kind, "bits": 32}


def scalar(number: int, name: str, dtype: str) -> Json:
    return {"arg": number, "name": name, "dtype": dtype}


def variant(**fields: Any) -> Json:
    base: Json = {
        "static": [], "tensors": [], "sizes": [], "scalars": [], "host": None, "align_sizes": [], "outputs": [],
    }  # fmt: skip
    return (
        base | fields | {"static": [plain_json.number(value) for value in fields.get("static", [])]}
    )


def entry(**fields: Any) -> Json:
    base: Json = {
        "device": "cpu", "consts": [], "fast": True, "index64": False, "host": None, "outputs": [],
        "workspaces": [], "tensor_order": [], "launches": [],
    }  # fmt: skip
    return base | fields


def launch(image: str, name: str, grid: int, params: list[Json], **fields: Any) -> Json:
    base: Json = {
        "image": image, "entry": name, "grid": grid, "threads": 128, "shared_bytes": 0, "scratch_bytes": 0,
        "op_label": name, "params": params,
    }  # fmt: skip
    return base | fields


def p_tensor(index: int) -> Json:
    return {"kind": "tensor", "index": index}


def p_slot(slot: int, kind: str = "i32") -> Json:
    return {"kind": "slot", "slot": slot, "type": kind}


def p_scalar(index: int, kind: str) -> Json:
    return {"kind": "scalar", "index": index, "type": kind}
