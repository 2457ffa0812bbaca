"""Random expressions of mixed dtypes: the CPU path and the interpreter agree.

``TILEOPS_RANDOM_PROGRAMS`` (200 by default) over ten is how many; ``TILEOPS_RANDOM_SEED`` the first.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit import harness
from tests.property.expressions import differences, function_of, inputs_of
from tests.property.test_programs import COUNT, FIRST
from tileops.codegen import triton as codegen
from tileops.codegen.kernel_code import Specialization
from tileops.frontend.trace import trace
from tileops.target import parse_target
from tileops.testing.interpreter import interpret

BATCH = 5


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT // 10, BATCH))
def test_cpu_and_interpreter(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + BATCH):
        program = trace(function_of(seed, tmp_path), name="program", static={}, consts={})
        inputs = inputs_of(seed)
        code = codegen.generate(program, parse_target("cuda:sm_90"), Specialization())
        on_cpu = list(harness.build(program)(*inputs))
        found = differences(seed, on_cpu, list(interpret(code, program, *inputs)))
        assert not found, "\n".join(found)
