"""What csrc declares of torch's and the driver's interfaces, compared with torch's headers and cuda.h."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import torch

from tests.runtime.conftest import GXX, HERE, ROOT, cuda_include
from tests.runtime.torch_symbols import TORCH_2_10, listed

CUDA = ROOT / "csrc" / "core" / "cuda_abi.h"
TORCH = ROOT / "csrc" / "torch" / "torch_abi.h"


def compiled(csrc: Path) -> subprocess.CompletedProcess[str]:
    """The comparison, compiled with the declarations in ``csrc``."""
    return subprocess.run(
        [GXX, "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-DTORCH_TARGET_VERSION={TORCH_2_10}",
         f"-I{csrc}", "-isystem", str(cuda_include()), "-isystem", str(Path(torch.__file__).parent / "include"),
         str(HERE / "interfaces.cpp")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_declarations_agree_with_the_headers() -> None:
    done = compiled(ROOT / "csrc")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("header", "right", "wrong", "message"),
    [
        (CUDA, "CUDA_ERROR_ASSERT = 710", "CUDA_ERROR_ASSERT = 711", "CUDA_ERROR_ASSERT"),
        (CUDA, "using CUdevice = int", "using CUdevice = long", "CUdevice"),
        (CUDA, "  unsigned sharedMemBytes;\n", "", "sharedMemBytes"),
        (CUDA, "CUresult(int*, CUfunction_attribute", "CUresult(int, CUfunction_attribute", "cuFuncGetAttribute"),
        (TORCH, "AtenTensorHandle, int64_t* rank", "AtenTensorHandle, int32_t* rank", "aoti_torch_get_dim"),
        (TORCH, "using AOTITorchError = int32_t", "using AOTITorchError = int64_t", "AOTITorchError"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_is_found(
    tmp_path: Path, header: Path, right: str, wrong: str, message: str
) -> None:
    for each in (CUDA, TORCH):
        text = each.read_text()
        if each == header:
            assert text.count(right) == 1
            text = text.replace(right, wrong)
        copy = tmp_path / each.parent.name / each.name
        copy.parent.mkdir()
        copy.write_text(text)
    done = compiled(tmp_path)
    assert done.returncode != 0
    assert message in done.stderr


def test_everything_of_the_driver_is_compared() -> None:
    text = CUDA.read_text()
    declared = set(re.findall(r"\b(CUD?A?_[A-Z0-9_a-z]+) = \d+", text))
    declared |= set(re.findall(r"using (cu[A-Z]\w+) = CUresult\(", text))
    compared = set(
        re.findall(r"(?:VALUE|FUNCTION)\((\w+)\);", (HERE / "interfaces.cpp").read_text())
    )
    assert len(declared) > 50
    assert declared == compared


def test_every_function_of_torch_is_in_its_oldest_interface() -> None:
    declared = re.findall(r"\b((?:aoti_torch|torch)_[a-z0-9_]+)\(", TORCH.read_text())
    assert len(declared) > 50
    assert set(declared) <= set(listed())
