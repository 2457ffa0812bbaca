"""The version is the same in each place that says one."""

from __future__ import annotations

import re
from importlib import metadata

import tileops
from tests.architecture.imports import PACKAGE


def test_project_package_and_distribution_have_one_version() -> None:
    project = (PACKAGE.parent / "pyproject.toml").read_text()
    assert re.findall(r'^version = "(.+)"$', project, re.MULTILINE) == [tileops.__version__]
    assert re.findall(r'^name = "(.+)"$', project, re.MULTILINE) == ["tileops-torch"]
    try:
        installed = metadata.version("tileops-torch")
    except metadata.PackageNotFoundError:  # a checkout that is built in place
        return
    assert installed == tileops.__version__
