"""What the records say holds: autocast, traffic, checkpoints, the choice in graphs, and ``why``."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tests.ops.cases import CASES, PLAIN, TRAINED, Case
from tests.ops.exactness import results, with_gradients
from tests.ops.recorded import programs_called
from tileops import ops
from tileops.errors import ArgumentError
from tileops.ops import choosing
from tileops.ops.info import size_of


def targets_of(case: Case, mode: str, *, training: bool) -> set[str]:
    """The ops of the graph that torch.compile gets."""
    torch._dynamo.reset()
    found: set[str] = set()

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        found.update(str(n.target) for n in graph.graph.nodes if n.op == "call_function")
        return graph

    inputs = case.inputs(4, 6, torch.float32, "cpu")
    inputs = case.form.leaves(inputs) if training else inputs
    with ops.compile_mode(mode):
        out = torch.compile(case.call, fullgraph=True, backend=backend)(*inputs)
    for a, b in zip(results(out), results(case.call(*inputs)), strict=True):
        torch.testing.assert_close(a, b)
    return found


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_a_graph_has_the_op_or_torch_operations(case: Case) -> None:
    own = f"{ops.NAMESPACE}.{case.info.name}"
    assert any(own in target for target in targets_of(case, "opaque", training=False))
    assert not any(own in target for target in targets_of(case, "decompose", training=False))
    for training in (False, True):
        found = any(own in t for t in targets_of(case, "auto", training=training))
        widest = choosing.TABLE["widest_decomposed_row"][case.info.name]
        assert found == (widest["training" if training else "inference"] == 0)


def test_the_mode_comes_back() -> None:
    with ops.compile_mode("opaque"), ops.compile_mode("decompose"):
        pass
    assert choosing.reason("silu_mul", 8, ()).startswith("decompose: not measured")
    with pytest.raises(ArgumentError, match=r"compile_mode: mode: expected one of .* got 'fast'"):
        ops.compile_mode("fast")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_autocast(case: Case) -> None:
    inputs = case.inputs(4, 6, torch.float32, "cpu")
    expected = results(case.call(*inputs))
    with torch.autocast("cpu", torch.bfloat16):
        found = results(case.call(*inputs))
    for a, b in zip(found, expected, strict=True):
        if case.info.lowers:
            assert not torch.equal(a, b)
        else:
            assert torch.equal(a, b)
    if case.info.lowers:
        lower = results(case.call(*case.form.to(inputs, torch.bfloat16)))
        assert all(torch.equal(a, b) for a, b in zip(found, lower, strict=True))


@pytest.mark.parametrize("case", [c for c in PLAIN if c in TRAINED], ids=str)
def test_checkpoints(case: Case) -> None:
    inputs = case.inputs(4, 6, torch.float32, "cpu")
    kept = with_gradients(case, case.call, inputs, 0)
    again = with_gradients(
        case, lambda *x: checkpoint(case.call, *x, use_reentrant=False), inputs, 0
    )
    for a, b in zip(again, kept, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_traffic_counts_each_tensor_once(case: Case) -> None:
    inputs = case.inputs(4, 6, torch.float32, "cpu")
    outputs = results(case.call(*inputs))
    gradients = with_gradients(case, case.call, inputs, 0)[len(outputs) :]
    assert case.info.forward_bytes(inputs, outputs) == size_of(inputs) + size_of(outputs)
    if case.info.name == "add_rms_norm":  # the gradients of both terms are one tensor
        backward = case.info.backward_bytes(inputs, outputs, gradients)
        assert backward == 4 * (3 * 4 * 6 + 6) + 4 * (4 * 6 + 6) - 4 * 4 * 6


@pytest.mark.parametrize("case", CASES, ids=str)
def test_why(case: Case) -> None:
    args, options = case.form.bind(case.inputs(4, 6, torch.float32, "cpu"))
    found = ops.why(case.info.call, *args, **options)
    assert [p.program for p in found.programs] == [
        call.name for call in programs_called(case, torch.float32)
    ]
    assert case.info.name in str(found)
    assert found.compiled.split(":")[0] in ("decompose", "opaque")


def test_why_of_rows_in_parts() -> None:
    found = ops.why(ops.softmax, torch.empty(2, 20000, device="meta"), -1)
    assert found.programs[0].config == {"rows": 1, "columns": 4096, "threads": 512}
    assert "read in parts" in found.programs[0].reason
    assert found.compiled.startswith("opaque")
    with pytest.raises(ArgumentError, match=r"why: function: expected one of .*rms_norm"):
        ops.why(torch.add, 1, 2)
