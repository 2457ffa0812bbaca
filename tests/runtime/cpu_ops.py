"""Small CPU ops with hand-written kernels, made through the runtime's interface as a compiler would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.kit import descriptions as d
from tileops import runtime

BLOCK = 1024

# out[i] = a[i] + b[i], a block of 1024 elements at a time.
ADD = """
TILEOPS_CPU_ENTRY tileops_int32 add(const TileopsValue* p, tileops_int64 first, tileops_int64 last, char*,
                                    TileopsStatus*) {
  const float* a = (const float*)p[0].p;
  const float* b = (const float*)p[1].p;
  float* out = (float*)p[2].p;
  const tileops_int64 n = p[3].i, stop = last * 1024 < n ? last * 1024 : n;
  for (tileops_int64 i = first * 1024; i < stop; ++i) out[i] = a[i] + b[i];
  return TILEOPS_OK;
}
"""

# Stores every parameter that is no pointer, as a double, and the presence of the first pointer.
STORE_SCALARS = """
TILEOPS_CPU_ENTRY tileops_int32 store(const TileopsValue* p, tileops_int64, tileops_int64, char*, TileopsStatus*) {
  double* out = (double*)p[0].p;
  out[0] = (double)p[1].i;
  out[1] = p[2].f;
  out[2] = (double)p[3].i;
  return TILEOPS_OK;
}
"""

BLOCKS_OF_N = (["const", BLOCK - 1], ["add", 0, 1], ["const", BLOCK], ["floordiv", 2, 3])  # slot 4


class CpuOp:
    """An op with a resolver that counts its requests and answers from two functions."""

    def __init__(
        self,
        description: d.Json,
        make_variant: Callable[[dict[str, Any]], d.Json],
        make_entry: Callable[[dict[str, Any]], d.Json],
        library: Path | bytes,
    ) -> None:
        self.name = description["name"]
        self.requests: list[dict[str, Any]] = []
        self.handle = runtime.create_op(description)
        self.make_variant, self.make_entry, self.library = make_variant, make_entry, library
        runtime.set_resolver(self.handle, self.resolve)

    def resolve(self, handle: int, request: dict[str, Any]) -> None:
        self.requests.append(request)
        if request["kind"] == "variant":
            runtime.add_variant(handle, self.make_variant(request))
        else:
            entry = self.make_entry(request)
            runtime.add_entry(handle, request["variant"], entry, {"kernel_lib.so": self.library})

    @property
    def kinds(self) -> list[str]:
        return [request["kind"] for request in self.requests]

    @property
    def call(self) -> Any:
        return getattr(torch.ops.tileops, self.name).default


def entry_for(request: dict[str, Any], **fields: Any) -> d.Json:
    return d.entry(
        consts=request["consts"], fast=request["fast"], index64=request["index64"], **fields
    )


def add_op(
    build_kernel: Callable[..., Path],
    *,
    kind: str = "dynamic",
    stem: str = "add",
    as_bytes: bool = False,
) -> CpuOp:
    """``out = a + b`` for float32 vectors of one size N, dynamic or constant."""
    path = build_kernel(ADD)
    return CpuOp(
        d.op(d.fresh_name(stem), "(Tensor a, Tensor b) -> Tensor", [d.arg("a"), d.arg("b")], 1),
        lambda _: d.variant(
            tensors=[d.tensor(0, "a", [d.bind(0)]), d.tensor(1, "b", [d.bind(0)])],
            sizes=[d.size("N", kind)], host=d.host(["size:0"]),
            outputs=[{"dtype": "float32", "shape": [0]}],
        ),
        lambda request: entry_for(
            request, host=d.host(["size:0"], *BLOCKS_OF_N), outputs=[{"dtype": "float32", "shape": [0]}],
            tensor_order=[{"arg": 0}, {"arg": 1}, {"output": 0}],
            launches=[d.launch("kernel_lib.so", "add", 4,
                               [d.p_tensor(0), d.p_tensor(1), d.p_tensor(2), d.p_slot(0, "i64")])],
        ),
        path.read_bytes() if as_bytes else path,
    )  # fmt: skip
