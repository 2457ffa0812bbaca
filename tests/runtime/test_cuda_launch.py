"""The CUDA launch path against a driver that records its calls."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit import descriptions as d
from tileops import runtime
from tileops.errors import ArgumentError, DriverError, InternalError, ToolchainError

A, B = 0x7F0000001000, 0x7F0000002000
INVALID_IMAGE, ILLEGAL_ADDRESS, OUT_OF_RESOURCES = 200, 700, 701  # CUresult values (cuda.h)


def arg_kind(dtype: str) -> str:
    return "bool" if dtype == "bool" else "float" if "float" in dtype else "int"


def make(
    params: list[d.Json], sizes: list[int], *, scalars: list[d.Json] | None = None, code: Any = (), grid: int = 0,
    tensors: int = 2, entry: d.Json | None = None, image: bytes | None = None, **fields: Any,
) -> tuple[int, int]:  # fmt: skip
    """An op with one size N and one CUDA entry whose parameters have the given byte sizes."""
    name = d.fresh_name("cuda")
    scalars = scalars or []
    args = [d.arg(f"t{i}") for i in range(tensors)]
    kind_of = [arg_kind(s["dtype"]) for s in scalars]
    args += [d.arg(s["name"], k, "scalar") for s, k in zip(scalars, kind_of, strict=True)]
    schema = ", ".join(
        [f"Tensor t{i}" for i in range(tensors)]
        + [f"{k} {s['name']}" for s, k in zip(scalars, kind_of, strict=True)]
    )
    handle = runtime.create_op(d.op(name, f"({schema}) -> ()", args))
    number = runtime.add_variant(
        handle,
        d.variant(
            tensors=[d.tensor(i, f"t{i}", [d.bind(0)]) for i in range(tensors)],
            sizes=[d.size("N")],
            scalars=scalars,
        ),
    )
    inputs = ["size:0", *(f"scalar:{i}" for i, k in enumerate(kind_of) if k != "float")]
    content = image if image is not None else f"FAKE\nk {' '.join(map(str, sizes))}\n".encode()
    runtime.add_entry(
        handle, number,
        d.entry(device="cuda", capability=90, host=d.host(inputs, *code),
                tensor_order=[{"arg": i} for i in range(tensors)],
                launches=[d.launch("launch0.cubin", "k", grid, params, **fields)], **(entry or {})),
        {"launch0.cubin": content},
    )  # fmt: skip
    return handle, number


def run(handle: int, number: int, n: int = 4, **fields: Any) -> None:
    base = {"sizes": [n], "tensors": [A, B], "int_scalars": [], "float_scalars": []}
    runtime.run_raw(handle, number, **(base | fields))


def params_of(fake: Any) -> list[bytes]:
    return [bytes.fromhex(text) for text in fake.log("launch")[-1]["params"]]


def test_pointers_sizes_and_launch_configuration(fake: Any) -> None:
    op = make([d.p_tensor(1), d.p_tensor(0), d.p_slot(0, "i32"), d.p_slot(0, "i64"), {"kind": "null"}], [8, 8, 4, 8, 8],
              threads=256, shared_bytes=1000)  # fmt: skip
    run(*op, n=77, stream=0x55)
    (line,) = fake.log("launch")
    assert params_of(fake) == [
        struct.pack("<Q", B), struct.pack("<Q", A), struct.pack("<i", 77), struct.pack("<q", 77), bytes(8),
    ]  # fmt: skip
    assert line["grid"] == [77, 1, 1]
    assert line["block"] == [256, 1, 1]
    assert line["shared"] == 1000
    assert line["stream"] == 0x55
    assert fake.log("attribute") == []  # 48 KiB and less need no opt-in


INT_CASES = [
    ("bool", "i1", 1, "<?", True), ("bool", "i1", 0, "<?", False),
    ("int8", "i8", -128, "<b", -128), ("int8", "i8", 127, "<b", 127),
    ("int16", "i16", -(2**15), "<h", -(2**15)), ("int32", "i32", 2**31 - 1, "<i", 2**31 - 1),
    ("int32", "i32", -(2**31), "<i", -(2**31)), ("int64", "i64", 2**31, "<q", 2**31),
    ("int64", "i64", -(2**63), "<q", -(2**63)), ("int64", "i64", -1, "<q", -1),
    ("uint8", "u8", 255, "<B", 255), ("uint16", "u16", 65535, "<H", 65535),
    ("uint32", "u32", 2**32 - 1, "<I", 2**32 - 1), ("uint64", "u64", 2**63 - 1, "<Q", 2**63 - 1),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "kind", "value", "code", "expected"), INT_CASES)
def test_integer_scalars(
    fake: Any, dtype: str, kind: str, value: int, code: str, expected: int
) -> None:
    op = make([d.p_scalar(0, kind)], [struct.calcsize(code)], scalars=[d.scalar(2, "s", dtype)])
    run(*op, int_scalars=[value], float_scalars=[0.0])
    assert params_of(fake) == [struct.pack(code, expected)]


FLOATS = [0.1, 0.125, 42.0, -0.0, 1e-7, 6.1e-5, 65504.0, 65519.9, 65520.0, 1e30, float("inf"), float("-inf"), float("nan"), 3e38, 1e-45, 5.9e-8, 2049.0, 2051.0]  # fmt: skip


@pytest.mark.parametrize("value", FLOATS)
@pytest.mark.parametrize(("dtype", "kind"), [("float16", "f16"), ("bfloat16", "bf16"), ("float32", "f32"), ("float64", "f64")])  # fmt: skip
def test_float_scalars_are_rounded_to_nearest_even(
    fake: Any, dtype: str, kind: str, value: float
) -> None:
    import torch

    torch_dtype = getattr(torch, dtype)
    width = torch_dtype.itemsize
    op = make([d.p_scalar(0, kind)], [width], scalars=[d.scalar(2, "s", dtype)])
    run(*op, int_scalars=[0], float_scalars=[value])
    # None of the values lies where rounding through float32 first, as torch does, would differ.
    expected = torch.tensor(value, dtype=torch.float64).to(torch_dtype)
    got = torch.frombuffer(bytearray(params_of(fake)[0]), dtype=torch_dtype)[0]
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[width]
    assert got.isnan() if value != value else got.view(bits) == expected.view(bits)


@pytest.mark.parametrize(
    ("kind", "value"), [("i32", 2**31), ("i8", 128), ("u8", -1), ("u32", 2**32), ("i1", 2)]
)
def test_a_size_that_its_parameter_cannot_hold_is_an_error(
    fake: Any, kind: str, value: int
) -> None:
    op = make([d.p_slot(0, kind)], [8], code=[["const", 1]], grid=1)
    with pytest.raises(ArgumentError, match=rf"the value {value} does not fit"):
        run(*op, n=value)
    assert fake.log("launch") == []


def test_workspaces_and_scratch_share_one_allocation_at_256_bytes(fake: Any) -> None:
    op = make(
        [{"kind": "workspace", "index": 1}, {"kind": "workspace", "index": 0}, {"kind": "global_scratch"},
         {"kind": "profile_scratch"}],
        [8, 8, 8, 8], code=[["const", 300], ["const", 10]],
        entry={"workspaces": [{"bytes": 1}, {"bytes": 2}]}, scratch_bytes=128,
    )  # fmt: skip
    run(*op, workspace=0x10000)
    second, first, scratch, profile = (struct.unpack("<Q", p)[0] for p in params_of(fake))
    assert (first, second, scratch, profile) == (0x10000, 0x10000 + 512, 0x10000 + 768, 0)


def test_more_than_48_kib_of_shared_memory_opts_in_once(fake: Any) -> None:
    op = make([d.p_tensor(0)], [8], shared_bytes=48 * 1024 + 1)
    run(*op)
    run(*op)
    assert fake.log("attribute") == [
        {"call": "attribute", "name": "k", "attribute": 8, "value": 48 * 1024 + 1}
    ]
    assert [line["shared"] for line in fake.log("launch")] == [48 * 1024 + 1] * 2


def test_shared_memory_that_the_device_lacks(fake: Any) -> None:
    op = make([d.p_tensor(0)], [8], shared_bytes=300_000)
    fake.fail("cuFuncSetAttribute", 1)
    with pytest.raises(
        DriverError,
        match=r"needs 300000 bytes of shared memory, cuda:0 allows 232448 a block: .*INVALID_VALUE",
    ):
        run(*op)
    assert fake.log("launch") == []


def test_load_failure_carries_the_drivers_words_and_its_log(fake: Any) -> None:
    op = make([d.p_tensor(0)], [8])
    fake.fail("cuModuleLoadDataEx", INVALID_IMAGE)
    with pytest.raises(
        DriverError,
        match=r"launch0\.cubin on cuda:0 \(ptxas: line 7\): cuModuleLoadDataEx: CUDA_ERROR_INVALID_IMAGE \(200\): the fake driver's own words for 200",
    ):
        run(*op)
    fake.library.fake_reset()
    run(*op)  # a failure is not remembered
    assert len(fake.log("launch")) == 1


def test_an_image_without_the_entry(fake: Any) -> None:
    op = make([d.p_tensor(0)], [8], image=b"FAKE\nother 8\n")
    with pytest.raises(DriverError, match=r"has no entry 'k'.*CUDA_ERROR_NOT_FOUND"):
        run(*op)


def test_launch_failure_carries_the_drivers_words(fake: Any, delta: Callable[[], Any]) -> None:
    op = make([d.p_tensor(0)], [8])
    before = delta()
    fake.fail("cuLaunchKernelEx", OUT_OF_RESOURCES)
    with pytest.raises(
        DriverError,
        match=r"k: launching 'k' with 4 blocks of 128 threads and 0 bytes.* on cuda:0: cuLaunchKernelEx: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES \(701\): the fake driver's own words",
    ):
        run(*op)
    assert before["launches"] == 0


def test_each_device_loads_the_image_once_and_the_current_device_stays(
    fake: Any, delta: Callable[[], Any]
) -> None:
    op = make([d.p_tensor(0)], [8])
    before = delta()
    fake.library.fake_push(0)
    for _ in range(3):
        for index in (1, 0):
            run(*op, device_index=index)
            assert fake.library.fake_current() == 0
    fake.library.fake_pop()
    assert [line["device"] for line in fake.log("load")] == [1, 0]
    assert [line["device"] for line in fake.log("launch")] == [1, 0] * 3
    assert before["loads"] == 2
    assert before["launches"] == 6


def test_a_thread_without_a_context_gets_one_for_the_call(fake: Any) -> None:
    op = make([d.p_tensor(0)], [8])
    assert fake.library.fake_current() == -1
    run(*op, device_index=1)
    assert fake.log("launch")[0]["device"] == 1
    assert fake.library.fake_current() == -1


def test_the_context_is_restored_after_a_failure(fake: Any) -> None:
    op = make([d.p_tensor(0)], [8])
    fake.library.fake_push(0)
    fake.fail("cuLaunchKernelEx", OUT_OF_RESOURCES)
    with pytest.raises(DriverError):
        run(*op, device_index=1)
    assert fake.library.fake_current() == 0
    fake.library.fake_pop()


def test_an_empty_grid_makes_no_driver_call(fake: Any, delta: Callable[[], Any]) -> None:
    op = make([d.p_tensor(0)], [8])
    before = delta()
    run(*op, n=0)
    assert fake.log() == []
    assert before["launches"] == 0


def test_only_the_empty_launches_are_skipped(fake: Any) -> None:
    name = d.fresh_name("two")
    handle = runtime.create_op(d.op(name, "(Tensor t0) -> ()", [d.arg("t0")]))
    number = runtime.add_variant(
        handle, d.variant(tensors=[d.tensor(0, "t0", [d.bind(0)])], sizes=[d.size("N")])
    )
    runtime.add_entry(
        handle, number,
        d.entry(device="cuda", capability=90, host=d.host(["size:0"], ["const", 3]), tensor_order=[{"arg": 0}],
                launches=[d.launch("i", "first", 0, []), d.launch("i", "second", 1, [])]),
        {"i": b"FAKE\nfirst\nsecond\n"},
    )  # fmt: skip
    runtime.run_raw(handle, number, sizes=[0], tensors=[A])
    assert [line["name"] for line in fake.log("launch")] == ["second"]
    runtime.run_raw(handle, number, sizes=[2], tensors=[A])
    assert [line["name"] for line in fake.log("launch")] == ["second", "first", "second"]
    assert len(fake.log("load")) == 1  # one image, two entries


def test_a_grid_of_many_rows_is_flattened_into_x(fake: Any) -> None:
    # 3 columns by 70,000 rows: y alone would break the limit of 65,535.
    op = make([d.p_tensor(0)], [8], code=[["const", 3], ["mul", 0, 1]], grid=2)
    run(*op, n=70_000)
    assert fake.log("launch")[0]["grid"] == [210_000, 1, 1]


def test_the_largest_grid_and_one_more(fake: Any) -> None:
    op = make([d.p_tensor(0)], [8])
    run(*op, n=2**31 - 1)
    assert fake.log("launch")[0]["grid"] == [2**31 - 1, 1, 1]
    with pytest.raises(
        ArgumentError, match=r"a grid of 2147483648 blocks is over the limit of 2147483647"
    ):
        run(*op, n=2**31)
    assert len(fake.log("launch")) == 1


def test_sixteen_threads_make_one_load(fake: Any, delta: Callable[[], Any]) -> None:
    op = make([d.p_tensor(0)], [8])
    fake.library.fake_load_delay(20_000)
    barrier = threading.Barrier(16)
    errors: list[BaseException] = []

    def call() -> None:
        try:
            barrier.wait()
            run(*op)
        except BaseException as error:
            errors.append(error)

    before = delta()
    threads = [threading.Thread(target=call) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(fake.log("load")) == 1
    assert len(fake.log("launch")) == 16
    assert (before["loads"], before["launches"]) == (1, 16)


def test_unload_frees_the_module_and_a_later_call_needs_a_new_one(fake: Any) -> None:
    handle, number = make([d.p_tensor(0)], [8])
    run(handle, number)
    run(handle, number, device_index=1)
    runtime.unload(handle)
    assert [line["device"] for line in fake.log("unload")] == [0, 1]
    with pytest.raises(InternalError, match="there is no variant"):
        run(handle, number)


def test_host_facts_are_those_of_the_device(fake: Any) -> None:
    name = d.fresh_name("facts")
    handle = runtime.create_op(d.op(name, "(Tensor t0) -> ()", [d.arg("t0")]))
    number = runtime.add_variant(
        handle, d.variant(tensors=[d.tensor(0, "t0", [d.bind(0)])], sizes=[d.size("N")])
    )
    runtime.add_entry(
        handle, number,
        d.entry(device="cuda", capability=90, host=d.host(["size:0", "host:sm_count"], ["const", 2], ["mul", 1, 2]),
                tensor_order=[{"arg": 0}], launches=[d.launch("i", "k", 3, [])]),
        {"i": b"FAKE\nk\n"},
    )  # fmt: skip
    for index in (0, 1):
        runtime.run_raw(handle, number, sizes=[1], tensors=[A], device_index=index)
    assert [line["grid"][0] for line in fake.log("launch")] == [264, 262]


def test_device_queries(fake: Any) -> None:
    assert runtime.device_count() == 2
    assert runtime.device_properties(1)["name"] == "Fake GPU 1"
    assert str(runtime.device_target(0)) == "cuda:sm_90a"
    with pytest.raises(DriverError, match="no CUDA device 2"):
        runtime.device_properties(2)
    fake.library.fake_devices(3)
    assert str(runtime.device_target(2)) == "cuda:sm_80"


def test_no_device_and_no_driver(fake: Any, tmp_path: Any) -> None:
    fake.fail("cuInit", 100)
    runtime.set_driver_library(str(tmp_path / "libcuda.so.1"))
    assert runtime.device_count() == 0
    with pytest.raises(
        ToolchainError, match=r"cannot open the CUDA driver .*install the NVIDIA driver"
    ):
        runtime.device_properties(0)
    op = make([d.p_tensor(0)], [8])
    with pytest.raises(ToolchainError, match="install the NVIDIA driver"):
        run(*op)


def test_cuinit_failure_is_said_in_the_drivers_words(fake: Any, fake_driver_path: Any) -> None:
    runtime.set_driver_library(str(fake_driver_path))
    fake.fail("cuInit", 100)
    assert runtime.device_count() == 0
    with pytest.raises(
        DriverError, match=r"cuInit: CUDA_ERROR_NO_DEVICE \(100\): the fake driver's own words"
    ):
        runtime.device_properties(0)


def test_a_cuda_entry_serves_one_capability(fake: Any) -> None:
    fake.library.fake_devices(3)  # device 2 has capability 80
    op = make([d.p_tensor(0)], [8])
    with pytest.raises(InternalError, match="no entry for these sizes"):
        run(*op, device_index=2)


def test_an_error_that_a_kernel_left_lists_the_launches_before_it(fake: Any) -> None:
    op = make([d.p_tensor(0)], [8])
    run(*op, n=77, stream=0x55)
    run(*op, n=78, stream=0x66)
    fake.fail("cuLaunchKernelEx", ILLEGAL_ADDRESS)
    with pytest.raises(DriverError, match="CUDA_ERROR_ILLEGAL_ADDRESS") as caught:
        run(*op, n=79, stream=0x55)
    lines = str(caught.value).splitlines()
    start = next(n for n, line in enumerate(lines) if "newest first" in line)
    assert lines[start + 1].endswith("with sizes 78 (on another stream)")
    assert lines[start + 2].endswith("with sizes 77")
    assert not any("sizes 79" in line for line in lines)
