"""Programs that another process can run on copies, and those that it cannot."""

from __future__ import annotations

import pytest
import torch

from tests.programs import pointers as pointer_programs
from tests.programs import samples
from tileops.errors import ArgumentError
from tileops.jit.loadable import is_movable


def test_programs_on_tensors_run_anywhere() -> None:
    assert is_movable(samples.axpy.get_tir())
    assert is_movable(samples.add_into.get_tir())


def test_what_only_reads_addresses_is_measured_here() -> None:
    tables = torch.zeros(2, 2, dtype=torch.int64)
    out = torch.zeros(2, 8, 4, dtype=torch.float16)
    assert not is_movable(pointer_programs.gathered_columns.get_tir(tables, out))


def test_what_writes_at_addresses_is_not_tuned() -> None:
    rows, sizes = torch.zeros(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int32)
    with pytest.raises(ArgumentError, match=r"scaled_rows cannot be tuned.*\(Rows\)"):
        is_movable(pointer_programs.scaled_rows.get_tir(rows, sizes))
    with pytest.raises(ArgumentError, match=r"from_pointer cannot be tuned.*\(C\)"):
        is_movable(pointer_programs.from_pointer.get_tir())
