"""Calls of CPU ops through torch: values, resolution, checks, errors, allocation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.kit import descriptions as d
from tests.runtime import cpu_ops
from tileops import runtime
from tileops.errors import (
    ArgumentError,
    ArgumentTypeError,
    CompileMissError,
    InternalError,
    RedefinedOpError,
)

Build = Callable[..., Path]


@pytest.mark.parametrize("as_bytes", [False, True])
def test_values_and_one_resolution_for_all_sizes(build_kernel: Build, as_bytes: bool) -> None:
    op = cpu_ops.add_op(build_kernel, as_bytes=as_bytes)
    for n in (1, 7, 1024, 1025, 1_000_003):
        a, b = torch.randn(n), torch.randn(n)
        assert torch.equal(op.call(a, b), a + b)
    assert op.kinds == ["variant", "entry"]
    assert op.requests[1] == {
        "kind": "entry", "variant": 0, "device_type": "cpu", "device_index": 0, "capability": 0, "consts": [],
        "fast": True, "index64": False, "sizes": {"N": 1}, "scalars": {}, "entries": 0,
    }  # fmt: skip


def test_two_libraries_in_memory_do_not_mix(build_kernel: Build) -> None:
    # Both go through descriptors of the same number, which the loader would take for one library.
    first = cpu_ops.add_op(build_kernel, as_bytes=True)
    a, b = torch.randn(5), torch.randn(5)
    assert torch.equal(first.call(a, b), a + b)
    other = cpu_ops.add_op(build_kernel, as_bytes=True)
    other.library = build_kernel(cpu_ops.ADD.replace("a[i] + b[i]", "a[i] - b[i]")).read_bytes()
    assert torch.equal(other.call(a, b), a - b)
    assert torch.equal(first.call(a, b), a + b)


def test_a_constant_size_gives_an_entry_for_each_value(build_kernel: Build) -> None:
    op = cpu_ops.add_op(build_kernel, kind="const")
    for n in (3, 5, 3, 5, 8):
        op.call(torch.ones(n), torch.ones(n))
    assert [r.get("consts") for r in op.requests] == [None, [3], [5], [8]]
    assert [r.get("entries") for r in op.requests] == [None, 0, 1, 2]


def test_misaligned_pointers_need_the_general_kernel(build_kernel: Build) -> None:
    op = cpu_ops.add_op(build_kernel)
    base = torch.randn(64)
    for a in (base[:32], base[1:33], base[4:36], base[3:35]):
        assert torch.equal(op.call(a, a), a + a)
    assert [r["fast"] for r in op.requests if r["kind"] == "entry"] == [True, False]


def test_zero_size_tensors_launch_nothing(build_kernel: Build, delta: Callable[[], Any]) -> None:
    op = cpu_ops.add_op(build_kernel)
    before = delta()
    out = op.call(torch.empty(0), torch.empty(0))
    assert out.shape == (0,)
    assert before["launches"] == 0


def matrix_op(build_kernel: Build) -> cpu_ops.CpuOp:
    """Takes A (M, K), B (K, 2 * N + 1), S (M, N) and returns A unchanged in shape; launches nothing."""
    host = d.host(["size:0", "size:1", "size:2"])
    return cpu_ops.CpuOp(
        d.op(d.fresh_name("matrix"), "(Tensor A, Tensor B, Tensor S) -> Tensor",
             [d.arg("A"), d.arg("B"), d.arg("S")], 1),
        lambda _: d.variant(
            tensors=[d.tensor(0, "A", [d.bind(0), d.bind(1)], "float16|bfloat16"),
                     d.tensor(1, "B", [d.bind(1), {"solve": [2, 2, 1]}]),
                     d.tensor(2, "S", [d.eq(0), d.eq(5)])],
            sizes=[d.size("M"), d.size("K"), d.size("N")],
            host=d.host(["size:0", "size:1", "size:2"], ["const", 2], ["mul", 2, 3], ["add", 4, 0]),
            outputs=[{"dtype": "float32", "shape": [0, 1]}],
        ),
        lambda request: cpu_ops.entry_for(
            request, host=host, outputs=[{"dtype": "float32", "shape": [0, 1]}],
            tensor_order=[{"arg": 0}, {"arg": 1}, {"arg": 2}, {"output": 0}]),
        build_kernel(cpu_ops.ADD),
    )  # fmt: skip


def good_matrices() -> dict[str, torch.Tensor]:
    m, k, n = 4, 6, 3
    return {
        "A": torch.zeros(m, k, dtype=torch.float16),
        "B": torch.zeros(k, 2 * n + 1),
        "S": torch.zeros(m, 2 * n + m),
    }


BAD_CALLS = [
    ("A", lambda t: t.float(), ArgumentTypeError, "argument 'A': expected dtype float16 or bfloat16, got float32"),
    ("A", lambda t: t[0], ArgumentError, "argument 'A': expected 2 dimensions (M, K), got 1 with shape (6,)"),
    ("A", lambda t: t.t(), ArgumentError,
     "argument 'A': expected a contiguous tensor with strides (4, 1), got strides (1, 6) for shape (6, 4); "
     "pass A.contiguous()"),
    ("A", lambda t: t[:, :4], ArgumentError,
     "argument 'A': expected a contiguous tensor with strides (4, 1), got strides (6, 1) for shape (4, 4); "
     "pass A.contiguous()"),
    ("B", lambda t: torch.zeros(5, 7), ArgumentError,
     "argument 'B': expected dimension 0 to be 6 (K, where K is 6 by A.shape[1]), got 5 in shape (5, 7)"),
    ("B", lambda t: torch.zeros(6, 8), ArgumentError,
     "argument 'B': expected dimension 1 to be N * 2 + 1 for a whole N, got 8 in shape (6, 8)"),
    ("S", lambda t: torch.zeros(4, 11), ArgumentError,
     "argument 'S': expected dimension 1 to be 10 ((N * 2) + M), got 11 in shape (4, 11)"),
    ("S", lambda t: torch.zeros(5, 10), ArgumentError,
     "argument 'S': expected dimension 0 to be 4 (M), got 5 in shape (5, 10)"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "kind", "text"), BAD_CALLS)
def test_errors_name_op_argument_expected_and_got(
    build_kernel: Build,
    name: str,
    change: Callable[[torch.Tensor], torch.Tensor],
    kind: type,
    text: str,
) -> None:
    op = matrix_op(build_kernel)
    tensors = good_matrices()
    assert op.call(**tensors).shape == (4, 6)
    tensors[name] = change(tensors[name])
    with pytest.raises(kind) as caught:
        op.call(**tensors)
    assert type(caught.value) is kind
    assert str(caught.value) == f"{op.name}: {text}"


def test_strides_of_extents_0_and_1_mean_nothing(build_kernel: Build) -> None:
    op = cpu_ops.add_op(build_kernel)
    one = torch.randn(1000).as_strided((1,), (999,))
    assert torch.equal(op.call(one, one), one + one)
    tensors = good_matrices()
    tensors["A"] = torch.zeros(1, 6, dtype=torch.float16).as_strided((1, 6), (777, 1))
    tensors["S"] = torch.zeros(1, 7)
    assert matrix_op(build_kernel).call(**tensors).shape == (1, 6)
    tensors = {"A": torch.zeros(0, 6, dtype=torch.float16).as_strided((0, 6), (1, 1)), "B": torch.zeros(6, 7),
               "S": torch.zeros(0, 6)}  # fmt: skip
    assert matrix_op(build_kernel).call(**tensors).shape == (0, 6)


# out[i * N + j] = a[i * s0 + j * s1]
GATHER = """
TILEOPS_CPU_ENTRY tileops_int32 gather(const TileopsValue* p, tileops_int64 first, tileops_int64 last, char*,
                                       TileopsStatus*) {
  const float* a = (const float*)p[0].p;
  float* out = (float*)p[1].p;
  const tileops_int64 n = p[2].i, s0 = p[3].i, s1 = p[4].i;
  for (tileops_int64 i = first; i < last; ++i)
    for (tileops_int64 j = 0; j < n; ++j) out[i * n + j] = a[i * s0 + j * s1];
  return TILEOPS_OK;
}
"""


def strided_op(build_kernel: Build) -> cpu_ops.CpuOp:
    inputs = [f"size:{i}" for i in range(4)]
    return cpu_ops.CpuOp(
        d.op(d.fresh_name("strided"), "(Tensor a) -> Tensor", [d.arg("a")], 1),
        lambda _: d.variant(
            tensors=[d.tensor(0, "a", [d.bind(0), d.bind(1)], strides=[d.bind(2), d.bind(3)])],
            sizes=[d.size(n) for n in ("M", "N", "s0", "s1")], host=d.host(inputs), align_sizes=[2],
            outputs=[{"dtype": "float32", "shape": [0, 1]}]),
        lambda request: cpu_ops.entry_for(
            request, host=d.host(inputs), outputs=[{"dtype": "float32", "shape": [0, 1]}],
            tensor_order=[{"arg": 0}, {"output": 0}],
            launches=[d.launch("kernel_lib.so", "gather", 0,
                               [d.p_tensor(0), d.p_tensor(1), d.p_slot(1), d.p_slot(2, "i64"), d.p_slot(3, "i64")])]),
        build_kernel(GATHER),
    )  # fmt: skip


def test_bound_strides_take_views(build_kernel: Build) -> None:
    op = strided_op(build_kernel)
    base = torch.randn(32, 48)
    views = [base, base.t(), base[:, ::2], base[3:9, 5:11], base.expand(32, 48), base[0].expand(5, 48),
             base[:1], base[:, :1], base[:1, :1], torch.randn(4, 2, 8).transpose(0, 1)[0]]  # fmt: skip
    for view in views:
        assert torch.equal(op.call(view), view), view.stride()


def test_alignment_of_sizes_decides_fast(build_kernel: Build) -> None:
    op = strided_op(build_kernel)
    op.call(torch.randn(4, 16))
    op.call(torch.randn(4, 17))
    op.call(
        torch.randn(1, 17)
    )  # the stride of an extent of 1 counts as that of a contiguous tensor: 17
    assert [r["fast"] for r in op.requests if r["kind"] == "entry"] == [True, False]


def test_index64_is_found_by_reach_and_by_outputs(build_kernel: Build) -> None:
    seen: list[bool] = []

    def refuse(_: int, request: dict[str, Any]) -> None:
        seen.append(request["index64"])
        raise ArgumentError("enough")

    def refusing(variant: d.Json) -> Any:
        name = d.fresh_name("index64")
        handle = runtime.create_op(d.op(name, "(Tensor a) -> Tensor", [d.arg("a")], 1))
        runtime.add_variant(handle, variant)
        runtime.set_resolver(handle, refuse)
        return getattr(torch.ops.tileops, name).default

    sizes = [d.size(n) for n in ("M", "N", "s0", "s1")]
    rule = d.tensor(0, "a", [d.bind(0), d.bind(1)], "uint8", strides=[d.bind(2), d.bind(3)])
    by_reach = refusing(d.variant(tensors=[rule], sizes=sizes))
    storage = torch.empty(2**31, dtype=torch.uint8)  # never touched, so it takes no memory
    limit = 2**31 - 2**24  # the last tile may reach past the end without wrapping
    for step in (limit - 2, limit - 1):
        with pytest.raises(ArgumentError, match="enough"):
            by_reach(storage.as_strided((2, 1), (step, 1)))
    # An output that large from a small input: known before anything is allocated.
    by_output = refusing(
        d.variant(tensors=[d.tensor(0, "a", [d.bind(0)])], sizes=[d.size("N")], host=d.host(["size:0"]),
                  outputs=[{"dtype": "float32", "shape": [0, 0]}])
    )  # fmt: skip
    for n in (46159, 46160):  # the square root of the limit lies between
        with pytest.raises(ArgumentError, match="enough"):
            by_output(torch.empty(n))
    assert seen == [False, True] * 2


def test_meta_tensors_and_mixed_devices(build_kernel: Build) -> None:
    op = cpu_ops.add_op(build_kernel)
    op.call(torch.ones(2), torch.ones(2))
    with pytest.raises((ArgumentError, NotImplementedError)):
        op.call(torch.ones(2, device="meta"), torch.ones(2, device="meta"))


def test_a_failing_resolver_raises_its_own_error_and_is_asked_again(build_kernel: Build) -> None:
    op = cpu_ops.add_op(build_kernel)

    class Odd(Exception):
        pass

    def fail(_: int, request: dict[str, Any]) -> None:
        raise Odd(request["kind"])

    runtime.set_resolver(op.handle, fail)
    a = torch.ones(3)
    for _ in range(2):
        with pytest.raises(Odd, match="variant") as caught:
            op.call(a, a)
        assert caught.traceback[-1].name == "fail"
    runtime.set_resolver(op.handle, op.resolve)
    assert torch.equal(op.call(a, a), a + a)


def test_a_resolver_that_adds_nothing_is_a_fault(build_kernel: Build) -> None:
    op = cpu_ops.add_op(build_kernel)
    runtime.set_resolver(op.handle, lambda handle, request: None)
    with pytest.raises(InternalError, match="added no kernel"):
        op.call(torch.ones(2), torch.ones(2))


def test_without_a_resolver(build_kernel: Build) -> None:
    op = cpu_ops.add_op(build_kernel)
    runtime.set_resolver(op.handle, None)
    with pytest.raises(CompileMissError, match="no resolver"):
        op.call(torch.ones(2), torch.ones(2))


def test_a_resolver_that_calls_its_own_op_is_told_so(build_kernel: Build) -> None:
    op = cpu_ops.add_op(build_kernel)
    runtime.set_resolver(op.handle, lambda handle, request: op.call(torch.ones(2), torch.ones(2)))
    with pytest.raises(InternalError, match="its resolver called the op"):
        op.call(torch.ones(2), torch.ones(2))


def test_sixteen_threads_resolve_once(build_kernel: Build, delta: Callable[[], Any]) -> None:
    op = cpu_ops.add_op(build_kernel)
    barrier = threading.Barrier(16)
    results: list[bool] = []

    def slow(handle: int, request: dict[str, Any]) -> None:
        threading.Event().wait(0.02)
        op.resolve(handle, request)

    def call() -> None:
        a = torch.randn(4096)
        barrier.wait()
        results.append(torch.equal(op.call(a, a), a + a))

    runtime.set_resolver(op.handle, slow)
    before = delta()
    threads = [threading.Thread(target=call) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 16
    assert op.kinds == ["variant", "entry"]
    assert (before["loads"], before["launches"], before["resolves"]) == (1, 16, 2)


def test_strict_mode_makes_a_miss_an_error_and_falls_back_to_the_general_kernel(
    build_kernel: Build,
) -> None:
    op = cpu_ops.add_op(build_kernel, kind="const")
    a = torch.randn(33)
    op.call(a[1:], a[1:])  # general kernel for 32
    runtime.set_strict(True)
    try:
        assert torch.equal(op.call(a[:32], a[:32]), a[:32] * 2)  # asks for fast, takes general
        with pytest.raises(
            CompileMissError, match=r"no kernel is loaded for cpu with N = 33, and strict mode"
        ):
            op.call(a, a)
    finally:
        runtime.set_strict(False)
    assert torch.equal(op.call(a, a), a + a)


def test_a_retired_op_says_so(build_kernel: Build) -> None:
    op = cpu_ops.add_op(build_kernel)
    a = torch.ones(2)
    op.call(a, a)
    runtime.retire_op(op.handle, "op f was redefined; use f_1")
    with pytest.raises(RedefinedOpError, match="use f_1"):
        op.call(a, a)


def test_unload_makes_the_next_call_resolve_again(
    build_kernel: Build, delta: Callable[[], Any]
) -> None:
    op = cpu_ops.add_op(build_kernel)
    a = torch.randn(10)
    op.call(a, a)
    runtime.unload(op.handle)
    assert torch.equal(op.call(a, a), a + a)
    assert op.kinds == ["variant", "entry"] * 2


def test_unload_while_other_threads_call(build_kernel: Build) -> None:
    op = cpu_ops.add_op(build_kernel)
    a = torch.randn(100)
    stop = threading.Event()
    failures: list[BaseException] = []

    def call() -> None:
        while not stop.is_set():
            try:
                if not torch.equal(op.call(a, a), a + a):
                    failures.append(AssertionError("wrong values"))
            except InternalError:
                pass  # unloaded between the resolver's two answers
            except BaseException as error:
                failures.append(error)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        runtime.unload(op.handle)
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []


FAILS = """
TILEOPS_CPU_ENTRY tileops_int32 fails(const TileopsValue* p, tileops_int64 first, tileops_int64 last, char*,
                                      TileopsStatus* status) {
  if (p[1].i < first || p[1].i >= last) return TILEOPS_OK;
  status->code = (tileops_int32)p[0].i;
  status->statement = 12;
  status->value = 99;
  status->bound = 50;
  return status->code;
}
"""


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (1, ArgumentError, r"fails: statement 12: the index 99 is outside 0\.\.49"),
        (2, ArgumentError, "fails: statement 12: an assertion of the program failed"),
        (3, ArgumentError, "fails: statement 12: integer division by zero"),
        (4, InternalError, "fails: statement 12: the kernel 'fails' reported code 4"),
    ],
)
@pytest.mark.parametrize("blocks", [1, 1000])
def test_a_failed_check_in_a_kernel(
    build_kernel: Build, code: int, kind: type, text: str, blocks: int
) -> None:
    op = cpu_ops.CpuOp(
        d.op(d.fresh_name("fails"), "(Tensor a, int code, int block) -> ()",
             [d.arg("a"), d.arg("code", "int", "scalar"), d.arg("block", "int", "scalar")]),
        lambda _: d.variant(tensors=[d.tensor(0, "a", [d.bind(0)])], sizes=[d.size("N")],
                            scalars=[d.scalar(1, "code", "int32"), d.scalar(2, "block", "int64")]),
        lambda request: cpu_ops.entry_for(
            request, host=d.host(["size:0"]), tensor_order=[{"arg": 0}],
            launches=[d.launch("kernel_lib.so", "fails", 0, [d.p_scalar(0, "i32"), d.p_scalar(1, "i64")])]),
        build_kernel(FAILS),
    )  # fmt: skip
    a = torch.empty(blocks)
    op.call(a, code, blocks)  # no block fails
    for block in (0, blocks - 1):
        with pytest.raises(kind, match=text):
            op.call(a, code, block)


def test_a_library_of_another_runtime_is_refused(build_kernel: Build) -> None:
    op = cpu_ops.add_op(build_kernel)
    op.library = build_kernel(cpu_ops.ADD, abi=False)
    for _ in range(2):
        with pytest.raises(InternalError, match="no symbol tileops_cpu_abi_1"):
            op.call(torch.ones(2), torch.ones(2))


SCRATCH = """
TILEOPS_CPU_ENTRY tileops_int32 scratchy(const TileopsValue* p, tileops_int64 first, tileops_int64 last, char* scratch,
                                         TileopsStatus*) {
  tileops_int64* out = (tileops_int64*)p[0].p;
  for (tileops_int64 i = first; i < last; ++i) {
    for (int j = 0; j < 100000; ++j) scratch[j] = (char)i;
    tileops_int64 sum = 0;
    for (int j = 0; j < 100000; ++j) sum += scratch[j];
    out[i] = (tileops_int64)scratch % 64 == 0 ? sum : -1;
  }
  return TILEOPS_OK;
}
"""


def test_blocks_run_once_on_scratch_of_their_own_thread(build_kernel: Build) -> None:
    op = cpu_ops.CpuOp(
        d.op(d.fresh_name("scratchy"), "(Tensor(a!) out) -> ()", [d.arg("out", mutated=True)]),
        lambda _: d.variant(tensors=[d.tensor(0, "out", [d.bind(0)], "int64")], sizes=[d.size("N")]),
        lambda request: cpu_ops.entry_for(
            request, host=d.host(["size:0"]), tensor_order=[{"arg": 0}],
            launches=[d.launch("kernel_lib.so", "scratchy", 0, [d.p_tensor(0)], scratch_bytes=100_000)]),
        build_kernel(SCRATCH),
    )  # fmt: skip
    out = torch.zeros(257, dtype=torch.int64)
    expected = 100_000 * torch.arange(257).to(torch.int8).to(torch.int64)
    for threads in (1, 2, 5):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            op.call(out.zero_())
        finally:
            torch.set_num_threads(before)
        assert torch.equal(out, expected)
