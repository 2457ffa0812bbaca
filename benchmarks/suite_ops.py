"""The operators of ``tileops.ops`` beside torch, Inductor and Liger: time, and error beside it.

Every operator's record gives the shapes. Forward and backward passes are timed apart, all
candidates in turn in one process. ``share`` is the rate of bytes, each tensor read or written
once, over that of a copy of as many bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from benchmarks.harness import Result, Timing, speed_result, time_gpu, time_wall
from tileops import ops
from tileops.ops.info import BenchShape, Form, OpInfo, infos

Call = Callable[..., Any]
Timer = Callable[[dict[str, Callable[[], Any]]], dict[str, Timing]]
# Of a machine without a GPU: so much smaller.
CPU_ROWS = 64


# torch's own kernels where eager mode is made of several operations.
TORCH: dict[str, Call] = {
    "grouped_mm": lambda a, b, offs: torch._grouped_mm(a, b, offs=offs),
    "scaled_mm": torch._scaled_mm,
}


def tensors(value: Any) -> tuple[torch.Tensor, ...]:
    return tuple(value) if isinstance(value, tuple) else (value,)


def liger_calls(peers: str | None) -> dict[str, Call]:
    """Liger's functions by the operator that they are beside; none where it is not installed."""
    if peers:
        sys.path.insert(0, peers)
    try:
        from liger_kernel.transformers import functional as L
    except ImportError:
        return {}
    return {
        "rms_norm": lambda x, n, w, eps: L.liger_rms_norm(x, w, eps, 0.0, "gemma", False),
        "add_rms_norm": lambda x, r, n, w, eps: L.liger_fused_add_rms_norm(
            x, r, w, eps, 0.0, "gemma", False
        ),
        "layer_norm": lambda x, n, w, b: L.liger_layer_norm(x, w, b, 1e-5),
        "silu_mul": L.liger_swiglu,
        "softmax": lambda x, dim: L.liger_softmax(x),
        # It writes the gradient into the logits, which each call therefore gets anew.
        "cross_entropy": lambda x, target: L.liger_cross_entropy(x.clone(), target),
        "rope": lambda q, k, cos, sin: L.liger_rope(
            q, k, cos.unsqueeze(0), sin.unsqueeze(0)
        ),
    }  # fmt: skip


def bound(form: Form, function: Call, inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """A call with arguments made once, so that only the call is timed."""
    args, options = form.bind(inputs)
    if options and "eps" in options:  # Liger takes it by place
        args, options = (*args, options["eps"]), {k: v for k, v in options.items() if k != "eps"}
    return lambda: function(*args, **options)


def candidates(info: OpInfo, liger: dict[str, Call], *, inductor: bool) -> dict[str, Call]:
    found = {"tileops": info.call, "eager": info.eager}
    if inductor:
        torch._dynamo.reset()
        found["inductor"] = torch.compile(info.eager, dynamic=False)
    if info.name in TORCH:
        found["torch"] = TORCH[info.name]
    if info.name in liger:
        found["liger"] = liger[info.name]
    return found


def gradients_of(
    info: OpInfo, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """The gradients of what has some; none of an operator of inference."""
    if not info.has_gradients:
        return ()
    outputs = [y for y in outputs if y.is_floating_point()]
    return torch.autograd.grad(
        outputs, [x for x in inputs if x.requires_grad],
        [torch.ones_like(y) for y in outputs], retain_graph=True,
    )  # fmt: skip


def errors(found: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> float:
    """The largest error of any result, over the largest value of that result."""
    worst = 0.0
    for a, b in zip(found, exact, strict=True):
        top = float(b.double().abs().max()) or 1.0
        worst = max(worst, float((a.detach().double() - b).abs().max()) / top)
    return worst


def exact_results(
    info: OpInfo, form: Form, inputs: Sequence[torch.Tensor]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    wide = form.leaves(form.to(inputs, torch.float64))
    outputs = tensors(info.exact(form, wide))
    return [y.detach() for y in outputs], list(gradients_of(info, outputs, wide))


def copy_of(size: int, device: str) -> Callable[[], Any]:
    """A copy that reads and writes ``size`` bytes in all."""
    source = torch.empty(max(1, size // 2), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def measure(
    info: OpInfo, shape: BenchShape, device: str, timer: Timer, liger: dict[str, Call],
    *, dtype: torch.dtype = torch.bfloat16, inductor: bool = True,
) -> Iterator[Result]:  # fmt: skip
    """Forward and backward pass of one operator at one shape."""
    form = info.forms[0]
    inputs = form.inputs(shape.rows, shape.columns, dtype, device)
    exact, exact_gradients = exact_results(info, form, inputs)
    forward: dict[str, Callable[[], Any]] = {}
    backward: dict[str, Callable[[], Any]] = {}
    wrong: dict[str, dict[str, Any]] = {"forward": {}, "backward": {}}
    failed: dict[str, str] = {}
    sizes = {}
    for name, function in candidates(info, liger, inductor=inductor).items():
        leaves = form.leaves(inputs) if info.has_gradients else inputs
        try:
            outputs = tensors(bound(form, function, leaves)())
            grads = gradients_of(info, outputs, leaves)
            wrong["forward"][name] = errors(outputs, exact)
            wrong["backward"][name] = errors(grads, exact_gradients)
        except Exception as error:  # a peer that cannot run is a row of the table
            if name == "tileops":
                raise
            failed[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            continue
        forward[name] = bound(form, function, inputs)
        backward[name] = lambda outputs=outputs, leaves=leaves: gradients_of(info, outputs, leaves)
        if name == "tileops":
            results = tuple(y.detach() for y in outputs)
            sizes = {"forward": info.forward_bytes(inputs, results)}
            if info.has_gradients:
                sizes["backward"] = info.backward_bytes(tuple(inputs), results, grads)
    for kind in sizes:
        calls = forward if kind == "forward" else backward
        timings = timer({**calls, "copy": copy_of(sizes[kind], device)})
        peers = [name for name in calls if name != "tileops"]
        best = min(peers, key=lambda name: timings[name].median_us)
        rate = {n: timings["copy"].median_us / timings[n].median_us for n in calls}
        yield speed_result(
            f"{info.name} {str(dtype).removeprefix('torch.')} {shape.rows}x{shape.columns} {kind}",
            timings, "tileops", best, target=1.0,
            extra={
                "model": shape.model, "bytes": sizes[kind], "share": rate,
                "error": wrong[kind], "failed": failed,
            },
        )  # fmt: skip


def results(peers: str | None, only: Sequence[str] = ()) -> Iterator[Result]:
    """Every operator at the shapes of its record; on the CPU at fewer rows."""
    torch.manual_seed(0)
    liger = liger_calls(peers) if torch.cuda.is_available() else {}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    timer: Timer = time_gpu if device == "cuda" else time_wall
    with ops.compile_mode("opaque"):
        for info in infos():
            if only and info.name not in only:
                continue
            for shape in info.bench:
                rows = shape.rows if device == "cuda" else max(1, shape.rows // CPU_ROWS)
                smaller = BenchShape(rows, shape.columns, shape.model)
                yield from measure(info, smaller, device, timer, liger)


def table(found: Sequence[Result]) -> str:
    """The results with the error of each candidate beside its time."""
    lines = []
    for r in found:
        if "share" not in r.extra:
            continue
        lines.append(f"{r.workload} ({r.extra['model']}, {r.extra['bytes'] / 2**20:.0f} MiB)")
        for name, share in r.extra["share"].items():
            lines.append(
                f"    {name:10} {r.timings[name].median_us:10.1f} us  {share:6.3f} of a copy  "
                f"error {r.extra['error'][name]:.1e}"
            )
        lines += [f"    {name:10} {why}" for name, why in r.extra["failed"].items()]
    return "\n".join(lines)
