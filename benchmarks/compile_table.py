"""``python -m benchmarks.compile_table``: measures when ``torch.compile`` should get an operator's op.

Each operator stands between a product by a number and a sum, as it does in a model, which Inductor
fuses with torch operations and cannot fuse with an op. The widest row up to which decomposing is
not slower goes into ``tileops/ops/configs/compile.json``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.harness import environment, time_gpu
from benchmarks.suite_ops import tensors
from tileops import ops
from tileops.ops.choosing import DECOMPOSE, OPAQUE, TABLE, TABLE_FILE
from tileops.ops.info import OpInfo, infos

COLUMNS = (256, 1024, 4096, 8192, 16384, 32768, 131072)
ELEMENTS = 1 << 26
# A decomposed call may be this much slower: the op has no autotuning that could make up for noise.
TOLERANCE = 1.02


def step(info: OpInfo, mode: str, inputs: Sequence[torch.Tensor]) -> Callable[[], Any]:
    """A compiled call between neighbours that can be fused."""
    form = info.forms[0]
    args, options = form.bind(inputs)
    places = [n for n, value in enumerate(args) if any(value is x for x in inputs)]

    def model(*given: Any) -> Any:
        given = tuple((x * 1.5).to(x.dtype) if n == places[0] else x for n, x in enumerate(given))
        return sum(y.float().sum() for y in tensors(info.call(*given, **options)))

    compiled = torch.compile(model, fullgraph=True, dynamic=False)

    def run() -> Any:
        with ops.compile_mode(mode):
            out = compiled(*args)
            if out.requires_grad:
                torch.autograd.grad(out, [args[n] for n in places if args[n].requires_grad])
            return out

    return run


def widest(ratios: dict[int, float]) -> int | None:
    """The widest row up to which decomposing costs no more; None if it never does, 0 if always."""
    good = 0
    for columns, ratio in sorted(ratios.items()):
        if ratio > TOLERANCE:
            return good
        good = columns
    return None


def measure(info: OpInfo, *, training: bool) -> dict[int, float]:
    """Time of decomposed calls over that of opaque ones, by columns."""
    found = {}
    for columns in COLUMNS:
        torch._dynamo.reset()
        inputs = info.forms[0].inputs(ELEMENTS // columns, columns, torch.bfloat16, "cuda")
        given = info.forms[0].leaves(inputs) if training else inputs
        timings = time_gpu({mode: step(info, mode, given) for mode in (OPAQUE, DECOMPOSE)})
        found[columns] = timings[DECOMPOSE].median_us / timings[OPAQUE].median_us
    return found


def main() -> int:
    if not torch.cuda.is_available():
        sys.stderr.write("the table is measured on a GPU\n")
        return 1
    kinds = {"inference": False, "training": True}
    ratios = {
        i.name: {k: measure(i, training=t and i.has_gradients) for k, t in kinds.items()}
        for i in infos()
    }
    table = {
        "measured": {**environment(), "decomposed_over_opaque": ratios},
        "reason": f"measured on {environment()['card']}",
        "widest_decomposed_row": TABLE["widest_decomposed_row"]
        | {
            name: {kind: widest(of) for kind, of in found.items()} for name, found in ratios.items()
        },
    }
    TABLE_FILE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
