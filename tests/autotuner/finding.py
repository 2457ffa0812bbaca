"""What a tuning session does with its configs, without the session: compile, check, measure, decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tileops.autotuner.database import Measured
from tileops.autotuner.param import TuningOptions
from tileops.autotuner.ranks import JointTuning, alone, together
from tileops.autotuner.workshop import Workshop
from tileops.codegen.kernel_code import Specialization
from tileops.ir.program import Program
from tileops.jit.compiling import Request
from tileops.target import parse_target

EXACT = {"rtol": 0.0, "atol": 0.0, "max_mismatched_ratio": 0.0}


@dataclass(frozen=True)
class Found:
    """Outcomes by name, and the names of the right configs, fastest first."""

    measured: dict[str, Measured]
    ranking: list[str]

    @property
    def status(self) -> dict[str, str]:
        return {name: measured.status for name, measured in self.measured.items()}

    @property
    def reasons(self) -> list[str]:
        return [measured.reason for measured in self.measured.values()]


def request_of(program: Program, target: str = "cpu", op: str = "tuned") -> Request:
    return Request(program, parse_target(target), Specialization(fast=True), op, "tuning")


def find_fastest(
    requests: Mapping[str, Request],
    inputs: Sequence[Any],
    options: TuningOptions,
    devices: Sequence[torch.device] = (torch.device("cpu"),),
    *,
    joint: JointTuning | None = None,
    **more: Any,
) -> Found:
    """Compile and measure ``requests``, into the current cache; with ``joint``, with other ranks."""
    with Workshop(requests, inputs, options, devices, joint=joint, **more) as work:
        return find_in(work, list(requests), joint)


def find_in(work: Workshop, names: Sequence[str], joint: JointTuning | None = None) -> Found:
    answer = alone(names, work) if joint is None else together(joint, names, work)
    measured = {name: answer.outcomes[name] for name in names if name in answer.outcomes}
    return Found(measured, list(answer.ranking))
