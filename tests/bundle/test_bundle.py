"""Bundles in Python: what is written, what a process without source and compiler runs, what is refused."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import tileops
import tileops.language as T
from tests.programs import samples
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.target import host_cpu_level

Run = Callable[..., str]

LOAD = """
import sys, torch, tileops
ops = tileops.load_bundle(sys.argv[1])
"""

CALLS = (
    LOAD
    + """
t = torch.ops.tileops
torch.manual_seed(0)
for n in (1, 16, 1000, 0):
    x, y = torch.randn(n), torch.randn(n)
    assert torch.allclose(t.sample_axpy(x, y, 0.5), 0.5 * x + y, rtol=0, atol=1e-6)
base = torch.randn(65)
assert torch.allclose(t.sample_axpy(base[1:], base[1:], 2.0), 3 * base[1:], rtol=0, atol=1e-5)
y = torch.ones(7); t.sample_add_into(torch.full((7,), 2.0), y); assert y.tolist() == [3.0] * 7
a, b = torch.randn(3, 5), torch.randn(3, 5)
d, s = t.sample_sum_difference(a, b)
assert torch.equal(s, a + b) and torch.equal(d, (a - b).to(torch.float16).T.contiguous())
assert t.sample_scaled(torch.ones(9)).tolist() == [2.0] * 9
out = t.sample_scaled(torch.ones(9, dtype=torch.float64), factor=float("inf"), dtype="float64")
assert out.dtype == torch.float64 and out.isinf().all()
assert t.sample_counted(5, 3).tolist() == [3, 4, 5, 6, 7]
with torch.device("meta"):
    assert t.sample_counted(5, 3).device.type == "meta"
x = torch.randn(6, 4)
assert torch.allclose(t.sample_row_sums(x.T.contiguous().T), x[::2].sum(1), rtol=0, atol=1e-5)
lazy = next(op for name, op in ops.items() if "lazy_add" in name)
assert torch.equal(lazy(torch.ones(48), torch.ones(48)), torch.full((48,), 2.0))
unwanted = ("triton", "tileops.compiler", "tileops.frontend", "tileops.language", "tileops.codegen")
print(len(ops), [m for m in sys.modules if m.startswith(unwanted)], tileops.stats()["compiles"])
"""
)


@tileops.jit(name="bundle_halved")
def halved(X):
    N = T.const("N")
    X: T.Tensor((N,), T.float32)
    Y = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 64)) as bx:
        for i in T.Parallel(64):
            Y[bx * 64 + i] = X[bx * 64 + i] / 2
    return Y


def test_a_fresh_process_runs_the_ops_without_source_or_compiler(
    sample_bundle: Path, run_python: Run, tmp_path: Path
) -> None:
    # Moved, with an empty cache and no tools on the path.
    moved = shutil.copytree(sample_bundle, tmp_path / "elsewhere")
    out = run_python(CALLS, moved, PATH="/nonexistent", TILEOPS_CACHE_DIR=str(tmp_path / "cache"))
    assert out == "7 [] 0"
    assert not (tmp_path / "cache" / "programs").exists()


def test_kernels_for_large_tensors_are_other_programs_on_the_cpu(tmp_path: Path) -> None:
    # They hold sizes in 64 bits, as those that a call of such tensors compiles.
    folder = tileops.bundle(tmp_path / "large", samples.axpy, "cpu", index64=True)
    document = json.loads((folder / "ops" / "sample_axpy" / "op.json").read_text())
    entries = [entry for variant in document["variants"] for entry in variant["entries"]]
    found = {
        wide: {entry["program"] for entry in entries if entry["entry"]["index64"] == wide}
        for wide in (False, True)
    }
    assert found[True]
    assert found[True].isdisjoint(found[False])


def test_the_layout(sample_bundle: Path) -> None:
    index = json.loads((sample_bundle / "bundle.json").read_text())
    assert sorted(index["ops"]) == sorted(p.name for p in (sample_bundle / "ops").iterdir())
    document = json.loads((sample_bundle / "ops" / "sample_scaled" / "op.json").read_text())
    assert document["op"]["schema"] == samples.scaled.op._schema.__str__().partition("::")[2]
    assert [len(v["entries"]) for v in document["variants"]] == [2, 2]
    assert document["variants"][1]["variant"]["static"] == ["inf", "float64", None]
    for variant in document["variants"]:
        for entry in variant["entries"]:
            folder = sample_bundle / "programs" / entry["program"]
            manifest = (folder / "manifest.json").read_bytes()
            assert hashlib.sha256(manifest).hexdigest() == entry["manifest"]["sha256"]
            images = {launch["image"] for launch in entry["entry"]["launches"]}
            assert images <= set(json.loads(manifest)["files"])
            assert {p.name for p in folder.iterdir()} == {
                "manifest.json", "program.txt", "options.txt", *images
            }  # fmt: skip


def test_what_a_bundle_lacks_is_named(sample_bundle: Path, run_python: Run) -> None:
    text = LOAD + (
        "for call in (lambda: torch.ops.tileops.sample_sum_difference(torch.ones(2, 2), torch.ones(2, 2)),\n"
        "             lambda: torch.ops.tileops.sample_scaled(torch.ones(9), factor=3.0)):\n"
        "    try: call()\n"
        "    except tileops.CompileMissError as error: print(error)\n"
    )
    tail = f" in the bundle {sample_bundle} ({host()}); add this combination with tileops.bundle"
    assert run_python(text, sample_bundle).splitlines() == [
        "sample_sum_difference: no kernel for cpu with block_N = None, M = 2, N = 2, aligned"
        + tail,
        "sample_scaled: no kernel for cpu with factor = 3.000000, dtype = None, block_N = None"
        + tail,
    ]


def test_fakes_compile_and_export(sample_bundle: Path, run_python: Run) -> None:
    text = LOAD + (
        "from torch._subclasses.fake_tensor import FakeTensorMode\n"
        "t = torch.ops.tileops\n"
        "with FakeTensorMode():\n"
        "    d, s = t.sample_sum_difference(torch.ones(3, 5), torch.ones(3, 5))\n"
        "    print(tuple(d.shape), d.dtype, tuple(s.shape))\n"
        "    try: t.sample_scaled(torch.ones(9), factor=3.0)\n"
        "    except Exception as error: print('3.0' in str(error) and sys.argv[1] in str(error))\n"
        "class Model(torch.nn.Module):\n"
        "    def forward(self, x): return t.sample_axpy(x * 2, x, 0.5)\n"
        "x = torch.randn(8)\n"
        "n = torch.export.Dim('n')\n"
        "program = torch.export.export(Model(), (x,), dynamic_shapes={'x': {0: n}})\n"
        "print(torch.equal(program.module()(torch.ones(5)), torch.full((5,), 2.0)))\n"
        "torch.library.opcheck(t.sample_axpy.default, (x, x, 0.5))\n"
    )
    assert run_python(text, sample_bundle).splitlines() == [
        "(5, 3) torch.float16 (3, 5)",
        "True",
        "True",
    ]


def test_two_bundles_join_and_loading_twice_is_nothing(
    sample_bundle: Path, run_python: Run, tmp_path: Path
) -> None:
    more = tileops.bundle(tmp_path / "more", (samples.sum_difference, [{"M": 2, "N": 2}]), "cpu")
    text = LOAD + (
        "again = tileops.load_bundle(sys.argv[1])\n"
        "assert again == ops\n"
        "one = torch.ones(2, 2)\n"
        "try: torch.ops.tileops.sample_sum_difference(one, one)\n"
        "except tileops.CompileMissError: print('missing')\n"
        "tileops.load_bundle(sys.argv[2])\n"
        "print(torch.ops.tileops.sample_sum_difference(one, one)[1].tolist())\n"
        "print(torch.ops.tileops.sample_sum_difference(torch.ones(3, 5), torch.ones(3, 5))[1].shape)\n"
    )
    assert run_python(text, sample_bundle, more).splitlines() == [
        "missing", "[[2.0, 2.0], [2.0, 2.0]]", "torch.Size([3, 5])",
    ]  # fmt: skip


def test_settings_name_bundles(sample_bundle: Path, run_python: Run) -> None:
    text = "import tileops; print(len(tileops.load_bundle()))"
    assert run_python(text, TILEOPS_BUNDLE=str(sample_bundle)) == "7"
    with pytest.raises(ArgumentError, match="give a path, or name bundles in TILEOPS_BUNDLE"):
        tileops.load_bundle()


def test_a_live_program_takes_its_kernels_from_a_bundle(
    sample_bundle: Path, run_python: Run, tmp_path: Path
) -> None:
    text = (
        "import torch, tileops\n"
        "from tests.programs import samples\n"
        "x = torch.randn(100)\n"
        "print(torch.equal(samples.axpy(x, x, 1.0), x + x), tileops.stats()['compiles'])\n"
        "samples.typed(x, 'float32')\n"
    )
    environment = {"TILEOPS_STRICT": "1", "TILEOPS_CACHE_DIR": str(tmp_path / "cache")}
    error = run_python(text, fails=True, TILEOPS_BUNDLE=str(sample_bundle), **environment)
    assert "CompileMissError: op sample_typed needs a compile for cpu" in error
    # No compiler, no memory of one: the bundle is enough.
    out = run_python(
        text.rsplit("samples.typed", 1)[0], PATH="/nonexistent", TILEOPS_BUNDLE=str(sample_bundle), **environment
    )  # fmt: skip
    assert out == "True 0"


def test_a_bundle_without_programs_is_one_warning(
    sample_bundle: Path, run_python: Run, tmp_path: Path
) -> None:
    text = (
        "import torch, tileops, warnings\n"
        "from tests.programs import samples\n"
        "x = torch.randn(100)\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    right = torch.equal(samples.axpy(x, x, 1.0), x + x)\n"
        "print(right, tileops.stats()['compiles'], ['programs' in str(w.message) for w in caught])\n"
    )
    bundle = tmp_path / "bundle"
    shutil.copytree(sample_bundle, bundle)
    shutil.rmtree(bundle / "programs")
    environment = {"TILEOPS_BUNDLE": str(bundle), "TILEOPS_CACHE_DIR": str(tmp_path / "cache")}
    assert run_python(text, **environment) == "True 1 [True]"


def test_names_that_are_taken(sample_bundle: Path, run_python: Run) -> None:
    live = "import torch, tileops, sys\nfrom tests.programs import samples\nsamples.axpy.op\n"
    same = (
        live + "print(tileops.load_bundle(sys.argv[1])['tileops::sample_axpy'] is samples.axpy.op)"
    )
    assert run_python(same, sample_bundle) == "True"
    after = LOAD + (
        "from tests.programs import samples\n"
        "print(samples.axpy.op.name())\n"
        "print(torch.equal(torch.ops.tileops.sample_axpy(torch.ones(3), torch.ones(3), 1.0), torch.full((3,), 2.0)))\n"
    )
    name, value = run_python(after, sample_bundle).splitlines()
    assert (name, value) == ("tileops::sample_axpy", "True")


def host() -> str:
    return f"cpu:{host_cpu_level()}"


def damage(bundle: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    path = next(bundle.glob(name))
    path.write_bytes(change(path.read_bytes()))


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def test_damage_is_found_at_loading(sample_bundle: Path, run_python: Run, tmp_path: Path) -> None:
    changes = (flip, lambda data: data[:-1], lambda data: data + b" ")
    names = ("ops/sample_axpy/op.json", "programs/*/manifest.json")
    bundles = []
    for number, (name, change) in enumerate(itertools.product(names, changes)):
        bundles.append(shutil.copytree(sample_bundle, tmp_path / str(number)))
        damage(bundles[-1], name, change)
    text = (
        "import sys, torch, tileops\n"
        "for path in sys.argv[1:]:\n"
        "    try: tileops.load_bundle(path)\n"
        "    except tileops.ArgumentError as error: print(error)\n"
        "print(hasattr(torch.ops.tileops, 'sample_axpy'))\n"
    )
    *messages, registered = run_python(text, *bundles).splitlines()
    assert len(messages) == len(bundles)
    for message in messages:
        assert re.search(r"(op|manifest)\.json: expected .* got ", message)
    assert registered == "False"


def test_damaged_code_is_never_loaded(sample_bundle: Path, run_python: Run, tmp_path: Path) -> None:
    bundle = shutil.copytree(sample_bundle, tmp_path / "damaged")
    for path in bundle.glob("programs/*/*.so"):
        path.write_bytes(flip(path.read_bytes()))
    text = LOAD + (
        "try: torch.ops.tileops.sample_axpy(torch.ones(3), torch.ones(3), 1.0)\n"
        "except tileops.ArgumentError as error: print(error)\n"
        "print('kernel_lib' in open('/proc/self/maps').read(), tileops.stats()['loads'])\n"
    )
    message, loaded = run_python(text, bundle).splitlines()
    assert re.search(
        r"kernel_lib\.so: expected the SHA-256 [0-9a-f]{64}, got [0-9a-f]{64}", message
    )
    assert loaded == "False 0"


def test_missing_parts(run_python: Run, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"bundle\.json: No such file"):
        tileops.load_bundle(tmp_path)
    (tmp_path / "bundle.json").write_text(
        '{"format": 1, "ops": {"../x": {"size": 1, "sha256": "0"}}}'
    )
    with pytest.raises(tileops.TileopsError, match="sha256: expected 64"):
        tileops.load_bundle(tmp_path)
    fact = {"size": 1, "sha256": "0" * 64}
    (tmp_path / "bundle.json").write_text(json.dumps({"format": 1, "ops": {"../x": fact}}))
    with pytest.raises(tileops.TileopsError, match=r"'\.\./x' is not the name of a file"):
        tileops.load_bundle(tmp_path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: b"", "not valid JSON at byte 0"),
        (lambda data: data[: len(data) // 2], "not valid JSON at byte [1-9]"),
        (lambda data: b'{"format": 7, "ops": {}}', "expected format 1, got 7"),
        (lambda data: data.replace(b"ops", b"opt"), "'ops' is missing"),
        (lambda data: b"[" * 100000, "nested too deeply"),
        (lambda data: b'{"format": 1, "ops": 5}', "ops: expected an object"),
    ],
)
def test_a_damaged_index_is_named(
    sample_bundle: Path, tmp_path: Path, change: Callable[[bytes], bytes], reason: str
) -> None:
    bundle = shutil.copytree(sample_bundle, tmp_path / "damaged")
    damage(bundle, "bundle.json", change)
    with pytest.raises(ArgumentError, match=rf"/damaged/bundle\.json: .* damaged: .*{reason}"):
        tileops.load_bundle(bundle)


def test_writing_again_replaces(tmp_path: Path) -> None:
    folder = tmp_path / "b"
    assert tileops.bundle(folder, samples.axpy, "cpu") == folder
    tileops.bundle(folder, [samples.add_into], ["cpu"])
    assert [p.name for p in (folder / "ops").iterdir()] == ["sample_add_into"]
    assert [p.name for p in tmp_path.iterdir()] == ["b"]


def test_a_place_that_cannot_be_written_is_named_before_anything_is_compiled(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    compiles = tileops.stats()["compiles"]
    for place in (tmp_path / "file" / "b", tmp_path / ("b" * 250), Path("/proc/b")):
        with pytest.raises(ArgumentError) as caught:
            tileops.bundle(place, (halved, [{"N": 12345}]), "cpu")
        assert str(caught.value).startswith(f"bundle: {place} cannot be written: [Errno ")
        assert isinstance(caught.value.__cause__, OSError)
    assert tileops.stats()["compiles"] == compiles
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_equal_bundles_are_equal_bytes(tmp_path: Path) -> None:
    def content(folder: Path) -> dict[str, bytes]:
        return {
            str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()
        }

    one, two = (tileops.bundle(tmp_path / n, samples.axpy, "cpu") for n in ("one", "two"))
    assert content(one) == content(two)


def test_what_bundle_refuses(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(ArgumentError, match="exists and is not a bundle"):
        tileops.bundle(tmp_path / "full", samples.axpy, "cpu")
    assert (tmp_path / "full" / "letter.txt").read_text() == "dear"
    with pytest.raises(ArgumentError, match=r"has the T\.const sizes N and was not called yet"):
        tileops.bundle(tmp_path / "b", halved, "cpu")
    with pytest.raises(ArgumentTypeError, match="is lazy: pass its kernels"):
        tileops.bundle(tmp_path / "b", samples.lazy_add, "cpu")
    with pytest.raises(ArgumentTypeError, match="got function"):
        tileops.bundle(tmp_path / "b", [lambda: 1], "cpu")
    with pytest.raises(ArgumentError, match="not hip:gfx942"):
        tileops.bundle(tmp_path / "b", samples.axpy, "hip:gfx942")
    with pytest.raises(ArgumentError, match="no ops were given"):
        tileops.bundle(tmp_path / "b", [], "cpu")
    assert not (tmp_path / "b").exists()


def test_what_was_called_is_bundled(tmp_path: Path, run_python: Run) -> None:
    import torch

    samples.typed(torch.ones(21), "float32", block_N=32)
    folder = tileops.bundle(tmp_path / "b", samples.typed, "cpu")
    text = LOAD + (
        "(op,) = ops.values()\n"
        "print(op(torch.ones(21), dtype='float32', block_N=32).tolist() == [1.0] * 21)\n"
    )
    assert run_python(text, folder) == "True"


@tileops.jit(name="bundle_tripled")
def tripled(X):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Y = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, 64)) as bx:
        for i in T.Parallel(64):
            Y[bx * 64 + i] = X[bx * 64 + i] * 3
    return Y


def test_a_bundle_carries_no_gradient(tmp_path: Path, run_python: Run) -> None:
    tripled.register_autograd(lambda ctx, grad: tripled(grad))
    folder = tileops.bundle(tmp_path / "b", tripled, "cpu")
    text = LOAD + (
        "op = torch.ops.tileops.bundle_tripled\n"
        "for call in (op, torch.compile(op, fullgraph=True, backend='aot_eager')):\n"
        "    print(call(torch.ones(3)).tolist())\n"
        "    out = call(torch.ones(3, requires_grad=True))\n"
        "    try:\n"
        "        out.sum().backward()\n"
        "    except tileops.errors.NotDifferentiableError as error:\n"
        "        print('bundle_tripled' in str(error))\n"
    )
    assert run_python(text, folder).splitlines() == ["[3.0, 3.0, 3.0]", "True"] * 2


def test_none_for_a_parameter_whose_default_is_none(tmp_path: Path) -> None:
    @tileops.jit(name="bundled_without_a_factor")
    def scaled(A, factor=None):
        A: T.Tensor((8,), T.float32)
        B = T.empty((8,), T.float32)
        with T.Kernel(1):
            for i in T.Parallel(8):
                B[i] = A[i] * (2.0 if factor is None else factor)
        return B

    folder = tileops.bundle(tmp_path / "b", [(scaled, [{"factor": None}])], ["cpu"])
    document = json.loads((folder / "ops" / "bundled_without_a_factor" / "op.json").read_text())
    assert len(document["variants"]) == 1


def test_one_bundle_for_cpu_and_gpu(tmp_path: Path, run_python: Run) -> None:
    folder = tileops.bundle(tmp_path / "b", samples.axpy, ["cpu", "cuda:sm_90"])
    document = json.loads((folder / "ops" / "sample_axpy" / "op.json").read_text())
    # Other tests of this process may have called the op with other compile-time values.
    variant = document["variants"][0]
    found = {(e["target"], e["entry"]["fast"]): e["entry"] for e in variant["entries"]}
    assert set(found) == {(t, f) for t in (host(), "cuda:sm_90a") for f in (True, False)}
    assert found["cuda:sm_90a", True]["capability"] == 90
    assert all((folder / "programs" / e["program"]).is_dir() for e in variant["entries"])
    text = LOAD + "print(torch.ops.tileops.sample_axpy(torch.ones(2), torch.ones(2), 1.0).tolist())"
    assert run_python(text, folder) == "[2.0, 2.0]"
