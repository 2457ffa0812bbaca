"""Programs with a dtype variable and leading dimensions are tuned for each dtype."""

from __future__ import annotations

from pathlib import Path

import torch

import tileops
import tileops.language as T


@tileops.autotune(configs=[{"rows": 1}, {"rows": 4}], warmup=0, rep=1)
@tileops.jit(name="tuned_any_double")
def double(A, rows: int = 2):
    N = T.const("N")
    dt = T.DTypeVar("dt", T.float16, T.float32)
    A: T.Tensor((..., N), dt)
    B = T.empty((..., N), dt)
    with T.Kernel(T.ceildiv(A.shape[0], rows)) as bx:
        for i, j in T.Parallel(rows, N):
            B[bx * rows + i, j] = A[bx * rows + i, j] * 2
    return B


def test_each_dtype_is_tuned(tmp_path: Path) -> None:
    with tileops.option.cache_dir(tmp_path):
        before = tileops.stats()["tunings"]
        for number, dtype in enumerate((torch.float16, torch.float32), start=1):
            for shape in ((2, 3, 8), (6, 8)):  # one product: one bucket, one tuning
                a = torch.randn(shape).to(dtype)
                assert torch.equal(double(a), a * 2)
            assert tileops.stats()["tunings"] == before + number
        a = torch.randn(5, 8).half()
        kernel = double.compile(a)
        assert kernel.config is not None
        assert torch.equal(kernel(a), a * 2)


def test_a_tuning_and_a_program_have_no_lock_file_in_common(tmp_path: Path) -> None:
    """A tuning that holds its lock waits for processes that take those of programs."""
    with tileops.option.cache_dir(tmp_path):
        double(torch.randn(3, 16))
    names = {path.stem for path in (tmp_path / ".state" / "locks").iterdir()}
    of_tunings = {name for name in names if name.startswith("t")}
    assert len(of_tunings) == 1
    assert len(names) > 1
    assert all(set(name) <= set("0123456789abcdef") for name in names - of_tunings)
