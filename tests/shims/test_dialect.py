"""The names that TileLang programs import and that have no other place here do what they say."""

from __future__ import annotations

import importlib
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import tileops
import tileops.language as T
from tileops import settings
from tileops.arch import CDNA, CUDA
from tileops.dialect import (
    environment,
    iket,
    lowering,
    mma,
    nvcc,
    template_programs,
    templates,
    tools,
)
from tileops.dialect.tvm import DataType, Target, tirx
from tileops.errors import (
    ArgumentError,
    ArgumentTypeError,
    ProgramAttributeError,
    ToolchainError,
    UnsupportedConstructError,
)
from tileops.language.foreign import cuda
from tileops.transform import simplify_prim_func


@pytest.fixture
def alias() -> Iterator[None]:
    with tileops.install_alias("tilelang"):
        yield


@T.prim_func
def plus_one(A: T.Tensor((64,), T.float32), B: T.Tensor((64,), T.float32)):
    with T.Kernel(1, threads=64) as bx, iket.range("all"):
        iket.mark("start", payload=iket.payload(bx, dtype="int32"))
        for i in T.Parallel(64):
            iket.mark("store")
            B[i] = A[i] + 1.0


# -- how programs find them ----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("backend.target", "determine_target"),
        ("carver.arch", "CUDA"),
        ("carver.roller.hint", "Hint"),
        ("carver.roller.rasterization", "NoRasterization"),
        ("carver.template", "MatmulTemplate"),
        ("contrib", "nvcc"),
        ("contrib.nvcc", "get_cuda_version"),
        ("cuda.intrinsics", "make_mma_swizzle_layout"),
        ("cuda.intrinsics.layout.mma_layout", "get_swizzle_layout"),
        ("cuda.intrinsics.macro.mma_macro_generator", "TensorCoreIntrinEmitter"),
        ("intrinsics", "get_swizzle_layout"),
        ("intrinsics.mma_layout", "make_mma_swizzle_layout"),
        ("intrinsics.mma_macro_generator", "TensorCoreIntrinEmitter"),
        ("tvm", "PrimExpr"),
        ("engine.callback", "register_cuda_postproc_callback"),
        ("engine.lower", "lower"),
        ("engine.param", "KernelParam"),
        ("env", "env"),
        ("language.dtypes", "dtype"),
        ("tools", "Analyzer"),
        ("tools.cuda", "iket"),
        ("transform", "simplify_prim_func"),
        ("tvm.target", "Target"),
        ("utils.device", "get_current_device"),
        ("utils.target", "determine_target"),
    ],
)
def test_imports(alias: None, path: str, name: str) -> None:
    scope: dict[str, object] = {}
    exec(f"from tilelang.{path} import {name}", scope)
    assert scope[name] is not None


def test_functions_stay_functions_when_modules_of_their_names_are_imported(alias: None) -> None:
    for module in ("tilelang.cuda.intrinsics", "tilelang.engine.lower", "tilelang.env"):
        importlib.import_module(module)
    assert lowering.lower(plus_one, target="cpu").kernel_source
    assert importlib.import_module("tilelang").engine.lower(plus_one, target="cpu").params
    text = 'extern "C" __global__ void k() {}'
    assert type(tileops.cuda(text)) is type(cuda(text))
    assert tileops.env.is_cache_enabled() in (True, False)


def test_tvm_is_found_where_no_real_one_is(
    alias: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tvm = importlib.import_module("tvm")
    assert tvm is importlib.import_module("tilelang.tvm")
    assert importlib.import_module("tvm.tirx") is tvm.tirx is tvm.tir
    assert importlib.import_module("tvm.testing") is importlib.import_module("tileops.testing")
    with pytest.raises(ImportError, match="cannot import name 'te'"):
        exec("from tvm import te")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("tvm.script")
    with pytest.raises(ProgramAttributeError, match=r"tvm\.tirx\.Evaluate: tileops is not built"):
        tvm.tirx.Evaluate
    for name in [name for name in sys.modules if name.split(".")[0] == "tvm"]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "tvm.py").write_text("real = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert importlib.import_module("tvm").real


def test_the_stand_in_goes_with_the_alias() -> None:
    with tileops.install_alias("tilelang"):
        importlib.import_module("tvm")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("tvm")
    with tileops.install_alias("other_tiles"), pytest.raises(ModuleNotFoundError):
        importlib.import_module("tvm")


# -- tvm -------------------------------------------------------------------------------------------
def test_dtypes_of_all_spellings() -> None:
    for spelling in ("float16", torch.float16, T.float16):
        assert (DataType(spelling).bits, DataType(spelling).lanes) == (16, 1)


def test_scalar_expressions_under_names_of_tvm() -> None:
    @T.prim_func
    def program(A: T.Tensor((8,), T.uint32), B: T.Tensor((8,), T.uint32)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                low = tirx.Min(A[i] & tirx.const(7, "uint32"), tirx.const(5, T.uint32))
                bits = tirx.reinterpret("uint32", tirx.Cast("float32", A[i]))
                B[i] = tirx.Select(A[i] > tirx.const(9, "uint32"), bits, low)

    a = torch.tensor([0, 3, 6, 7, 9, 10, 12, 100], dtype=torch.uint32)
    b = torch.zeros(8, dtype=torch.uint32)
    tileops.compile(program, target="cpu")(a, b)
    values = [min(x & 7, 5) if x <= 9 else None for x in a.tolist()]
    bits = a.to(torch.float32).view(torch.int32).tolist()
    assert b.tolist() == [v if v is not None else n for v, n in zip(values, bits, strict=True)]


def test_targets() -> None:
    target = Target("cuda -arch=sm_90")
    assert (target.kind.name, target.attrs["arch"], str(target)) == (
        "cuda",
        "sm_90a",
        "cuda:sm_90a",
    )
    assert target == Target({"kind": "cuda", "arch": "sm_90"}) == Target(target)
    assert Target.current() is None
    with target, Target("cuda:sm_80") as inner:
        assert Target.current() is inner
        assert nvcc.get_target_compute_version() == "8.0"
    with pytest.raises(ArgumentError, match="target 'nonsense' is not known"):
        Target("nonsense")


# -- nvcc ------------------------------------------------------------------------------------------
def test_versions_and_what_they_have() -> None:
    assert [nvcc.have_tma(f"cuda:sm_{n}") for n in (80, 89, 90, 100)] == [False, False, True, True]
    assert [nvcc.have_fp8(v) for v in ("8.6", "8.9", "9.0")] == [False, True, True]
    assert [nvcc.get_target_arch(v) for v in ("8.0", (9, 0), "10.0")] == ["80", "90a", "100a"]
    assert nvcc.get_target_compute_version("cuda:sm_100") == "10.0"
    assert nvcc.is_hopper("cuda:sm_90")
    with pytest.raises(ArgumentError, match=r"expected a text such as 9\.0, got '9'"):
        nvcc.parse_compute_version("9")
    with pytest.raises(ArgumentError, match="no compute capability"):
        nvcc.get_target_compute_version("cpu")


def test_the_version_of_cuda_is_that_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert nvcc.get_cuda_version() == (12, 8)
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(ToolchainError, match="without CUDA"):
        nvcc.get_cuda_version()


# -- layouts and instructions ----------------------------------------------------------------------
@pytest.mark.parametrize(("dtype", "columns"), [("float16", 64), ("int8", 64), ("float32", 8)])
def test_a_swizzle_permutes_the_segments_of_a_row(dtype: str, columns: int) -> None:
    bits = DataType(dtype).bits
    width = min(128, columns * bits // 8)
    for row in range(16):
        places = [mma.get_swizzle_layout(row, c, columns, dtype) for c in range(columns)]
        assert sorted(p[2] for p in places) == list(range(columns))
        assert {p[:2] for p in places} == {(0, row)}
        for c, (_, _, place) in enumerate(places):  # 16 bytes stay together
            assert place % (128 // bits) == c % (128 // bits)
    # Eight rows at one column are in different banks: none of them falls on another.
    segments = {(r * columns * bits // 8 + mma.get_swizzle_layout(r, 0, columns, dtype)[2] * bits
                 // 8) % 128 for r in range(8)}  # fmt: skip
    assert len(segments) == 8 if width == 128 else len(segments) >= 4
    with pytest.raises(ArgumentError, match="multiple of 32 bytes"):
        mma.get_swizzle_layout(0, 0, 3, dtype)


def test_tiles_of_a_warp() -> None:
    sizes = [mma.get_mma_micro_size(d) for d in ("float16", "int8", "float32", "float64")]
    assert sizes == [(16, 16, 16), (16, 16, 32), (16, 16, 8), (8, 8, 4)]


def test_what_tileops_does_in_another_way_is_refused_with_the_other_way() -> None:
    with pytest.raises(UnsupportedConstructError, match=r"write T\.gemm\("):
        mma.INT4TensorCoreIntrinEmitter(a_dtype="int4")
    with pytest.raises(UnsupportedConstructError, match=r"T\.Extern launches CUDA C\+\+"):
        lowering.register_cuda_postproc_callback(lambda code, target: code)


def test_a_picture_of_a_layout_names_the_place_of_each_element(tmp_path: Path) -> None:
    turned = T.Layout((3, 4), lambda i, j: (j, i))
    path = tools.plot_layout(turned, tmp_path, name="turned")
    assert path == tmp_path / "turned.svg"
    texts = re.findall("<text[^>]*>([^<]*)</text>", path.read_text())
    assert texts == [f"{j},{i}" for i in range(3) for j in range(4)]


def test_a_picture_of_a_fragment_names_threads(tmp_path: Path) -> None:
    pairs = T.Fragment((2, 8), forward_fn=lambda i, j: (i * 4 + j // 2, j % 2))
    apart = T.Fragment(
        (2, 8),
        forward_thread_fn=lambda i, j: i * 4 + j // 2,
        forward_index_fn=lambda i, j: j % 2,
    )
    drawn = [
        tools.plot_layout(f, tmp_path, f"f{n}").read_text() for n, f in enumerate((pairs, apart))
    ]
    assert drawn[0] == drawn[1]
    texts = re.findall("<text[^>]*>([^<]*)</text>", drawn[0])
    assert texts == [f"T{i * 4 + j // 2} {j % 2}" for i in range(2) for j in range(8)]
    fills = re.findall('fill="(hsl[^"]*)"', drawn[0])
    assert fills[0] == fills[1] != fills[2]


def test_a_picture_of_what_has_no_places_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ArgumentTypeError, match=r"plot_layout: expected a T\.Layout or T\.Fragment"
    ):
        tools.plot_layout(3, tmp_path)
    with pytest.raises(ArgumentError, match="of one or two dimensions"):
        tools.plot_layout(T.Layout((2, 2, 2), lambda i, j, k: (i,)), tmp_path)
    with pytest.raises(ArgumentError, match="formats"):
        tools.plot_layout(T.Layout((2,), lambda i: i), tmp_path, formats="pdf")


# -- lower, analyser, markers, settings ------------------------------------------------------------
def test_lower_shows_what_a_program_became() -> None:
    artifact = tileops.lower(plus_one, target="cuda:sm_90")
    assert "def plus_one" in artifact.kernel_source
    assert "launch" in str(artifact.device_mod) or artifact.device_mod.launches
    assert [p.name for p in artifact.params] == ["A", "B"]
    with pytest.raises(ArgumentTypeError, match="expected one program"):
        tileops.lower([plus_one])


def test_the_analyser_counts_products_and_traffic() -> None:
    config = {"block_M": 64, "block_N": 64, "block_K": 32, "num_stages": 2, "threads": 128}
    dtypes = [DataType("float16")] * 2 + [DataType("float32")]
    program = template_programs.matmul((256, 128, 96), dtypes, False, True, False, **config)
    result = tools.Analyzer.analysis(program, CUDA("cuda:sm_90"))
    assert result.total_flops == 2 * 256 * 128 * 96
    assert result.total_global_bytes == 2 * (2 * 256 * 96 + 4 * 128 * 96 + 256 * 128)
    assert result.expected_tflops == 989
    assert tools.Analyzer(plus_one, CUDA("cuda:sm_80")).ir_pass().calculate().total_flops == 0
    unknown = tools.Analyzer.analysis(plus_one, CDNA("hip:gfx942"))
    assert unknown.estimated_time is unknown.expected_tflops is None
    with pytest.raises(ArgumentTypeError, match="expected a program, got int"):
        tools.Analyzer(1, CUDA("cuda:sm_90"))


def test_markers_are_listed_and_change_nothing(tmp_path: Path) -> None:
    with iket.session(output_dir=tmp_path / "out", runtime_payloads=True):
        assert iket.runtime_payloads_enabled()
        assert iket.event_table() == []

        @T.prim_func
        def plain(A: T.Tensor((64,), T.float32), B: T.Tensor((64,), T.float32)):
            with T.Kernel(1, threads=64):
                for i in T.Parallel(64):
                    iket.mark("store")
                    B[i] = A[i] + 1.0

        kernel = tileops.compile(plain, target="cpu")
        assert [(e["name"], e["kind"]) for e in iket.event_table()] == [("store", "mark")]
        iket.output_path("a.json").write_text("{}")
        assert iket.trace_files() == [tmp_path / "out" / "a.json"]
    assert iket.output_dir() is None
    a, b = torch.randn(64), torch.zeros(64)
    kernel(a, b)
    assert torch.equal(b, a + 1)
    with pytest.raises(ArgumentError, match="open ranges are"):
        iket.range_pop("none")


def test_settings_that_programs_read(tmp_path: Path) -> None:
    env = environment.env
    with tileops.option.cache_dir(tmp_path):
        assert str(tmp_path) == env.TILELANG_CACHE_DIR
    assert Path(settings.PACKAGE_ROOT) / "tileops" == env.TILELANG_PACKAGE_PATH
    with pytest.raises(ProgramAttributeError, match="does not have this setting"):
        env.TILELANG_NONSENSE
    with pytest.raises(ProgramAttributeError, match=r"changed by tileops\.option"):
        env.TILELANG_CACHE_DIR = "/x"
    with pytest.raises(ArgumentError, match="expected a level such as 'INFO'"):
        tileops.set_log_level("loud")


def test_simplify_gives_the_program_itself() -> None:
    assert simplify_prim_func(plus_one) is plus_one


# -- templates -------------------------------------------------------------------------------------
TEMPLATES = [
    templates.MatmulTemplate(M=200, N=96, K=64, accum_dtype="float32"),
    templates.MatmulTemplate(64, 64, 64, trans_A=True, trans_B=False, accum_dtype="float32"),
    templates.GEMVTemplate(N=70, K=130, accum_dtype="float32"),
    templates.ElementwiseTemplate([30, 100], dtype="float32"),
    templates.GeneralReductionTemplate("SSR", [3, 5, 200], dtype="float32"),
    templates.FlashAttentionTemplate(1, 2, 64, 100, 130, is_causal=True),
]


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda t: type(t).__name__)
def test_hints_are_ranked(template: templates.Template) -> None:
    hints = template.with_arch(CUDA("cuda:sm_80")).recommend_hints(topk=5)
    assert 1 <= len(hints) <= 5
    assert [h.seconds for h in hints] == sorted(h.seconds for h in hints)
    for hint in hints:
        assert math.prod(hint.thread) <= hint.threads
        assert all(b % w == 0 for b, w in zip(hint.block, hint.warp, strict=True))
    assert template.equivalent_function().launches


def test_a_product_of_a_template_is_right() -> None:
    template = templates.MatmulTemplate(M=70, N=50, K=40, accum_dtype="float32")
    kernel = tileops.compile(template.equivalent_function(), target="cpu")
    a, b = torch.randn(70, 40).half(), torch.randn(50, 40).half()
    c = torch.zeros(70, 50, dtype=torch.float16)
    kernel(a, b, torch.zeros(1, dtype=torch.float16), c)
    exact = a.double() @ b.double().T
    bound = 2.0**-10 * exact.abs() + 40 * 2.0**-23 * (a.double().abs() @ b.double().abs().T)
    assert ((c.double() - exact).abs() <= bound + 2.0**-24).all()


def test_attention_of_a_template_is_right() -> None:
    template = templates.FlashAttentionTemplate(1, 2, 32, 100, 130, is_causal=True)
    kernel = tileops.compile(template.equivalent_function(), target="cpu")
    q, k, v = (torch.randn(2, n, 32).half() for n in (100, 130, 130))
    out = torch.zeros(2, 100, 32, dtype=torch.float16)
    kernel(q, k, v, out)
    mask = torch.ones(100, 130, dtype=torch.bool).tril(30)
    scores = (q.double() @ k.double().mT * 32**-0.5).masked_fill(~mask, -torch.inf)
    # Weights and results are rounded to float16: 2^-11 each, of sums whose weights are 1 in all.
    bound = 4 * 2.0**-11 * v.double().abs().amax()
    assert (out.double() - scores.softmax(-1) @ v.double()).abs().max() <= bound


def test_templates_refuse_what_they_cannot_rank() -> None:
    with pytest.raises(ArgumentError, match="such as 'SSR'; got 'SRS'"):
        templates.GeneralReductionTemplate("SRS", [1, 2, 3])
    with pytest.raises(ArgumentError, match="the peaks of CDNA"):
        TEMPLATES[0].with_arch(CDNA("hip:gfx942")).recommend_hints()
    with pytest.raises(ArgumentError, match=r"such as CUDA\('cuda:sm_90'\)"):
        CUDA("cuda") if not torch.cuda.is_available() else CUDA("cuda:")


def test_a_device_that_is_not_there_has_the_facts_of_its_kind() -> None:
    device = CUDA("cuda:sm_90")
    assert (device.sm_version, device.compute_capability) == (90, "90")
    assert (device.compute_max_core, device.warp_size, device.smem_cap) == (132, 32, 232448)
    assert device.bandwidth[1] / 1000 == 3350
