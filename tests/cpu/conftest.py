"""Reproducible inputs."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(20260801)
