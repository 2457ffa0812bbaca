"""Kernels of others on the GPU: bits as from their own launch, capture, strict mode, export, bundle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tileops
from tests.bundle.aoti import run_package
from tests.foreign.cases import CASES, SHAPES, Case, shaped
from tests.foreign.tuned_ranks import tuned

pytestmark = pytest.mark.gpu
each = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    if torch.cuda.is_available() and torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("their kernels use Hopper's copy engine")
    with tileops.option.cache_dir(tmp_path_factory.mktemp("foreign")):
        yield


@pytest.fixture(autouse=True)
def _fresh_graphs() -> None:
    torch._dynamo.reset()


def same_bits(ours: Any, theirs: Any) -> bool:
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return False
    return torch.equal(ours.flatten().view(torch.uint8), theirs.flatten().view(torch.uint8))


@each
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s[0]}x{s[1]}")
def test_the_bits_are_those_of_their_own_launch(case: Case, shape: tuple[int, int]) -> None:
    inputs = case.inputs(*shape, "cuda")
    ours = case.results(case.program, inputs, **case.keywords)
    theirs = case.results(case.theirs, inputs)
    assert len(ours) == len(theirs) > 0
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert same_bits(one, other), f"result {number}: {(one != other).sum()} elements differ"


@each
def test_a_call_that_is_not_aligned(case: Case) -> None:
    """Tensors at odd addresses run code that assumes nothing of them; maps refuse them in words."""
    inputs = case.inputs(33, 64, "cuda")
    moved = tuple(
        torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)
        if isinstance(x, torch.Tensor)
        else x
        for x in inputs
    )
    theirs = case.results(case.theirs, inputs)
    if case.name in ("attention", "doubled_boxes"):
        with pytest.raises(tileops.ArgumentError, match=r"an address divisible by 16"):
            case.program(*moved, **case.keywords)
        return
    found = case.program(*moved, **case.keywords)
    found = found if isinstance(found, tuple) else () if found is None else (found,)
    ours = (*found, *(moved[n] for n in case.writes))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


@each
def test_a_captured_call_reads_new_inputs(case: Case) -> None:
    first, second = (case.inputs(33, 64, "cuda") for _ in range(2))
    fixed = tuple(x.clone() if isinstance(x, torch.Tensor) else x for x in first)
    case.program(*fixed, **case.keywords)  # compiles
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        found = case.program(*fixed, **case.keywords)
    for place, value in zip(fixed, second, strict=True):
        if isinstance(place, torch.Tensor):
            place.copy_(value)
    graph.replay()
    torch.cuda.synchronize()
    found = found if isinstance(found, tuple) else () if found is None else (found,)
    ours = (*found, *(fixed[n] for n in case.writes))
    numbers = [
        x for x, y in zip(first, second, strict=True) if not isinstance(x, torch.Tensor) and x != y
    ]
    assert not numbers  # a graph keeps the numbers of its capture
    for one, other in zip(ours, case.results(case.theirs, second), strict=True):
        assert same_bits(one, other)


@each
def test_odd_sizes_after_a_warmup_compile_nothing(case: Case) -> None:
    inputs = case.inputs(64, 64, "cuda")
    keywords = case.keywords
    case.program(*inputs, **keywords)
    tensors = {n: x for n, x in case.named(inputs).items() if isinstance(x, torch.Tensor)}
    tileops.warmup([(case.program, {**tensors, **keywords})])
    before = tileops.stats()["compiles"]
    with tileops.option.strict():
        for rows in (63, 48, 1):
            more = case.inputs(rows, 64, "cuda")
            ours = case.results(case.program, more, **keywords)
            for one, other in zip(ours, case.results(case.theirs, more), strict=True):
                torch.testing.assert_close(one, other)
    assert tileops.stats()["compiles"] == before


@each
def test_torch_compiles_and_exports_it(case: Case) -> None:
    inputs = case.inputs(33, 64, "cuda")

    class Model(torch.nn.Module):
        def forward(self, *args: Any) -> Any:
            copies = [x.clone() if isinstance(x, torch.Tensor) else x for x in args]
            found = case.program(*copies, **case.keywords)
            found = found if isinstance(found, tuple) else () if found is None else (found,)
            return (*found, *(copies[n] for n in case.writes))

    theirs = case.results(case.theirs, inputs)
    compiled = torch.compile(Model(), fullgraph=True, dynamic=True)
    exported = torch.export.export(Model(), inputs).module()
    for run in (compiled, exported):
        for one, other in zip(run(*inputs), theirs, strict=True):
            assert same_bits(one, other)
    torch.library.opcheck(case.program.op, inputs, case.keywords)


class Rows(torch.nn.Module):
    """A model of two of the kernels: a norm and a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Buffer(torch.ones(64, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        programs = {case.name: case.program for case in CASES}
        y, _ = programs["rms_norm"](x, self.weight, 1e-6)
        return programs["swiglu"](y, x)


WITHOUT = """
import sys
for name in ("triton", "liger_kernel"):
    sys.modules[name] = None
import torch, tileops
import torch._inductor.codecache
bundle, package, given, wanted = sys.argv[1:]
tileops.load_bundle(bundle)
x, y, *rest = torch.load(given)
w, expected = torch.load(wanted)
assert torch.equal(torch.ops.tileops.their_attention(*rest, 0.125), expected)
(found,) = [torch._inductor.aoti_load_package(package)(x)]
found = found[0] if isinstance(found, (tuple, list)) else found
assert torch.equal(found, w)
assert tileops.stats()["compiles"] == 0
print("ran")
"""


def test_a_package_and_a_bundle_run_without_triton(tmp_path: Path) -> None:
    """AOTInductor's package calls the ops; their kernels come from the bundle."""
    programs = {case.name: case.program for case in CASES}
    major, minor = torch.cuda.get_device_capability()
    x = torch.randn(33, 64, device="cuda", dtype=torch.bfloat16)
    model = Rows().cuda()
    q, k, v = (torch.randn(2, 40, 64, device="cuda", dtype=torch.float16) for _ in range(3))
    expected, attended = model(x), programs["attention"](q, k, v, 0.125)
    package = str(tmp_path / "rows.pt2")
    torch._inductor.aoti_compile_and_package(torch.export.export(model, (x,)), package_path=package)
    wanted = [
        (programs["rms_norm"], [{"N": 64, "D": "bfloat16"}]),
        (programs["swiglu"], [{"N": 64, "D": "bfloat16"}]), (programs["attention"], [{"H": 64}]),
    ]  # fmt: skip
    bundle = tileops.bundle(tmp_path / "ops", wanted, f"cuda:sm_{major}{minor}")
    torch.save([x, x, q, k, v], tmp_path / "given.pt")
    torch.save([expected, attended], tmp_path / "wanted.pt")
    said = run_package(
        WITHOUT, tmp_path, "cuda", bundle, package, tmp_path / "given.pt", tmp_path / "wanted.pt"
    )
    assert said.strip() == "ran"


def test_a_tuned_kernel_gives_the_same_bits_whatever_was_chosen() -> None:
    (case,) = (case for case in CASES if case.name == "matmul")
    inputs = case.inputs(128, 96, "cuda")
    tuned = case.program(*inputs)
    torch.testing.assert_close(tuned, case.theirs(*inputs), rtol=2**-9, atol=2**-6)


def test_a_call_that_tunes_writes_its_tensor_once() -> None:
    x = torch.arange(1000.0, device="cuda")
    program = tuned(None)
    program(x)
    assert torch.equal(x, 2 * torch.arange(1000.0, device="cuda") + 1)  # exact in float32
    assert program.compile(x).config["num_warps"] in (2, 8)


def test_every_shape_is_meant_for_every_case() -> None:
    assert len(list(shaped("cuda"))) == len(CASES) * len(SHAPES)
