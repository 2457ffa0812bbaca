"""The example package: built without torch, installed where nothing can be compiled, and called.

Other build backends and more targets: test_backends.py.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import pytest

from tests.packages import clean

EXAMPLE = clean.ROOT / "examples/package"
BUILDING = "import {backend} as backend; print(backend.build_wheel('dist'))"
EPOCH = {"SOURCE_DATE_EPOCH": "315532800"}
SEVEN = [
    "cuda:sm_80", "cuda:sm_86", "cuda:sm_89", "cuda:sm_90", "cuda:sm_100", "cuda:sm_120",
    "cpu:x86-64-v3",
]  # fmt: skip


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment as pip makes it for a build."""
    folder = tmp_path_factory.mktemp("builder")
    site = clean.linked(folder / "site", "triton", "filelock", "setuptools")
    return clean.environment(folder / "environment", site)


def build(python: Path, project: Path, backend: str = "setuptools.build_meta") -> Path:
    """The wheel of a project, from a folder without what earlier builds left."""
    name = clean.run(python, BUILDING.format(backend=backend), project, **EPOCH).splitlines()[-1]
    return project / "dist" / name


def install(wheel: Path, folder: Path) -> Path:
    """Unpack a wheel as an installer does; all of these have their files where they belong."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def copied(project: Path, **changes: str) -> Path:
    """The example package with texts of its files replaced."""
    shutil.copytree(EXAMPLE, project)
    for file in project.rglob("*.*"):
        text = file.read_text()
        for before, after in changes.items():
            text = text.replace(before, after)
        file.write_text(text)
    return project


def installed_without_wheel(python: Path, project: Path) -> Path:
    """The sources of a project with a bundle from the command, as any build backend may use it."""
    name = project.name
    source = project / "src" / f"{name}ops"
    text = f"from tileops.cli.main import main; main(['build', '.', '--out', {str(source / '_kernels')!r}])"
    clean.run(python, text, project)
    info = source.parent / f"{name}ops-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}ops\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[tileops.kernels]\n{name}ops = {name}ops:_kernels\n")
    return source.parent


CALLING = """
import sys, torch, tileops
import userops
from tileops.op import bundle_paths
assert bundle_paths.serving() == ()  # nothing is looked for before a miss
x = torch.linspace(-3, 4, 1000)
expected = torch.where(x > 0, x, x * 0.125)
assert torch.equal(userops.leaky(x), expected) and torch.equal(torch.ops.userops.leaky(x), expected)
assert torch.autograd.gradcheck(
    lambda t: userops.leaky(t.float()).double(),
    x[::125].double().requires_grad_(), eps=1e-2, atol=1e-3)  # none is near the kink at 0
a, b = torch.randn(64, 128), torch.randn(128, 64)
assert torch.allclose(userops.scores(a, b), a @ b, atol=1e-4)
assert userops.leaky.op.name() == "userops::leaky" and len(bundle_paths.serving()) == COUNT
print(tileops.stats()["compiles"])
"""


def test_a_wheel_with_kernels(builder: Path, tmp_path: Path) -> None:
    wheel = build(builder, copied(tmp_path / "project"))
    assert wheel.name == f"userops-1.0-py3-none-linux_{os.uname().machine}.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "userops/_kernels/bundle.json" in names
    assert any(name.endswith("/kernel_lib.so") for name in names)
    # A second package has an op of the same name that does something else.
    changes = {"userops::leaky": "tileops::act", "userops": "otherops", "0.125": "0.25"}
    other = copied(tmp_path / "other", **changes)
    project = other / "pyproject.toml"
    text, _, rest = project.read_text().partition("\nops = ")
    project.write_text(f'{text}\nops = ["otherops.programs:leaky"]\n{rest.partition(chr(10))[2]}')
    (other / "src/userops").rename(other / "src/otherops")
    both = [install(wheel, tmp_path / "site"), installed_without_wheel(builder, other)]
    user = clean.environment(tmp_path / "user", *both, clean.ROOT, *clean.torch_paths())
    bare = {"PATH": "/nonexistent", "TILEOPS_CACHE_DIR": str(tmp_path / "cache")}
    assert clean.run(user, CALLING.replace("COUNT", "2"), tmp_path, **bare) == "0"
    third = shutil.copytree(both[1], tmp_path / "site3")
    (third / "otherops").rename(third / "thirdops")
    text = (third / "thirdops/programs.py").read_text().replace("0.25", "0.5")
    (third / "thirdops/programs.py").write_text(text)
    mixed = (
        "import sys, torch, tileops\n"
        f"sys.path.insert(0, {str(third)!r})\n"
        "from otherops.programs import leaky as one\n"
        "x = torch.randn(100)\n"
        "assert torch.equal(one(x), torch.where(x > 0, x, x * 0.25))\n"
        "print(tileops.stats()['compiles'])\n"
        "tileops.option.strict()\n"
        # The name of the first, and not its kernels.
        "from thirdops.programs import leaky as two\n"
        "try: two(x)\n"
        "except (tileops.CompileMissError, tileops.ToolchainError): print('not mixed')\n"
    )
    assert clean.run(user, mixed, tmp_path, **bare).splitlines() == ["0", "not mixed"]
