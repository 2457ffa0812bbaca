"""Run-time scalars on the GPU: each dtype at its limits, stored to the bit as torch converts it."""

from __future__ import annotations

import pytest

from tests.op import scalars

pytestmark = pytest.mark.gpu


def test_what_fits_is_stored_exactly() -> None:
    scalars.check_good("cuda")
