"""Copies and pickles of programs, kernels and models that hold them."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tileops
import tileops.language as T
from tests.programs import samples
from tests.programs.samples import vector

ROOT = Path(__file__).resolve().parents[2]


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.program = samples.axpy
        self.kernel = samples.lazy_add(20)
        self.scale = torch.nn.Parameter(torch.ones(20), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.kernel(self.program(x, self.scale, 2.0), x)


def test_programs_copy_as_themselves() -> None:
    assert copy.copy(samples.axpy) is samples.axpy
    assert copy.deepcopy(samples.axpy) is samples.axpy
    assert pickle.loads(pickle.dumps(samples.axpy)) is samples.axpy
    bound = samples.typed.bind(act=samples.relu)
    assert pickle.loads(pickle.dumps(bound)) is bound


def test_kernels_copy_as_themselves() -> None:
    kernel = samples.lazy_add(20)
    assert copy.copy(kernel) is kernel
    assert copy.deepcopy(kernel) is kernel
    again = pickle.loads(pickle.dumps(kernel))
    assert again.name == kernel.name
    x, y = vector(20), vector(20)
    assert torch.equal(again(x, y), x + y)


def test_models() -> None:
    model, x = Model(), vector(20)
    assert torch.equal(copy.deepcopy(model)(x), model(x))
    assert torch.equal(pickle.loads(pickle.dumps(model))(x), model(x))


def test_a_program_that_its_name_does_not_lead_to() -> None:
    @tileops.jit(name="copies_local")
    def program(X):
        N = T.const("N")
        X: T.Tensor((N,), T.float32)
        with T.Kernel(1):
            X[0] = 1.0

    assert copy.deepcopy(program) is program
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(program)


def test_a_pickled_model_in_other_processes(tmp_path: Path) -> None:
    model, x = Model(), vector(20)
    torch.save((model, x, model(x)), tmp_path / "model.pt")
    script = (
        "import sys, torch\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        f"model, x, y = torch.load({str(tmp_path / 'model.pt')!r}, weights_only=False)\n"
        "assert torch.equal(model(x), y)\n"
        "import tileops\n"
        "print(tileops.stats()['compiles'])\n"
    )
    compiles = [
        subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "TILEOPS_CACHE_DIR": str(tmp_path / "cache")},
        ).stdout
        for _ in range(2)
    ]
    assert compiles == ["2\n", "0\n"]
