"""The runtime in other processes: without Python, after a fork, at import, and what the binary links."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import tileops
from tests.runtime import cpu_ops, torch_symbols
from tests.runtime.conftest import GXX, HERE, ROOT, cuda_include, run_module

Build = Callable[..., Path]
PACKAGE = Path(tileops.__file__).parent
TORCH = Path(torch.__file__).parent


def test_a_cpp_program_without_python(build_kernel: Build, tmp_path: Path) -> None:
    program = tmp_path / "no_python"
    subprocess.run(
        [GXX, "-std=c++20", "-O1", str(HERE / "no_python.cpp"), "-o", str(program),
         f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'csrc' / 'cpu'}", "-isystem", str(cuda_include()),
         "-isystem", str(TORCH / "include"), f"-L{PACKAGE}", f"-L{TORCH / 'lib'}", "-ltileops",
         "-Wl,--no-as-needed", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{PACKAGE}:{TORCH / 'lib'}"],
        check=True,
    )  # fmt: skip
    done = subprocess.run(
        [program, build_kernel(cpu_ops.ADD)], check=True, capture_output=True, text=True, timeout=60
    )
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert (
        lines["unresolved"]
        == "CompileMissError: plain: no kernel fits the call and no resolver is set"
    )
    assert lines["equal"] == "1"
    assert (
        lines["wrong"]
        == "ArgumentTypeError: plain: argument 'b': expected dtype float32, got float64"
    )
    assert lines["python"] == "0"
    print(f"\na call from C++ without Python: {lines['ns_op']} ns")


def exported(library: Path, *flags: str) -> set[str]:
    listing = subprocess.run(
        ["nm", "-D", *flags, str(library)], check=True, capture_output=True, text=True
    ).stdout
    return {line.split()[-1].partition("@")[0] for line in listing.splitlines()}


# Members of the standard library's streams and their operators.
STREAMS = re.compile(r"^_ZNK?S([oi]\d|t\w*(stream|locale))|^_ZStls")
# Mangled names of namespaces at, c10, torch and caffe2, also as the owners of members and in tables of types.
CPP_OF_TORCH = re.compile(r"_Z\w*?N?K?(2at|3c10|5torch|6caffe2)\d")


def test_the_pattern_knows_torchs_own_symbols() -> None:
    names = exported(TORCH / "lib" / "libc10.so", "--defined-only")
    assert sum(bool(CPP_OF_TORCH.search(name)) for name in names) > 500


@pytest.mark.parametrize("binary", ["libtileops.so", "_C"])
def test_the_binaries_use_the_stable_c_interface_alone(binary: str) -> None:
    (path,) = PACKAGE.glob(f"{binary.removesuffix('.so')}*.so")
    undefined = exported(path, "--undefined-only")
    assert len(undefined) > 50
    assert [name for name in undefined if CPP_OF_TORCH.search(name)] == []
    # What torch's libraries give it is in torch 2.10 already: its torch may be older than the one it was built with.
    libraries = [TORCH / "lib" / f"lib{name}.so" for name in ("c10", "torch_cpu")]
    of_torch = undefined & set().union(*(exported(lib, "--defined-only") for lib in libraries))
    # Templates of the standard library have copies everywhere; the loader binds them to any.
    of_torch = {name for name in of_torch if not name.startswith(("_ZNSt", "_ZSt", "_ZNKSt"))}
    assert of_torch <= set(torch_symbols.listed())
    # Where libstdc++ is linked statically, streams of the second copy crash in the first's locale.
    assert [name for name in undefined if STREAMS.search(name)] == []
    assert bool(of_torch) == (binary == "libtileops.so")
    if binary == "libtileops.so":
        assert [name for name in undefined if re.match(r"_?Py|cu[A-Z]", name)] == []


def test_the_list_of_torchs_symbols_is_what_the_headers_say() -> None:
    # Another torch's headers may declare more without a guard, but never less.
    declared = set(torch_symbols.declared())
    assert set(torch_symbols.listed()) <= declared
    if torch.__version__.startswith("2.13."):  # the one whose headers made the list
        assert set(torch_symbols.listed()) == declared
    newer = set(torch_symbols.declared("0x020d000000000000"))
    if torch.__version__.startswith("2.10."):  # the oldest: nothing in it is newer
        assert declared == newer
    else:
        assert declared < newer  # the guards were at work


def test_the_library_needs_torchs_cpu_library_alone() -> None:
    needed = subprocess.run(
        ["readelf", "-d", str(PACKAGE / "libtileops.so")],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    libraries = {
        line.split("[")[1].split("]")[0] for line in needed.splitlines() if "(NEEDED)" in line
    }
    assert {name for name in libraries if "torch" in name or "c10" in name} == {"libtorch_cpu.so"}
    assert not [name for name in libraries if "python" in name or "cuda" in name]


def run_python(text: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", text], check=True, capture_output=True, text=True, timeout=120,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return done.stdout.strip()


def test_importing_the_runtime_loads_no_native_code() -> None:
    out = run_python(
        "import tileops.runtime, sys\n"
        "maps = open('/proc/self/maps').read()\n"
        "print('tileops._C' in sys.modules, 'libtileops' in maps, 'libcuda.so' in maps)"
    )
    assert out == "False False False"


def test_using_cpu_ops_loads_no_driver(build_kernel: Build) -> None:
    cpu_ops.add_op(build_kernel).call(torch.ones(2), torch.ones(2))
    library = build_kernel(cpu_ops.ADD)
    out = run_python(
        "import torch\n"
        "from tests.runtime import cpu_ops\n"
        f"op = cpu_ops.add_op(lambda text: __import__('pathlib').Path({str(library)!r}))\n"
        "print(op.call(torch.ones(2), torch.ones(2)).tolist(), 'libcuda.so' in open('/proc/self/maps').read())"
    )
    assert out == "[2.0, 2.0] False"


def test_a_fork_after_import_and_after_calls(build_kernel: Build) -> None:
    library = build_kernel(cpu_ops.ADD)
    out = run_python(
        "import os, torch\n"
        "from tests.runtime import cpu_ops\n"
        f"path = __import__('pathlib').Path({str(library)!r})\n"
        "old = cpu_ops.add_op(lambda text: path)\n"
        "torch.set_num_threads(2)\n"
        "a = torch.randn(5000)\n"  # torch itself uses its threads from 32,768 elements on
        "assert torch.equal(old.call(a, a), a + a)\n"
        "for _ in range(3):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        new = cpu_ops.add_op(lambda text: path)\n"
        "        good = torch.equal(old.call(a, a), a + a) and torch.equal(new.call(a, a), a + a)\n"
        "        os._exit(0 if good else 1)\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), end=' ')\n"
    )
    assert out == "0 0 0"


def test_a_call_at_interpreter_exit(build_kernel: Build) -> None:
    library = build_kernel(cpu_ops.ADD)
    out = run_python(
        "import atexit, torch\n"
        "from tests.runtime import cpu_ops\n"
        f"op = cpu_ops.add_op(lambda text: __import__('pathlib').Path({str(library)!r}))\n"
        "atexit.register(lambda: print(op.call(torch.ones(2), torch.ones(2)).tolist()))\n"
    )
    assert out == "[2.0, 2.0]"


def test_cuda_calls_streams_and_graph_capture(
    fake_driver_path: Path, torch_cuda_path: Path
) -> None:
    assert run_module("tests.runtime.cuda_calls", fake_driver_path, torch_cuda_path) == "good\n"


@pytest.mark.parametrize("way", ["python", "c"])
def test_a_fault_of_a_bundled_op_is_found(
    fake_driver_path: Path, torch_cuda_path: Path, way: str
) -> None:
    def errors(sync: str) -> tuple[str, str]:
        module = "tests.runtime.bundled_cuda_calls"
        out = run_module(module, fake_driver_path, torch_cuda_path, way, TILEOPS_SYNC=sync)
        first, second = re.split(r"^(?=8: )", out, flags=re.MULTILINE)
        return first, second

    first, second = errors("1")
    assert first.startswith(
        "7: the call tileops::bundled_fault(n = 7), config block_M = 64 failed on cuda:1: "
    )
    assert second.startswith("8: a kernel that was launched before this call failed: ")
    # Without it the call that faults returns, and the next one says what was in flight.
    first, second = errors("0")
    assert first == "7: no error\n"
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in second
    assert second.rstrip().endswith(
        "newest first (TILEOPS_SYNC=1 finds the one that failed):\nbundled_fault\nbundled_fault"
    )
