"""What an error of a running program means for its config and for the process."""

from __future__ import annotations

import pytest

from tileops.autotuner.benches import status_of


@pytest.mark.parametrize(
    ("words", "status", "is_fatal"),
    [
        ("CUDA error: an illegal memory access was encountered", "illegal_access", True),
        ("CUDA error: misaligned address", "illegal_access", True),
        (
            "CUDA error: operation not supported on global/shared address space",
            "illegal_access",
            True,
        ),
        ("CUDA error: unspecified launch failure", "illegal_access", True),
        ("CUDA error: device-side assert triggered", "error", True),
        ("CUDA out of memory", "error", False),
    ],
)
def test_errors_of_the_driver(words: str, status: str, is_fatal: bool) -> None:
    assert status_of(RuntimeError(words)) == (status, is_fatal)
