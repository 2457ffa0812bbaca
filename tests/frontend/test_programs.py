"""The printed IR of the example programs, in eager and lazy mode, symbolic and specialised."""

from __future__ import annotations

import time

import pytest

from tests.kit.goldens import check
from tests.programs import printed as programs
from tileops.frontend import trace, with_out_idx
from tileops.ir.printer import print_program
from tileops.ir.verifier import verify

MATMUL = {"M": 512, "N": 384, "K": 256}
HEADS = {"B": 2, "H": 4, "S": 200, "D": 64}

EAGER = {
    "matmul_relu": (programs.matmul_relu, {}, MATMUL),
    "add": (programs.add, {}, {}),
    "rmsnorm": (programs.rmsnorm, {}, {"M": 7, "N": 768}),
    "softmax": (programs.softmax, {}, {"M": 5, "N": 1000}),
    "split_k": (programs.split_k, {}, {"M": 100, "N": 90, "K": 300}),
    "attention": (programs.attention, {}, HEADS),
    "attention_causal": (programs.attention, {"causal": True}, HEADS),
}
LAZY = {
    "matmul_relu_lazy": lambda: programs.matmul_relu_lazy(512, 384, 256),
    "add_lazy": lambda: programs.add_lazy(),
    "rmsnorm_lazy": lambda: programs.rmsnorm_lazy(7, 768),
    "attention_lazy": lambda: programs.attention_lazy(2, 4, 200, 64),
    "attention_lazy_causal": lambda: programs.attention_lazy(2, 4, 200, 64, causal=True),
}


@pytest.mark.parametrize("name", EAGER)
def test_an_eager_program_prints_its_golden_ir(name: str) -> None:
    func, static, consts = EAGER[name]
    symbolic = trace(func, name=func.__name__, static=static, consts=None)
    special = trace(func, name=func.__name__, static=static, consts=consts)
    verify(symbolic)
    verify(special)
    check("ir", name, print_program(symbolic) + "\n" + print_program(special))


@pytest.mark.parametrize("name", LAZY)
def test_a_lazy_program_prints_its_golden_ir(name: str) -> None:
    program = LAZY[name]().program
    verify(program)
    check("ir", name, print_program(program))


@pytest.mark.parametrize("name", EAGER)
def test_two_traces_of_one_program_print_the_same_text(name: str) -> None:
    func, static, consts = EAGER[name]
    texts = {print_program(trace(func, name="f", static=static, consts=consts)) for _ in range(3)}
    assert len(texts) == 1


def test_the_eager_and_the_lazy_matmul_are_one_program() -> None:
    eager = trace(programs.matmul_relu, name="matmul_relu", static={}, consts=MATMUL)
    lazy = with_out_idx(programs.matmul_relu_lazy(**MATMUL).program, -1)
    assert print_program(eager) == print_program(lazy)


def test_a_matmul_is_traced_in_a_few_milliseconds() -> None:
    """DESIGN section 4.4: every process traces, so a trace takes at most 5 ms (best of 20 here)."""

    def once() -> float:
        start = time.perf_counter()
        trace(programs.matmul_relu, name="matmul_relu", static={}, consts=MATMUL)
        return time.perf_counter() - start

    once()
    assert min(once() for _ in range(20)) < 5e-3
