"""Models of transformers that call operators: recognised, verified, undone to the bit."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import tileops
from tests.patching.models import FAMILIES, make, sample
from tileops.patching.sites import Match


def results(model: nn.Module, given: dict[str, Any]) -> list[torch.Tensor]:
    """Loss, logits and gradients."""
    out = model(**given)
    wanted = [p for p in model.parameters() if p.requires_grad]
    grads = torch.autograd.grad(out.loss, wanted, allow_unused=True)
    return [out.loss.detach(), out.logits.detach(), *(g for g in grads if g is not None)]


def assert_equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> None:
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def state(model: nn.Module) -> list[tuple[str, list[str]]]:
    """What the instances hold beside weights and children."""
    return [(name, sorted(m.__dict__)) for name, m in model.named_modules()]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_is_patched_verified_and_undone(family: str) -> None:
    model, given = make(family), sample()
    before, held = results(model, given), state(model)
    with tileops.patch(model) as report:
        assert report.difference is not None
        assert report.difference.is_small, report
        assert report.worst is None
        found = {
            (r.found.operator, r.found.variant) for r in report.rows if isinstance(r.found, Match)
        }
        norm, gate = FAMILIES[family]
        parts = "half" if family == "GptOss" else "whole"
        expected = {
            ("rms_norm", norm),
            ("rope", f"angles of {parts} heads"),
            ("cross_entropy", "causal"),
        }
        if gate is not None:
            expected.add(("silu_mul" if gate == "silu" else "gelu_mul", gate))
        assert found == expected
        kept = {row.found.operator for row in report.rows if row.state != "patched"}
        assert kept == {"attention"}, report  # torch's kernels on the CPU
        with torch.profiler.profile() as profile:
            results(model, given)
        called = {event.key for event in profile.key_averages()}
        assert {f"tileops_ops::{operator}" for operator, _ in found} <= called
    assert report.patched == ()
    assert state(model) == held
    assert_equal(results(model, given), before)


def test_a_float32_model_and_one_in_evaluation() -> None:
    model, given = make("Llama", torch.float32).eval(), sample()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    expected = model(**given).logits
    report = tileops.patch(model)
    torch.testing.assert_close(model(**given).logits, expected, rtol=1e-4, atol=1e-4)
    assert report.difference is not None


def test_a_second_patch_changes_nothing() -> None:
    model = make("Llama")
    first = tileops.patch(model, verify=False)
    held = state(model)
    second = tileops.patch(model, verify=False)
    assert second.patched == ()
    states = {row.state for row in second.rows if row.found.operator != "attention"}
    assert states == {"patched before"}
    second.undo()
    assert state(model) == held
    first.undo()
    assert all("forward" not in m.__dict__ for m in model.modules())


def test_one_instance_alone() -> None:
    """Neither the class nor a copy made before is patched; a copy made after calls its own weights."""
    model, given = make("Llama"), sample()
    other = copy.deepcopy(model)
    expected = results(other, given)
    report = tileops.patch(model, verify=False)
    assert_equal(results(other, given), expected)
    patched, twin = results(model, given), copy.deepcopy(model)
    with torch.no_grad():
        model.get_parameter("model.norm.weight").zero_()
    assert_equal(results(twin, given), patched)
    assert list(model.state_dict()) == list(other.state_dict())
    report.undo()


def test_hooks_stay() -> None:
    model, seen = make("Llama"), []
    norm = model.get_submodule("model.norm")
    norm.register_forward_hook(lambda module, args, out: seen.append(out.dtype))
    with tileops.patch(model, verify=False):
        model(**sample())
    assert seen == [torch.bfloat16]


def test_gradient_checkpoints() -> None:
    model, given = make("Llama").train(), sample()
    with tileops.patch(model, verify=False):
        expected = results(model, given)
        model.gradient_checkpointing_enable({"use_reentrant": False})
        assert_equal(results(model, given), expected)


def test_a_compiled_model() -> None:
    model, given = make("Qwen3", torch.float32), sample()
    expected = results(model, given)
    with tileops.patch(model, verify=False):
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        loss = compiled(**given, use_cache=False).loss
        grad = torch.autograd.grad(loss, model.get_parameter("model.norm.weight"))[0]
    torch.testing.assert_close(loss, expected[0], rtol=1e-4, atol=1e-4)
    assert grad.isfinite().all()


def test_adapters() -> None:
    """LoRA of a projection stays in the path; the wrapper's modules are found."""
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(target_modules=["gate_proj", "q_proj"], r=2, init_lora_weights=False)
    model, given = peft.get_peft_model(make("Llama"), config), sample()
    before = results(model, given)
    with tileops.patch(model, sample=given) as report:
        assert report.worst is None
        assert sum(row.kind == "LlamaMLP" for row in report.rows) == 2
        after = results(model, given)
    assert len(after) == len(before)
    for a, b in zip(after, before, strict=True):
        assert (a - b).norm() <= 2.0**-4 * b.norm() + 1e-3
    assert_equal(results(model, given), before)
