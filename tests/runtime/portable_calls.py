"""Ops of bundles on GPUs that the bundles do not name, on a recorded driver; run as a program of its own.

Arguments: the recorded driver, a stand-in for libtorch_cuda.so, and how bundles are loaded: by Python or by C. Prints,
for each case, what each device ran or the error of its call.
"""

from __future__ import annotations

import ctypes
import json
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

import tileops
from tests.kit import descriptions as d
from tests.runtime.bundle_files import write_bundle
from tileops import runtime

# By index: capability, and bytes of shared memory that a block may use.
DEVICES = ((90, 232448), (86, 101376), (89, 101376), (100, 232448), (87, 166912), (80, 166912))
TARGETS = {80: "sm_80", 86: "sm_86", 87: "sm_87", 90: "sm_90a", 100: "sm_100a"}


def bundle(
    folder: Path, name: str, cubins: tuple[int, ...], ptx: tuple[int, ...], shared: int
) -> Path:
    op = d.op(name, "(SymInt n, *, Device? device=None) -> ()",
              [d.arg("n", "int", "scalar"), d.arg("device", "device?", "device")])  # fmt: skip
    variant = d.variant(scalars=[d.scalar(0, "n", "int32")], host=d.host(["scalar:0"]))
    entries, files = [], {}
    for capability in cubins:
        stem, target = f"k{capability}", TARGETS[capability]
        launch = d.launch(f"{stem}.cubin", stem, 0, [d.p_scalar(0, "i32")], shared_bytes=shared)
        entry = d.entry(device="cuda", capability=capability, host=d.host(["scalar:0"]), consts=[],
                        fast=True, launches=[launch])  # fmt: skip
        entries.append((f"cuda:{target}", entry))
        files[f"{stem}.cubin"] = f"FAKE {target}\n{stem} 4\n".encode()
        if capability in ptx:
            text = f"//\n// As Triton writes it\n//\n\n.version 8.8\n.target {target}\n.address_size 64\n//FAKE {stem} 4\n"
            files[f"{stem}.ptx"] = text.encode()
    return write_bundle(folder, op, [(variant, entries)], files)


class Machine:
    """The recorded driver, and what a call of an op did to it."""

    def __init__(self, driver_path: str) -> None:
        self.fake = ctypes.CDLL(driver_path)
        self.fake.fake_log.restype = ctypes.c_char_p
        self.fake.fake_devices(len(DEVICES))
        for number, (capability, shared) in enumerate(DEVICES):
            self.fake.fake_device(number, capability, shared)

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.fake.fake_log().decode().splitlines()]

    def call(self, name: str, device: int) -> str:
        before = len(self.log())
        try:
            getattr(torch.ops.tileops, name)(5, device=f"cuda:{device}")
        except tileops.TileopsError as error:
            return f"{type(error).__name__}: {error}"
        made = self.log()[before:]
        ran = [line["name"] for line in made if line["call"] == "launch"]
        # The question whether the driver takes such PTX is a text of three lines.
        loads = [
            "ptx" if "ptx" in line else "cubin"
            for line in made
            if line["call"] == "load" and line.get("bytes", 99) > 60
        ]
        return " ".join([*loads, *ran])


# Name: the architectures that have cubins, those that have PTX, and bytes of shared memory.
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], int]] = {
    "cubin_only": ((80,), (), 0),
    "with_ptx": ((80,), (80,), 0),
    "own_first": ((80, 90), (80,), 0),
    "best": ((80, 86, 90), (80, 86), 0),
    "tegra": ((80, 87), (80, 87), 0),
    "large": ((80,), (80,), 150_000),
}  # fmt: skip


def main(driver_path: str, torch_cuda_path: str, way: str) -> None:
    ctypes.CDLL(torch_cuda_path)
    machine = Machine(driver_path)
    runtime.set_driver_library(driver_path)
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logging.getLogger("tileops").addHandler(Keep())
    logging.getLogger("tileops").setLevel(logging.INFO)
    library = ctypes.CDLL(str(Path(tileops.__file__).parent / "libtileops.so"))

    def load(path: Path) -> None:
        if way == "python":
            tileops.load_bundle(path)
        else:
            assert library.tileops_load_bundle(str(path).encode()) == 1

    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as scratch:
        paths = {
            name: bundle(Path(scratch) / name, f"portable_{name}", *case)
            for name, case in CASES.items()
        }
        for name, path in paths.items():
            load(path)
            ran = [machine.call(f"portable_{name}", device) for device in range(len(DEVICES))]
            found[name] = [text.replace(scratch, "") for text in ran]
        found["jits"] = runtime.counters()["jits"]
        found["log"] = [line.replace(scratch, "") for line in lines]
        found["again"] = machine.call("portable_with_ptx", 0)
        load(paths["with_ptx"])
        found["loaded again"] = machine.call("portable_with_ptx", 0)
        # A driver that is older than the PTX, and a capture.
        other = bundle(Path(scratch) / "older", "portable_older", (80,), (80,), 0)
        load(other)
        machine.fake.fake_capture(1)
        found["captured"] = machine.call("portable_older", 0)
        machine.fake.fake_capture(0)
        machine.fake.fake_newest_ptx(85)
        found["older"] = machine.call("portable_older", 0).replace(scratch, "")
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
