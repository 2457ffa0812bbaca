"""Kernels under Triton's decorators, and Gluon's."""

from __future__ import annotations

from typing import Any

import pytest

import tileops
import tileops.language as T
from tests.foreign import kernels
from tests.foreign.launched import Launched, words_of_record
from tileops.errors import ArgumentTypeError, ProgramValueError, UnsupportedConstructError


def over_vectors(launch: Any, name: str, **static: Any) -> Any:
    @tileops.jit(name=name)
    def program(X, BLOCK: int = 256, num_warps: int = 4):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Y = T.empty((N,), T.float32)
        with T.Extern():
            launch(X, Y, N, BLOCK, num_warps)
        return Y

    return program


def test_heuristics_are_evaluated_at_each_call() -> None:
    @tileops.jit
    def foreign_row_sums(X):
        M, K = T.dynamic("M, K")
        X: T.Tensor((M, K), T.float32)
        Y = T.empty((M,), T.float32)
        with T.Extern():
            kernels.row_sums[(M,)](X, Y, K, X.stride(0), BK=64)
        return Y

    op = Launched(foreign_row_sums)
    texts = []
    for k, words in ((128, [2, 1]), (48, [2, 0]), (65, [0, 0]), (1, [1, 0])):
        entry = op.compiled(op.wanted({"M": 3, "K": k}))
        assert words_of_record(entry) == words
        texts.append(entry.files["launch0.ttir"])
    assert len(set(texts)) == 4


@T.macro
def tuned(X, Y, N, BLOCK, num_warps):
    kernels.tuned_double[lambda meta: (T.ceildiv(N, meta["BLOCK"]),)](
        X, Y, N, BLOCK=BLOCK, num_warps=num_warps
    )


@T.macro
def untold(X, Y, N, BLOCK, num_warps):
    kernels.tuned_double[(T.ceildiv(N, 256),)](X, Y, N)


@T.macro
def configured(X, Y, N, BLOCK, num_warps):
    kernels.configured_double[lambda meta: (T.ceildiv(N, meta["BLOCK"]),)](X, Y, N)


@T.macro
def hooked(X, Y, N, BLOCK, num_warps):
    kernels.hooked_double[(1,)](X, Y, N)


@T.macro
def copied(X, Y, N, BLOCK, num_warps):
    kernels.gluon_copy[(T.ceildiv(N, 256),)](X, Y, N, BLOCK=256, num_warps=4)


def test_configs_are_parameters_of_the_program() -> None:
    assert tileops.triton_configs(kernels.tuned_double) == [
        {"BLOCK": 256, "num_warps": 2}, {"BLOCK": 1024, "num_warps": 8},
    ]  # fmt: skip
    assert tileops.triton_configs(kernels.configured_double) == [{"BLOCK": 128, "num_warps": 1}]
    program = over_vectors(tuned, "foreign_tuned")
    for config in tileops.triton_configs(kernels.tuned_double):
        op = Launched(program, **config)
        launch = op.compiled(op.wanted({"N": 4096})).manifest["record"]["launches"][0]
        assert launch["threads"] == config["num_warps"] * 32
    with pytest.raises(ArgumentTypeError, match=r"expected a kernel under @triton.autotune"):
        tileops.triton_configs(kernels.add)


def test_the_only_config_is_used() -> None:
    op = Launched(over_vectors(configured, "foreign_configured"))
    record = op.compiled(op.wanted({"N": 1000})).manifest["record"]
    assert record["launches"][0]["threads"] == 32


def test_what_a_tuner_of_tritons_would_decide_is_asked_for() -> None:
    with pytest.raises(
        ProgramValueError,
        match=r"tuned_double has 2 configs(.|\n)*triton_configs\(tuned_double\)(.|\n)*BLOCK=BLOCK, num_warps=num_warps(.|\n)*BLOCK, num_warps",
    ):
        over_vectors(untold, "foreign_untold").get_tir()
    with pytest.raises(
        UnsupportedConstructError,
        match=r"hooked_double: @triton.autotune with pre_hook, early_config",
    ):
        over_vectors(hooked, "foreign_hooked").get_tir()


def test_a_gluon_kernel() -> None:
    op = Launched(over_vectors(copied, "foreign_gluon"))
    entry = op.compiled(op.wanted({"N": 1000}))
    assert entry.manifest["resources"][0]["language"] == "gluon"
    assert {"launch0.cubin", "launch0.glir", "launch0.ttgir"} <= set(entry.files) | {"launch0.glir"}


def test_a_gluon_kernel_that_writes_its_input() -> None:
    @T.macro
    def backwards(X, Y, N, BLOCK, num_warps):
        kernels.gluon_copy[(1,)](Y, X, N, BLOCK=256)

    op = Launched(over_vectors(backwards, "foreign_gluon_backwards"))
    with pytest.raises(tileops.ToolchainError, match=r"gluon_copy writes its argument `y`"):
        op.compiled(op.wanted({"N": 1000}))
