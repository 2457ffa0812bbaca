"""The host time of a call, compared with the other ways to call a kernel from Python."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from benchmarks.harness import Result, cost_result, time_host
from benchmarks.programs import bench_add

Add = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def results(peers: str | None) -> Iterator[Result]:
    """Two inputs and one output, against each peer that this machine has.

    Twice: the op, as its call through ``torch.ops``, and the function, as a user calls the peers.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, y = (torch.randn(256, device=device) for _ in range(2))
    op = torch.ops.tileops.bench_add.default
    bench_add(x, y)
    candidates: dict[str, Add] = {"op": op, "tileops": bench_add}
    targets = {}
    for name, target, make in (
        ("Triton's launcher", 0.6, triton_add),
        ("custom_op", 0.25, custom_add),
        ("TileLang, eager", 0.4, lambda: tilelang_add(peers)),
    ):
        try:
            add = make()
            if add is None:
                continue
            if not torch.equal(add(x, y), x + y):
                raise AssertionError(f"{name} computes something else")
        except Exception as error:  # a peer that fails here must not cost the other figures
            sys.stderr.write(f"host suite: no figure for {name}: {type(error).__name__}: {error}\n")
            continue
        candidates[name], targets[name] = add, target
    timings = time_host({n: _bound(add, x, y) for n, add in candidates.items()})
    for name, target in targets.items():
        for candidate, what in (("op", "the op"), ("tileops", "the function")):
            workload = f"{what} against {name} ({device})"
            yield cost_result(workload, timings, candidate, name, target=target)


def _bound(add: Add, x: torch.Tensor, y: torch.Tensor) -> Callable[[], torch.Tensor]:
    return lambda: add(x, y)


def triton_add() -> Add | None:
    """The addition through Triton's launcher; None without a GPU."""
    if not torch.cuda.is_available():
        return None
    from benchmarks import triton_add

    return triton_add.add


def custom_add() -> Add:
    """The addition as a custom_op; around the Triton kernel on a GPU, around torch.add on a CPU.

    On a CPU nothing that computes the sum is called faster than torch.add.
    """
    inner = triton_add() or torch.add

    @torch.library.custom_op("tileops_bench::add", mutates_args=())
    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return inner(a, b)

    return add


def tilelang_add(peers: str | None) -> Add | None:
    """The same program under TileLang, from its own text; None without TileLang or a GPU."""
    if peers is None or not torch.cuda.is_available():
        return None
    if peers not in sys.path:
        sys.path.append(peers)
    head = "import tilelang\nimport tilelang.language as T\n\n"
    body = inspect.getsource(bench_add.func).split("def ", 1)[1]
    with tempfile.TemporaryDirectory() as folder:
        # TileLang reads the function's text again when it compiles: the file stays until then.
        path = Path(folder) / "tilelang_add.py"
        path.write_text(f"{head}@tilelang.jit\ndef {body}", encoding="utf-8")
        spec = importlib.util.spec_from_file_location("tilelang_add", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        add: Add = module.bench_add
        x = torch.randn(256, device="cuda")
        add(x, x)
    return add
