"""What is recognised and what is left alone, on modules of torch and of this file."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import tileops
from tileops.errors import ArgumentError, ArgumentTypeError, TileopsError
from tileops.log import TileopsWarning
from tileops.patching import norms, verifying
from tileops.patching.sites import Match, Skip


class Norm(nn.Module):
    """RMSNorm in the manner of many models, with a fault if asked."""

    def __init__(self, columns: int, power: float = 2.0) -> None:
        super().__init__()
        self.weight, self.eps, self.power = nn.Parameter(torch.ones(columns)), 1e-6, power

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.abs().pow(self.power).mean(-1, keepdim=True) + self.eps)
        return self.weight * (wide * scale).to(x.dtype)


class Joined(nn.Module):
    def __init__(self, swapped: bool = False) -> None:
        super().__init__()
        self.gate_up_proj, self.down_proj = nn.Linear(8, 32), nn.Linear(16, 8)
        self.swapped = swapped

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up_proj(x).chunk(2, -1)
        if self.swapped:
            gate, up = up, gate
        return self.down_proj(up * nn.functional.silu(gate))


def rows_of(model: nn.Module) -> dict[str, Any]:
    return {row.path: row.found for row in tileops.patch(model, dry_run=True).rows}


def test_modules_of_torch() -> None:
    model = nn.Sequential(
        nn.LayerNorm(12), nn.RMSNorm(12), nn.LayerNorm(12, bias=False), nn.Linear(12, 12),
        nn.LayerNorm((3, 4)), nn.BatchNorm1d(12), nn.LayerNorm(12, elementwise_affine=False),
    )  # fmt: skip
    found = rows_of(model)
    assert {path: (f.operator, f.variant) for path, f in found.items()} == {
        "0": ("layer_norm", "torch"), "1": ("rms_norm", "torch"), "2": ("layer_norm", "torch"),
    }  # fmt: skip


def test_another_formula_is_left_alone() -> None:
    found = rows_of(nn.Sequential(Norm(12), Norm(12, power=3.0), Joined(), Joined(swapped=True)))
    assert isinstance(found["0"], Match)
    assert isinstance(found["1"], Skip)
    assert "no variant agrees" in found["1"].reason
    assert found["2"].operator == "silu_mul"
    assert "no activation agrees" in found["3"].reason


@pytest.mark.parametrize("module", [nn.LayerNorm(12), nn.RMSNorm(12, eps=1e-6), Norm(12)], ids=str)
def test_dtypes_of_results_stay(module: nn.Module) -> None:
    """Under autocast, and where rows and weights differ, a result has the dtype that it had."""
    x = torch.randn(4, 12)
    calls = [lambda: module(x.bfloat16()), lambda: module(x)]

    def under_autocast() -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return module(x.bfloat16())  # type: ignore[no-any-return]

    def told(call: Any) -> Any:
        try:
            return call().dtype
        except RuntimeError as error:
            return type(error)

    calls.append(under_autocast)
    before = [told(call) for call in calls]
    with tileops.patch(module) as report:
        assert len(report.patched) == 1
        assert [told(call) for call in calls] == before


def test_a_wrong_replacement_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verification names the module."""
    model = nn.Sequential(nn.Linear(8, 8), Norm(8), nn.Linear(8, 8), Norm(8), Norm(8))
    real = norms.recognise

    def faulty(module: nn.Module) -> Any:
        found = real(module)
        if module is model[3] and isinstance(found, Match):
            return Match("rms_norm", "llama", lambda module, x: 2 * x, 1.0)
        return found

    monkeypatch.setitem(tileops.patching.entry.RECOGNISERS, "norm", faulty)
    x = torch.randn(4, 8)
    before = model(x)
    with pytest.warns(TileopsWarning, match="was undone: 3 makes the largest difference"):
        report = tileops.patch(nn.ModuleDict({"m": model})["m"], sample={"input": x})
    assert report.worst == "3"
    assert report.patched == ()
    assert torch.equal(model(x), before)


def test_somebody_else_replaced_it() -> None:
    norm = Norm(8)
    norm.forward = lambda x: x  # type: ignore[method-assign, assignment]
    assert "replaced by somebody else" in rows_of(norm)[""].reason
    norm = Norm(8)
    report = tileops.patch(norm)
    norm.forward = lambda x: x  # type: ignore[method-assign, assignment]
    with pytest.raises(TileopsError, match="undo: the model: forward was replaced after patch"):
        report.undo()


def test_what_does_not_fit() -> None:
    with pytest.raises(
        ArgumentTypeError, match=r"patch: model: expected a torch.nn.Module, got int"
    ):
        tileops.patch(3)  # type: ignore[arg-type]
    with pytest.raises(
        ArgumentError, match=r"patch: ops: expected 'auto' or some of norm, .* got 'x'"
    ):
        tileops.patch(nn.Linear(2, 2), ops="x")


def test_differences() -> None:
    one = torch.ones(1)
    same = verifying.Results(one, one, (1.0,))
    assert verifying.compare(same, same, torch.bfloat16).is_small
    other = verifying.Results(one, one, (float("nan"),))
    assert not verifying.compare(same, other, torch.bfloat16).is_small
