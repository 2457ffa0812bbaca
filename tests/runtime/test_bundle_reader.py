"""The reader of bundles: CUDA kernels against the recorded driver, levels of CPUs, the C interface."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tileops
from tests.kit import descriptions as d
from tests.runtime import cpu_ops
from tests.runtime.bundle_files import PROGRAM, write_bundle
from tileops import runtime
from tileops.errors import ArgumentError, CompileMissError, InternalError
from tileops.target import CPU_LEVELS, host_cpu_level

Build = Callable[..., Path]
ADDRESS = 0x10000


def cuda_bundle(folder: Path, capabilities: tuple[int, ...] = (90,)) -> Path:
    op = d.op(d.fresh_name("bundled"), "(Tensor t0) -> ()", [d.arg("t0")])
    variant = d.variant(tensors=[d.tensor(0, "t0", [d.bind(0)])], sizes=[d.size("N")])
    entries = [
        (
            f"cuda:sm_{capability}",
            d.entry(device="cuda", capability=capability, host=d.host(["size:0"]), tensor_order=[{"arg": 0}],
                    launches=[d.launch("launch0.cubin", "k", 0, [d.p_tensor(0), d.p_slot(0)])]),
        )
        for capability in capabilities
    ]  # fmt: skip
    return write_bundle(folder, op, [(variant, entries)], {"launch0.cubin": b"FAKE\nk 8 4\n"})


def load(folder: Path) -> int:
    (op,) = runtime.load_bundles([str(folder)])
    return op.handle


def run(handle: int, device_index: int = 0) -> None:
    runtime.run_raw(handle, 0, sizes=[3], tensors=[ADDRESS], device_index=device_index)


def test_a_cubin_reaches_the_driver_once_a_device(fake: Any, tmp_path: Path) -> None:
    handle = load(cuda_bundle(tmp_path / "b"))
    assert fake.log() == []  # nothing is loaded before a call
    for index in (0, 1, 0):
        run(handle, index)
    assert [line["device"] for line in fake.log("load")] == [0, 1]
    assert fake.log("launch")[0]["params"] == ["0000010000000000", "03000000"]


@pytest.mark.parametrize("content", [b"FAKE\nk 4 8\n", b"FAKE\nk 8 4", b"FAKE\nk 8 4\n\n"])
def test_a_damaged_cubin_never_reaches_the_driver(
    fake: Any, tmp_path: Path, content: bytes
) -> None:
    folder = cuda_bundle(tmp_path / "b")
    (folder / "programs" / PROGRAM / "launch0.cubin").write_bytes(content)
    handle = load(folder)
    with pytest.raises(ArgumentError, match=r"launch0\.cubin: expected .*got"):
        run(handle)
    assert fake.log("load") == []
    assert fake.log("launch") == []


def test_each_architecture_has_its_entry(fake: Any, tmp_path: Path) -> None:
    fake.library.fake_devices(3)  # device 2 has capability 80
    handle = load(cuda_bundle(tmp_path / "b", (80, 90)))
    run(handle, 0)
    run(handle, 2)
    assert [line["device"] for line in fake.log("launch")] == [0, 2]


def cpu_bundle(folder: Path, library: bytes, targets: tuple[str, ...], device: str = "cpu") -> Path:
    out = [{"dtype": "float32", "shape": [0]}]
    op = d.op(
        d.fresh_name("bundled"), "(Tensor a, Tensor b) -> Tensor", [d.arg("a"), d.arg("b")], 1
    )
    variant = d.variant(
        tensors=[d.tensor(0, "a", [d.bind(0)]), d.tensor(1, "b", [d.bind(0)])],
        sizes=[d.size("N")], host=d.host(["size:0"]), outputs=out,
    )  # fmt: skip
    entry = d.entry(
        device=device, fast=False, host=d.host(["size:0"], *cpu_ops.BLOCKS_OF_N), outputs=out,
        tensor_order=[{"arg": 0}, {"arg": 1}, {"output": 0}],
        launches=[d.launch("kernel_lib.so", "add", 4,
                           [d.p_tensor(0), d.p_tensor(1), d.p_tensor(2), d.p_slot(0, "i64")])],
    )  # fmt: skip
    if device == "cuda":
        entry["capability"] = 90
    entries = [(target, entry) for target in targets]
    return write_bundle(folder, op, [(variant, entries)], {"kernel_lib.so": library})


def test_the_general_kernel_serves_aligned_calls_too(build_kernel: Build, tmp_path: Path) -> None:
    library = build_kernel(cpu_ops.ADD).read_bytes()
    folder = cpu_bundle(tmp_path / "b", library, (f"cpu:{host_cpu_level()}",))
    (op,) = tileops.load_bundle(folder).values()
    a = torch.randn(33)
    assert torch.equal(op(a, a), a + a)
    assert torch.equal(op(a[1:], a[:-1]), a[1:] + a[:-1])
    # The library went through memory: the file that was verified may change afterwards.
    assert str(folder) not in Path("/proc/self/maps").read_text()


def test_code_for_a_better_processor_is_never_run(build_kernel: Build, tmp_path: Path) -> None:
    levels = [level for level in CPU_LEVELS if level.startswith("x86-64")]
    foreign = ["cpu:aarch64", "cpu:x86-64-v9", "cpu:x86-64-v1", "cpu:"]
    if host_cpu_level() in levels:
        foreign += [f"cpu:{level}" for level in levels[levels.index(host_cpu_level()) + 1 :]]
    library = build_kernel(cpu_ops.ADD).read_bytes()
    (op,) = tileops.load_bundle(cpu_bundle(tmp_path / "b", library, tuple(foreign))).values()
    with pytest.raises(
        CompileMissError, match=r"no kernel for cpu, aligned in the bundle .*aarch64"
    ):
        op(torch.ones(4), torch.ones(4))


def test_a_target_of_another_device_is_malformed(build_kernel: Build, tmp_path: Path) -> None:
    library = build_kernel(cpu_ops.ADD).read_bytes()
    folder = cpu_bundle(tmp_path / "b", library, ("cpu:x86-64-v2",), device="cuda")
    with pytest.raises(InternalError, match="names another device"):
        load(folder)


def test_the_c_interface(build_kernel: Build, tmp_path: Path) -> None:
    assert runtime.counters()["launches"] >= 0  # the library is in the process
    library = ctypes.CDLL(str(Path(tileops.__file__).parent / "libtileops.so"))
    library.tileops_last_error.restype = ctypes.c_char_p
    code = build_kernel(cpu_ops.ADD).read_bytes()
    folder = cpu_bundle(tmp_path / "b", code, (f"cpu:{host_cpu_level()}",))
    assert library.tileops_load_bundle(str(folder).encode()) == 1
    assert library.tileops_last_error() == b""
    name = next((folder / "ops").iterdir()).name
    assert torch.ops.tileops.__getattr__(name)(torch.ones(2), torch.ones(2)).tolist() == [2.0, 2.0]
    assert library.tileops_load_bundle(str(tmp_path / "none").encode()) == -1
    assert library.tileops_last_error().startswith(b"ArgumentError: ")
    assert b"none/bundle.json: No such file or directory" in library.tileops_last_error()
    assert library.tileops_load_bundle(None) == -1
