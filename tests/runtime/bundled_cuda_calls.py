"""An op of a bundle whose kernel faults on a recorded driver; run as a program of its own.

Arguments: the recorded driver, a stand-in for libtorch_cuda.so, and how the bundle is loaded: by Python or by C.
Prints the errors of two calls, the first of which runs the kernel that faults.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
from pathlib import Path

import torch

import tileops
from tests.kit import descriptions as d
from tests.runtime.bundle_files import write_bundle
from tileops import runtime
from tileops.errors import DriverError

ILLEGAL_ADDRESS = 700  # a CUresult (cuda.h)


def bundle(folder: Path) -> Path:
    op = d.op(
        "bundled_fault",
        "(SymInt n, *, Device? device=None) -> ()",
        [d.arg("n", "int", "scalar"), d.arg("device", "device?", "device")],
    )
    variant = d.variant(scalars=[d.scalar(0, "n", "int32")], host=d.host(["scalar:0"]))
    entry = d.entry(device="cuda", capability=90, host=d.host(["scalar:0"]), consts=[], fast=True,
                    launches=[d.launch("k.cubin", "k", 0, [d.p_scalar(0, "i32")])])  # fmt: skip
    entry["config"] = "block_M = 64"
    return write_bundle(
        folder, op, [(variant, [("cuda:sm_90", entry)])], {"k.cubin": b"FAKE\nk 4\n"}
    )


def main(driver_path: str, torch_cuda_path: str, way: str) -> None:
    fake = ctypes.CDLL(driver_path)
    ctypes.CDLL(torch_cuda_path)
    runtime.set_driver_library(driver_path)
    with tempfile.TemporaryDirectory() as scratch:
        folder = bundle(Path(scratch) / "bundle")
        if way == "python":
            tileops.load_bundle(folder)
        else:
            library = ctypes.CDLL(str(Path(tileops.__file__).parent / "libtileops.so"))
            assert library.tileops_load_bundle(str(folder).encode()) == 1
        call = torch.ops.tileops.bundled_fault
        call(5, device="cuda:1")
        fake.fake_fail(b"fault", ILLEGAL_ADDRESS)
        for n in (7, 8):
            try:
                call(n, device="cuda:1")
                print(f"{n}: no error")
            except DriverError as error:
                print(f"{n}: {error}")
            fake.fake_fail(b"fault", 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
