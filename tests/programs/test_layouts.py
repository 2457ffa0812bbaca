"""Each whole program as an op on tensors of every layout: it takes them as its fake does, or both refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode

from tests.programs import families
from tests.programs.family_case import FamilyCase
from tileops.errors import ProgramError

Layout = Callable[[torch.Tensor], torch.Tensor]


def sliced(x: torch.Tensor) -> torch.Tensor:
    """The same values among others, rows apart."""
    wide = torch.empty(*x.shape[:-1], x.shape[-1] + 3, dtype=x.dtype)
    wide[..., :-3] = x
    return wide[..., :-3]


def transposed(x: torch.Tensor) -> torch.Tensor:
    return x.movedim(-1, 0).contiguous().movedim(0, -1)


def expanded(x: torch.Tensor) -> torch.Tensor:
    return x[:1].expand(x.shape)


def empty(x: torch.Tensor) -> torch.Tensor:
    return x[:0]


LAYOUTS: tuple[Layout, ...] = (torch.clone, sliced, transposed, expanded, empty)


def first_of_each_program() -> list[FamilyCase]:
    """The case with the smallest inputs of each program."""
    found: dict[int, FamilyCase] = {}
    for case in families.runnable("cpu"):
        if not getattr(case.impl, "is_lazy_mode", lambda: True)():
            found.setdefault(id(case.impl), case)
    return list(found.values())


def variants(inputs: tuple[Any, ...]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The inputs with all tensors in one layout, then each alone."""
    places = [n for n, x in enumerate(inputs) if isinstance(x, torch.Tensor) and x.dim() > 0]
    for layout in LAYOUTS:
        yield layout.__name__, tuple(layout(x) if n in places else x for n, x in enumerate(inputs))
        if layout in (sliced, transposed, expanded):
            for place in places:
                yield (
                    f"{layout.__name__} {place}",
                    tuple(layout(x) if n == place else x for n, x in enumerate(inputs)),
                )


def outcome(call: Callable[[], Any]) -> object:
    """What is promised of a call: its results without their values, or its error's class."""
    try:
        out = call()
    except RuntimeError as error:
        return type(error)
    outs = [out] if isinstance(out, torch.Tensor) else list(out or ())
    return [(tuple(o.shape), o.stride(), o.dtype, o.device) for o in outs]


@pytest.mark.parametrize("case", first_of_each_program(), ids=lambda case: case.id)
def test_fake_and_real_agree(case: FamilyCase) -> None:
    op, taken = case.impl.op, 0
    for name, inputs in variants(case.inputs()):
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            faked = tuple(mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in inputs)
            promised = outcome(lambda faked=faked: op(*faked, **case.options))
        real = tuple(x.clone() if torch.is_tensor(x) and name == "clone" else x for x in inputs)
        given = outcome(lambda real=real: op(*real, **case.options))
        # A fake knows no values: a table without entries can make the body of a program wrong.
        if name == "empty" and isinstance(given, type) and issubclass(given, ProgramError):
            continue
        assert given == promised, (case.id, name)
        taken += isinstance(given, list)
    assert taken >= 1


@pytest.mark.parametrize("case", first_of_each_program(), ids=lambda case: case.id)
def test_opcheck(case: FamilyCase) -> None:
    inputs = case.inputs()
    tests = ["test_autograd_registration", "test_faketensor"]
    # The test of schemas compares inputs by torch's own arithmetic, which 8-bit floats lack.
    if not any(torch.is_tensor(x) and "float8" in str(x.dtype) for x in inputs):
        tests.append("test_schema")
    torch.library.opcheck(case.impl.op, inputs, case.options, test_utils=tests)
