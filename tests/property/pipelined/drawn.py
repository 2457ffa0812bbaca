"""Random pipelined programs with the arguments of a call, and what these must be afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from tests.property.pipelined.forms import Pipelined
from tests.property.pipelined.tensors import MOST_TRIPS
from tileops.ir.expr import Var
from tileops.ir.printer import print_program
from tileops.ir.program import Program, ScalarParam, const_value
from tileops.ir.walk import written_ids
from tileops.testing.simulation import simulate

LARGEST = 2  # of the elements of inputs


@dataclass(frozen=True)
class Drawn:
    """A program and its arguments. ``written`` are the places of what it writes, zero before."""

    seed: int
    program: Program
    arguments: tuple[Any, ...]
    written: tuple[int, ...]

    def copies(self, device: str = "cpu") -> tuple[Any, ...]:
        """The arguments as they are before a call."""
        return tuple(
            x.clone().to(device) if isinstance(x, torch.Tensor) else x for x in self.arguments
        )

    def expected(self) -> tuple[Any, ...]:
        """The arguments after a call, as the program says."""
        after = self.copies()
        simulate(self.program, *after)
        return after

    def require(self, got: Sequence[Any], expected: Sequence[Any]) -> None:
        """Fail where a tensor that the program writes differs from what is expected."""
        for place in self.written:
            found, right = got[place].cpu(), expected[place]
            if not torch.equal(found, right):
                at = (found != right).nonzero()
                pairs = [(found[tuple(p)].item(), right[tuple(p)].item()) for p in at[:3]]
                pytest.fail(
                    f"seed {self.seed}: {self.program.params[place].name} is wrong at {len(at)} of "
                    f"{found.numel()} elements, first at {at[:3].tolist()}: {pairs}\n"
                    f"{print_program(self.program)}"
                )


def drawn(seed: int) -> Drawn:
    """The program of a seed, with numbers for its tensors, sizes and scalars."""
    generator = Pipelined(seed)
    program = generator.program()
    values = torch.Generator().manual_seed(seed)
    written = written_ids(program.launches[0].body)
    arguments: list[Any] = []
    places = []
    for place, param in enumerate(program.params):
        if isinstance(param, ScalarParam):
            arguments.append(generator.scalars[param.name])
            continue
        buffer = param.buffer
        shape = [
            generator.sizes[e.id] if isinstance(e, Var) else const_value(e) for e in buffer.shape
        ]
        low, high = (0, MOST_TRIPS) if buffer.dtype.is_integer else (-LARGEST, LARGEST)
        if buffer.id in written:
            places.append(place)
            low = high = 0
        tensor = torch.randint(low, high + 1, shape, generator=values)
        arguments.append(tensor.to(buffer.dtype.as_torch()))
    return Drawn(seed, program, tuple(arguments), tuple(places))
