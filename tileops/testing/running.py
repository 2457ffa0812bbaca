"""Running a test file by itself, with seeds that make its inputs repeat."""

from __future__ import annotations

import importlib
import random
import sys

import torch


def main() -> None:
    """Run the calling file's tests with pytest, with the command line's arguments, and exit."""
    import pytest

    file = sys._getframe(1).f_globals["__file__"]
    sys.exit(pytest.main([str(file), *sys.argv[1:]]))


def set_random_seed(seed: int = 42) -> None:
    """Seed Python's, torch's and (where it is loaded) numpy's generators."""
    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy" in sys.modules:
        importlib.import_module("numpy").random.seed(seed)
