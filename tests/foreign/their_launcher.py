"""Triton's own launcher on the recorded driver, in a process of its own: ``python -m`` with the driver.

Each call is made by the kernel's author and by the program; the machine code, the arguments that
reach the driver, grids, blocks and maps must be the same.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget

from tests.foreign import converted
from tests.foreign.cases import CASES, Case
from tests.foreign.launched import Launched
from tileops import runtime
from tileops.compiler.elf import kernel_notes, sections

SHOWN = ("grid", "block", "params")


def kernel_code(cubin: bytes, name: str) -> bytes:
    """The machine code of a kernel."""
    return dict(sections(cubin))[f".text.{name}"]


class Recorded:
    """The driver, with the lines that it wrote since they were last taken."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        self.library.fake_log.restype = ctypes.c_char_p
        self.code: dict[str, set[bytes]] = {}  # by kernel: what Triton loaded
        runtime.set_driver_library(path)

    def taken(self) -> list[dict[str, Any]]:
        """Launches and maps, and forget them."""
        lines = [json.loads(line) for line in self.library.fake_log().decode().splitlines()]
        self.library.fake_reset()
        shown = [{k: line[k] for k in SHOWN} for line in lines if line["call"] == "launch"]
        return shown + [line for line in lines if line["call"] == "encode"]

    def load(self, name: str, cubin: bytes, *_: object) -> tuple[int, int, int, int, int]:
        """As Triton's ``load_binary``: the recorded form of a cubin."""
        notes = kernel_notes(cubin, name)
        assert notes is not None
        self.code.setdefault(name, set()).add(kernel_code(cubin, name))
        image = f"FAKE\n{name} {' '.join(map(str, notes.parameters))}\n".encode()
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        assert self.library.cuModuleLoadDataEx(ctypes.byref(module), image, 0, None, None) == 0
        assert self.library.cuModuleGetFunction(ctypes.byref(function), module, name.encode()) == 0
        return module.value or 0, function.value or 0, 0, 0, 1024


def activate(recorded: Recorded) -> None:
    """Let Triton launch on the recorded driver."""
    from triton.backends.nvidia import driver

    utils = driver.CudaUtils()
    utils.load_binary = recorded.load
    utils.get_device_properties = lambda device: {"max_shared_mem": 232448}
    active = SimpleNamespace(
        utils=utils,
        launcher_cls=driver.CudaLauncher,
        get_current_device=lambda: 0,
        get_current_stream=lambda device: 0,
        get_current_target=lambda: GPUTarget("cuda", 90, 32),
        allocate_default_profile_scratch=lambda size, align, stream: None,
    )
    triton.runtime.driver.set_active(active)


def compare(recorded: Recorded, case: Case, inputs: tuple[Any, ...], made: dict[Any, Any]) -> None:
    """One call by both; AssertionError where they differ."""
    recorded.taken()
    found = case.theirs(*inputs)
    found = found if isinstance(found, tuple) else () if found is None else (found,)
    theirs = recorded.taken()
    assert theirs, "their launch did not reach the driver"
    op, wanted = Launched.of_call(case.program, inputs, **case.keywords)
    entry = op.compiled(wanted)
    if entry.hash not in made:
        made[entry.hash] = op.add(wanted)
        for launch in entry.manifest["record"]["launches"]:
            code = kernel_code(entry.files[launch["image"]], launch["entry"])
            assert code in recorded.code[launch["entry"]], f"{case.name}: other machine code"
    recorded.taken()
    tensors = [x.data_ptr() for x in (*inputs, *found) if isinstance(x, torch.Tensor)]
    numbers = [x for x in inputs if not isinstance(x, torch.Tensor)]
    op.run(
        wanted.sizes, tensors,
        int_scalars=[int(x) for x in numbers], float_scalars=[float(x) for x in numbers],
    )  # fmt: skip
    ours = recorded.taken()
    assert ours == theirs, (
        f"{case.name} {[getattr(x, 'shape', x) for x in inputs]}\n{ours}\n{theirs}"
    )


def main(path: str, count: str) -> None:
    """Compare a call or two of each case, and ``count`` calls of random shapes of three of them."""
    recorded = Recorded(path)
    os.environ["TRITON_LIBCUDA_PATH"] = str(Path(path).parent)
    activate(recorded)
    made: dict[str, Any] = {}
    # The two kernels of a split product share a workspace, which is at another address.
    cases = [c for c in CASES if c.launch and c.program is not converted.split_product]
    for case, shape in itertools.product(cases, ((48, 64), (33, 80), (1, 64))):
        compare(recorded, case, case.inputs(*shape, "cpu"), made)
    cheap = [case for case in cases if case.name in ("scan", "attention", "gluon_copy")]
    for case in itertools.islice(itertools.cycle(cheap), int(count)):
        sizes = (random.choice([1, 16, 48, random.randrange(2, 300)]) for _ in range(2))
        compare(recorded, case, case.inputs(*sizes, "cpu"), made)
    sys.stdout.write(f"{count} calls, {len(made)} forms\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
