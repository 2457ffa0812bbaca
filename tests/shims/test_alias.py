"""``install_alias``: unchanged files that import another package's name run on tileops."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tileops
from tileops.errors import ArgumentError, TileopsError

ROOT = Path(__file__).parents[2]

LAZY = """
import torch
import tilelang
import tilelang.language as T
from tilelang.profiler import do_bench
from tilelang.layout import make_swizzled_layout

tilelang.disable_cache()

@tilelang.jit(
    out_idx=[-1], pass_configs={tilelang.PassConfigKey.TL_DISABLE_WARP_SPECIALIZED: True}
)
def matmul(M, N, K, block_M, block_N, block_K, dtype="float32", accum_dtype="float32"):
    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum_dtype)
            T.annotate_layout({A_shared: make_swizzled_layout(A_shared)})
            T.use_swizzle(panel_size=10)
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
                T.copy(A[by * block_M, ko * block_K], A_shared)
                T.copy(B[ko * block_K, bx * block_N], B_shared)
                T.gemm(
                    A_shared, B_shared, C_local, policy=tilelang.language.GemmWarpPolicy.FullRow
                )
            T.copy(C_local, C[by * block_M, bx * block_N])
    return main

kernel = matmul(70, 50, 40, 32, 32, 16)
a, b = torch.randn(70, 40), torch.randn(40, 50)
# 40 products in float32: each result is within 40 roundings of sums of size |a| @ |b|.
bound = 40 * 2.0**-24 * (a.abs().double() @ b.abs().double()) + 1e-30
assert ((kernel(a, b).double() - a.double() @ b.double()).abs() <= bound).all()
assert do_bench(lambda: kernel(a, b), n_warmup=1, n_repeat=2) > 0
print("right")
"""

EAGER = """
import torch
import tilelang
from tilelang import language as T
from tilelang.language import ceildiv

@tilelang.jit
def double(A):
    N = T.dynamic("N")
    A: T.Tensor((N,), T.float32)
    B = T.empty((N,), T.float32)
    with T.Kernel(ceildiv(N, 64), threads=64) as bx:
        for i in T.Parallel(64):
            B[bx * 64 + i] = A[bx * 64 + i] * 2.0
    return B

x = torch.randn(100)
assert torch.equal(double(x), x * 2)
print("right")
"""


START = """
import runpy, sys
import tileops, tileops.alias
try:
    import tilelang
except ModuleNotFoundError:
    print("not installed by importing tileops")
tileops.install_alias()
for file in sys.argv[1:]:
    runpy.run_path(file, run_name="__main__")
"""


def test_unchanged_files_run(tmp_path: Path) -> None:
    files = {tmp_path / "lazy.py": LAZY, tmp_path / "eager.py": EAGER}
    for file, text in files.items():
        file.write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", START, *map(str, files)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    expected = "not installed by importing tileops\nright\nright\n"
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


@pytest.fixture
def alias() -> Iterator[tileops.alias.Alias]:
    with tileops.install_alias("other_tiles") as made:
        yield made


def test_modules_are_the_same_objects(alias: tileops.alias.Alias) -> None:
    names = (
        "",
        ".language",
        ".profiler",
        ".layout",
        ".jit",
        ".transform",
        ".testing",
        ".jit.kernel",
    )
    for name in names:
        module = importlib.import_module(f"other_tiles{name}")
        assert module is importlib.import_module(f"tileops{name}")
        assert module.__name__ == f"tileops{name}"
        assert module.__spec__ is not None
        assert module.__spec__.name == f"tileops{name}"


@pytest.mark.parametrize(
    ("path", "name", "home"),
    [
        ("carver.arch", "driver", "tileops.arch"),
        ("tileop.base", "GemmWarpPolicy", "tileops.language"),
        ("utils.tensor", "torch_assert_close", "tileops.testing"),
        ("utils.tensor", "get_tensor_supply", "tileops.testing"),
    ],
)
def test_modules_that_lie_elsewhere(
    alias: tileops.alias.Alias, path: str, name: str, home: str
) -> None:
    module = importlib.import_module(f"other_tiles.{path}")
    assert module is importlib.import_module(home)
    scope: dict[str, object] = {}
    exec(f"from other_tiles.{path} import {name}", scope)
    assert scope[name] is getattr(module, name)
    assert tileops.alias.elsewhere(f"{path}.{name}") == f"{home}.{name}".removeprefix("tileops.")


def test_what_tileops_lacks_is_not_found(alias: tileops.alias.Alias) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'other_tiles\.autodd'"):
        importlib.import_module("other_tiles.autodd")
    with pytest.raises(ModuleNotFoundError, match="other_tiles"):
        importlib.import_module("other_tiles.engine.semantic_check")
    with pytest.raises(ImportError, match="frobnicate"):
        exec("from other_tiles.profiler import frobnicate")


def test_a_second_call_gives_the_same_handle(alias: tileops.alias.Alias) -> None:
    before = list(sys.meta_path)
    assert tileops.install_alias("other_tiles") is alias
    assert sys.meta_path == before


def test_undo_removes_the_name() -> None:
    alias = tileops.install_alias("other_tiles")
    importlib.import_module("other_tiles.language")
    alias.undo()
    alias.undo()
    assert not [name for name in sys.modules if name.startswith("other_tiles")]
    assert alias not in sys.meta_path
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("other_tiles")
    assert importlib.import_module("tileops.language").__spec__.name == "tileops.language"


def test_a_package_that_is_already_imported_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real_tiles.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("real_tiles")
    before = list(sys.meta_path)
    with pytest.raises(TileopsError, match=r"real_tiles is already imported from .*real_tiles\.py"):
        tileops.install_alias("real_tiles")
    assert sys.modules.pop("real_tiles") is module
    assert sys.meta_path == before


@pytest.mark.parametrize("name", ["tileops", "a.b", "", "1x"])
def test_names_that_cannot_be_an_alias(name: str) -> None:
    with pytest.raises(ArgumentError, match="another package's name"):
        tileops.install_alias(name)
