"""Attention of models of transformers that calls the operator: masks, caches, windows, undo."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import tileops
from tests.patching.models import FAMILIES, make, sample
from tests.patching.test_models import assert_equal, results
from tileops.errors import TileopsError
from tileops.ops.explaining import recorded
from tileops.patching.sites import Skip


def implementations(model: nn.Module) -> set[Any]:
    return {m.config._attn_implementation for m in model.modules() if "config" in m.__dict__}


def operators(model: nn.Module, **given: Any) -> list[str]:
    """The operators that a call of the model calls."""
    return [call.name for call in recorded(model, (), given)]


# transformers has bounded scores and sinks in eager mode alone.
ORIGINALS = [*((f, "eager") for f in FAMILIES), ("Llama", "sdpa"), ("Qwen3", "sdpa")]


@pytest.mark.parametrize(("family", "original"), ORIGINALS)
def test_a_model_is_patched_verified_and_undone(family: str, original: str) -> None:
    """A window of 8 hides keys of a sequence of 20."""
    model = make(family)
    model.set_attn_implementation(original)
    tokens = torch.randint(64, (2, 20))
    given = {"input_ids": tokens, "labels": tokens}
    before = results(model, given)
    with tileops.patch(model, ops="attention", sample=given) as report:
        assert report.difference is not None
        assert report.difference.is_small, report
        assert report.patched == ("model.layers.0.self_attn",)
        assert implementations(model) == {f"tileops_over_{original}"}
        assert operators(model, **given) == ["attention"] * 2
    assert implementations(model) == {original}
    assert_equal(results(model, given), before)


@pytest.mark.parametrize("family", ["Llama", "GptOss"])
def test_what_the_operator_does_not_take_is_left_to_the_original(family: str) -> None:
    """Padding, a single query with a cache, dropout; the results are those of before, bit by bit."""
    model = make(family).eval()
    tokens = torch.randint(1, 64, (2, 12))
    padding = torch.ones_like(tokens)
    padding[0, :3] = 0
    with torch.no_grad():
        padded = model(input_ids=tokens, attention_mask=padding).logits
        whole = model(input_ids=tokens, attention_mask=torch.ones_like(tokens)).logits
        tileops.patch(model, ops="attention")
        assert operators(model, input_ids=tokens, attention_mask=padding) == []
        assert torch.equal(model(input_ids=tokens, attention_mask=padding).logits, padded)
        ones = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        assert operators(model, **ones) == ["attention"] * 2
        found = model(input_ids=tokens).logits
        assert (found - whole).norm() <= 2.0**-4 * whole.norm()
        cache = model(input_ids=tokens[:, :11], use_cache=True).past_key_values
        one = {"input_ids": tokens[:, 11:], "past_key_values": cache}
        assert operators(model, **one) == []


def test_dropout_keeps_the_mask() -> None:
    model = make("Gemma2", torch.float32)
    for module in model.modules():
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 1e-9  # nothing is dropped, but for a stroke of luck
    tokens = torch.randint(64, (1, 20))
    model.eval()
    expected = model(input_ids=tokens).logits
    tileops.patch(model, ops="attention", verify=False)
    model.train()
    assert operators(model, input_ids=tokens) == []
    torch.testing.assert_close(model(input_ids=tokens).logits, expected)


def test_one_model_alone() -> None:
    """Not another model of the same config; a copy made after calls the operator, too."""
    model = make("Llama")
    other = type(model)(model.config).to(torch.bfloat16)
    assert other.config is model.config
    report = tileops.patch(model, ops="attention", verify=False)
    assert implementations(other) == {"eager"}
    assert operators(copy.deepcopy(model), **sample()) == ["attention"] * 2
    second = tileops.patch(model, ops="attention")
    assert [row.state for row in second.rows] == ["patched before"]
    assert second.patched == ()
    model.config = other.config
    with pytest.raises(TileopsError, match="config was replaced after patch"):
        report.undo()


def test_a_saved_model_does_not_name_the_entry(tmp_path: Any) -> None:
    model = make("Llama")
    with tileops.patch(model, ops="attention", verify=False):
        model.save_pretrained(tmp_path)
    assert "tileops" not in (tmp_path / "config.json").read_text()


def test_a_compiled_model() -> None:
    model, given = make("Llama", torch.float32), sample()
    expected = model(**given).loss
    with tileops.patch(model, ops="attention", verify=False):
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        loss = compiled(**given, use_cache=False).loss
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-4)


def test_kernels_that_are_kept() -> None:
    model = make("Llama")
    (row,) = tileops.patch(model, dry_run=True).rows[-1:]
    assert isinstance(row.found, Skip)
    assert "kept: ours are not measured faster on the CPU" in row.found.reason
    model.set_attn_implementation("flex_attention")
    (row,) = tileops.patch(model, ops="attention").rows
    assert row.state == "left alone"
    assert "'flex_attention' is kept" in row.found.reason


def test_an_attention_that_is_another_one_is_left_alone() -> None:
    model = make("Llama")
    model.get_submodule("model.layers.1.self_attn").attn_logit_softcapping = 2.0
    (row,) = tileops.patch(model, ops="attention").rows
    assert isinstance(row.found, Skip)
    assert "its results differ by" in row.found.reason
