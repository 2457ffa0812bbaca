"""Kernels in CUDA C++, PTX and cubins: arguments by the widths that machine code declares."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path
from typing import Any

import pytest

import tileops
import tileops.language as T
from tests.foreign.launched import Launched
from tileops import option
from tileops.errors import (
    ArgumentError,
    ArgumentTypeError,
    NoBuilderError,
    ProgramTypeError,
    ProgramValueError,
    ToolchainError,
)
from tileops.foreign import nvrtc_library

D = T.DTypeVar("D", T.float16, T.bfloat16, T.float32)
A, B, C = 0x7F0000001000, 0x7F0000002000, 0x7F0000003000
_numbers = itertools.count()

AXPY = """.version 8.0
.target sm_80
.address_size 64
.visible .entry axpy(.param .u64 px, .param .u64 py, .param .f32 pa, .param .u32 pn, .param .u64 pl)
.reqntid 256, 1, 1
{
 .reg .pred %p; .reg .f32 %f<4>; .reg .b32 %r<6>; .reg .b64 %d<6>;
 ld.param.u64 %d1, [px]; ld.param.u64 %d2, [py]; ld.param.f32 %f1, [pa]; ld.param.u32 %r1, [pn];
 mov.u32 %r2, %ctaid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %r4, %r2, 256, %r3;
 setp.ge.s32 %p, %r4, %r1; @%p ret;
 mul.wide.s32 %d3, %r4, 4; add.s64 %d1, %d1, %d3; add.s64 %d2, %d2, %d3;
 ld.global.f32 %f2, [%d1]; ld.global.f32 %f3, [%d2];
 fma.rn.f32 %f3, %f2, %f1, %f3; st.global.f32 [%d2], %f3; ret;
}
"""
SCALE = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include "my/vec.h"
template <typename T, int VEC, bool BIAS>
__global__ void __launch_bounds__(256) scale(
    const T* x, const T* bias, T* y, int n, float a, double b, long long m, bool flag, short s) {
  extern __shared__ float memory[];
  __shared__ float more[32];
  int i = (blockIdx.x * blockDim.x + threadIdx.x) * VEC;
  for (int k = 0; k < VEC; ++k)
    if (i + k < n) y[i + k] = T(twice(float(x[i + k])) * a + (BIAS ? float(bias[i + k]) : 0.f));
}
"""
VEC = "__device__ inline float twice(float x) { return x + x; }\n"


def has_nvrtc() -> bool:
    try:
        nvrtc_library.library()
    except ToolchainError:
        return False
    return True


needs_nvrtc = pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")


def axpy_program(launch: Any, mutates: tuple[str, ...] = ("Y",)) -> Any:
    @tileops.jit(name=f"foreign_device_{next(_numbers)}", mutates=mutates)
    def program(X, Y, a: T.float32, h: T.float16 = 1.0):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        Y: T.Tensor((N,), T.float32)
        with T.Extern():
            launch(X, Y, a, N, h)

    return program


def axpy(source: Any, **changes: Any) -> Any:
    settings = {"block": 256} | changes

    @T.macro
    def launch(X, Y, a, N, h):
        source["axpy"].launch(grid=T.ceildiv(N, 256), **settings)(X, Y, a, N, N)

    return launch


def test_ptx(fake: Any) -> None:
    op = Launched(axpy_program(axpy(tileops.ptx(AXPY))))
    entry = op.compiled(op.wanted({"N": 1000}))
    assert entry.manifest["record"]["launches"][0]["params"] == [
        {"kind": "tensor", "index": 0}, {"kind": "tensor", "index": 1},
        {"kind": "scalar", "index": 0, "type": "f32"},
        {"kind": "slot", "slot": 0, "type": "i32"}, {"kind": "slot", "slot": 0, "type": "i64"},
    ]  # fmt: skip
    assert set(entry.manifest["toolchain"]) == {"ptxas"}
    op.add(op.wanted({"N": 1000}))
    op.run({"N": 1000}, [A, B], float_scalars=[0.5, 0.0])
    line = fake.log("launch")[-1]
    assert line["params"] == [
        struct.pack("<Q", A).hex(), struct.pack("<Q", B).hex(), struct.pack("<f", 0.5).hex(),
        struct.pack("<i", 1000).hex(), struct.pack("<q", 1000).hex(),
    ]  # fmt: skip
    assert (line["grid"], line["block"]) == ([4, 1, 1], [256, 1, 1])


def test_cubins_by_architecture() -> None:
    first = Launched(axpy_program(axpy(tileops.ptx(AXPY))))
    code = first.compiled(first.wanted({"N": 4})).files["launch0.cubin"]
    op = Launched(axpy_program(axpy(tileops.cubin({"sm_90": code}))))
    entry = op.compiled(op.wanted({"N": 4}))
    assert entry.files["launch0.cubin"] == code
    assert entry.manifest["toolchain"] == {}


@T.macro
def wrong_width(X, Y, a, N, h):
    tileops.ptx(AXPY)["axpy"].launch(grid=1, block=256)(X, N, a, N, N)


@T.macro
def half_for_a_float(X, Y, a, N, h):
    tileops.ptx(AXPY)["axpy"].launch(grid=1, block=256)(X, Y, h, N, N)


@T.macro
def newer_ptx(X, Y, a, N, h):
    tileops.ptx(AXPY.replace("8.0", "99.9"))["axpy"].launch(grid=1, block=256)(X, Y, a, N, N)


@pytest.mark.parametrize(
    ("launch", "error", "message"),
    [
        (wrong_width, None, r""),
        (half_for_a_float, ToolchainError, r"argument 2 of axpy does not fit(.|\n)*expected: 4 bytes\n *found: +a number \(f16\)"),
        (newer_ptx, ToolchainError, r"ptxas could not assemble the kernel axpy(.|\n)*[Vv]ersion"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)  # fmt: skip
def test_what_does_not_fit(launch: Any, error: type[Exception] | None, message: str) -> None:
    op = Launched(axpy_program(launch))
    if error is None:  # PTX does not tell a 64-bit number from a pointer
        op.compiled(op.wanted({"N": 4}))
        return
    with pytest.raises(error, match=message):
        op.compiled(op.wanted({"N": 4}))


def test_misused_sources() -> None:
    with pytest.raises(ArgumentTypeError, match=r"takes the text of PTX, which has an .entry"):
        tileops.ptx("nothing")
    with pytest.raises(ArgumentTypeError, match=r"images by architecture"):
        tileops.cubin({})
    with pytest.raises(ArgumentTypeError, match=r"'sm_90' is not an architecture with a cubin"):
        tileops.cubin({"sm_90": b"text"})
    with pytest.raises(ArgumentTypeError, match=r"a source text or path="):
        tileops.cuda()
    with pytest.raises(ArgumentError, match=r"nowhere.cu cannot be read"):
        tileops.cuda(path="nowhere.cu")
    with pytest.raises(ArgumentError, match=r"the option '-arch=sm_80' is decided by the build"):
        tileops.cuda("", options=["-arch=sm_80"])
    with pytest.raises(ArgumentError, match=r"include folder .* does not exist"):
        tileops.cuda("", include=["nowhere"])
    with pytest.raises(
        ProgramValueError, match=r"includes a header by the macro NAME(.|\n)*headers="
    ):
        tileops.cuda("#define NAME <a.h>\n#include NAME\n")
    with pytest.raises(NoBuilderError, match=r"the kernel axpy was used outside a program"):
        tileops.ptx(AXPY)["axpy"].launch(grid=1, block=256)()


def test_blocks_are_known() -> None:
    kernel = tileops.ptx(AXPY)["axpy"]
    for block in ((1024, 2), 0, (1, 1, 1, 1), "x"):
        with pytest.raises(
            ProgramValueError, match=r"the block of axpy\n *expected: 1 to 3 numbers"
        ):
            kernel.launch(grid=1, block=block)
    with pytest.raises(ProgramValueError, match=r"the dynamic shared memory of axpy"):
        kernel.launch(grid=1, block=1, shared=-1)


def test_names_in_cpp() -> None:
    found = [T.cpp(v) for v in (T.float16, T.bfloat16, "float32", T.int64, T.bool, True, False, 8)]
    assert found == ["__half", "__nv_bfloat16", "float", "long long", "bool", "true", "false", "8"]
    with pytest.raises(ProgramTypeError):
        T.cpp("nothing")


def test_headers_count_by_content(tmp_path: Path) -> None:
    folder = tmp_path / "include" / "my"
    folder.mkdir(parents=True)
    (folder / "vec.h").write_text('#include "inner.h"\n' + VEC)
    (folder / "inner.h").write_text("// 1\n")

    def parts() -> dict[str, str]:
        return dict(tileops.cuda(SCALE, include=[tmp_path / "include"]).source.parts())

    first = parts()
    assert {"source", "options", "header my/vec.h", "header inner.h"} <= set(first)
    (folder / "inner.h").write_text("// another text\n")
    second = parts()
    assert {name for name in first if first[name] != second[name]} == {"header inner.h"}
    assert not [name for name in first if str(tmp_path) in name]


def scaled(source: Any) -> Any:
    @tileops.jit(name=f"foreign_scaled_{next(_numbers)}")
    def program(X, a: T.float32, bias=None, vec: int = 4):
        N = T.dynamic("N")
        X: T.Tensor((N,), D)
        bias: T.Tensor((N,), D)
        Y = T.empty((N,), D)
        with T.Extern():
            kernel = source[f"scale<{T.cpp(D)}, {vec}, {T.cpp(bias is not None)}>"]
            kernel.launch(grid=T.ceildiv(N, 256 * vec), block=256, shared=64)(
                X, bias, Y, N, a, 0.25, N * 2, True, 3
            )
        return Y

    return program


@needs_nvrtc
def test_templates_by_name(fake: Any) -> None:
    op = Launched(scaled(tileops.cuda(SCALE, headers={"my/vec.h": VEC})), {"D": "bfloat16"})
    sizes = {"N": 5000}
    entry = op.compiled(op.wanted(sizes))
    launch = entry.manifest["record"]["launches"][0]
    assert [p.get("type", p["kind"]) for p in launch["params"]] == [
        "tensor", "tensor", "tensor", "i32", "f32", "f64", "i64", "i1", "i16",
    ]  # fmt: skip
    assert set(entry.manifest["toolchain"]) == {"nvrtc"}
    assert launch["shared_bytes"] == 64
    assert "13__nv_bfloat16" in launch["entry"] or "__nv_bfloat16" in launch["entry"]


@needs_nvrtc
def test_an_error_has_the_file_and_the_line(tmp_path: Path) -> None:
    (tmp_path / "scale.cu").write_text(SCALE.replace("twice(", "thrice("))
    source = tileops.cuda(path=tmp_path / "scale.cu", headers={"my/vec.h": VEC})
    op = Launched(scaled(source), {"D": "float32"})
    with pytest.raises(ToolchainError, match=r"scale.cu\(12\): error(.|\n)*thrice"):
        op.compiled(op.wanted({"N": 4}))
    missing = Launched(scaled(tileops.cuda(SCALE)), {"D": "float32"})
    with pytest.raises(ToolchainError, match=r"kernel.cu\(4\)(.|\n)*my/vec.h"):
        missing.compiled(missing.wanted({"N": 4}))


@needs_nvrtc
def test_the_same_bytes_from_another_folder(tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        (tmp_path / name / "my").mkdir(parents=True)
        (tmp_path / name / "my" / "vec.h").write_text(VEC)
        op = Launched(scaled(tileops.cuda(SCALE, include=[tmp_path / name])), {"D": "float32"})
        with option.cache_dir(tmp_path / f"cache-{name}"):
            found.append(op.compiled(op.wanted({"N": 4})).files["launch0.cubin"])
    assert found[0] == found[1]


@needs_nvrtc
def test_each_nvrtc_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        folder / name
        for folder in nvrtc_library._folders("lib")
        for name in nvrtc_library._NAMES
        if (folder / name).is_file()
    ]
    versions = set()
    for path in found:
        monkeypatch.setenv("TILEOPS_NVRTC", str(path))
        source = tileops.cuda(SCALE, headers={"my/vec.h": VEC})
        op = Launched(scaled(source), {"D": "float16"})
        versions.add(op.compiled(op.wanted({"N": 4})).manifest["toolchain"]["nvrtc"].split(".")[0])
    assert versions == {path.name.rpartition(".")[2] for path in found} <= {"12", "13"}


# Its headers lead through `..` to files that others include by their own names.
TOTAL = """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
LIBRARY
namespace cg = cooperative_groups;
template <typename T, unsigned BLOCK>
__global__ void total(const T* in, float* partial, float* out, size_t n) {
  cg::grid_group grid = cg::this_grid();
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  float sum = 0.f;
  for (size_t i = grid.thread_rank(); i < n; i += grid.size()) sum += float(in[i]);
  sum = cg::reduce(warp, sum, cg::plus<float>());
  if (warp.thread_rank() == 0) atomicAdd(partial + blockIdx.x, sum);
  grid.sync();
  if (grid.thread_rank() == 0)
    for (unsigned b = 0; b < gridDim.x; ++b) *out += partial[b];
}
"""
LIBRARY = """#include <cstdint>
#include <limits>
#include <type_traits>
static_assert(std::is_same_v<std::uint32_t, unsigned> && std::numeric_limits<int>::max() > 0);
"""


def has_header(name: str) -> bool:
    return any((folder / name).is_file() for folder in nvrtc_library.header_folders())


@needs_nvrtc
@pytest.mark.parametrize("library", ["", LIBRARY], ids=["alone", "with the C++ library"])
def test_a_cooperative_reduction(fake: Any, library: str) -> None:
    if not has_header("cuda/std/limits" if library else "cooperative_groups/reduce.h"):
        pytest.skip("these headers of CUDA are not installed")
    source = tileops.cuda(TOTAL.replace("LIBRARY", library))

    @tileops.jit(name=f"foreign_total_{next(_numbers)}")
    def program(X, blocks: int = 132):
        N = T.dynamic("N")
        X: T.Tensor((N,), T.float32)
        partial, out = T.alloc_global((blocks,), T.float32), T.empty((1,), T.float32)
        with T.Kernel(1):
            T.fill(partial, 0.0)
            T.fill(out, 0.0)
        with T.Extern():
            kernel = source["total<float, 256>"]
            kernel.launch(grid=blocks, block=256, cooperative=True)(X, partial, out, N)
        return out

    op = Launched(program)
    op.add(op.wanted({"N": 1000}))
    op.run({"N": 1000}, [A, B], workspace=C)
    line = fake.log("launch")[-1]
    assert line["attributes"] == {"2": 1}  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    assert line["params"][3] == struct.pack("<Q", 1000).hex()


def test_the_library_is_of_the_headers_cuda(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TILEOPS_NVRTC", raising=False)
    monkeypatch.setattr(nvrtc_library, "_places", lambda package: [])
    folders = []
    for major, headers in ((12, False), (13, True)):
        root = tmp_path / f"cuda{major}"
        (root / "lib").mkdir(parents=True)
        (root / "lib" / f"libnvrtc.so.{major}").write_text("")
        if headers:
            (root / "include").mkdir()
            (root / "include" / "cuda.h").write_text(f"#define CUDA_VERSION {major}010\n")
            (root / "include" / "cuda_fp16.h").write_text("")
        folders.append(root)

    def found(*names: str) -> Iterator[Path]:
        return (root / name for root in folders for name in names)

    monkeypatch.setattr(nvrtc_library, "_folders", found)
    assert nvrtc_library.library().name == "libnvrtc.so.13"
    assert nvrtc_library.header_folders() == (tmp_path / "cuda13" / "include",)
    (tmp_path / "cuda13" / "lib" / "libnvrtc.so.13").unlink()
    assert nvrtc_library.library().name == "libnvrtc.so.12"
