"""``target="interpreter"``: results, and ``print`` and ``breakpoint`` of the caller's own program."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import tileops
import tileops.language as T
from tileops.errors import (
    ArgumentError,
    ArgumentTypeError,
    NotDifferentiableError,
    ProgramValueError,
    TileopsError,
)

ROOT = Path(__file__).resolve().parents[2]


@tileops.jit(target="interpreter")
def scaled(A, factor: int = 2):
    M, N = T.const("M, N")
    A: T.Tensor((M, N), T.float16)
    C = T.empty((M, N), T.float16)
    with T.Kernel(T.ceildiv(M, 2), threads=128) as bx:
        tile = T.alloc_fragment((2, N), T.float16)
        step = T.alloc_var(T.int32)
        step = bx + 1
        T.copy(A[bx * 2, 0], tile)
        for i, j in T.Parallel(2, N):
            tile[i, j] = tile[i, j] * factor
        if bx == 1:
            print("block", bx, step, "{}", tile, A[0, 1], sep="|", end="!\n")
        T.copy(tile, C[bx * 2, 0])
    return C


@T.prim_func
def doubled(A: T.Tensor((4, 48), T.float32), B: T.Tensor((4, 48), T.float32)):
    with T.Kernel(2, threads=128) as bx:
        tile = T.alloc_fragment((2, 48), T.float32)
        T.copy(A[bx * 2, 0], tile)
        for k in range(2):
            print("turn", k, tile[0, 46:48])
        for i, j in T.Parallel(2, 48):
            tile[i, j] = tile[i, j] * 2
        print(B)
        T.copy(tile, B[bx * 2, 0])


def test_a_call_gives_what_every_executor_gives_and_prints_where_the_program_is(
    capsys: Any,
) -> None:
    a = torch.randn(5, 6).half()
    assert torch.equal(scaled(a, factor=3), a * 3)
    tile = (a * 3)[2:4]
    assert capsys.readouterr().out == f"block|1|2|{{}}|{tile}|{a[0, 1].item()}!\n"


def test_a_kernel_of_compile_prints_in_its_loops_and_shows_whole_tensors(capsys: Any) -> None:
    kernel = tileops.compile(doubled, out_idx=-1, target="interpreter")
    a = torch.randn(4, 48)
    assert torch.equal(kernel(a), a * 2)
    lines = capsys.readouterr().out
    for block in range(2):
        for k in range(2):
            assert f"turn {k} {a[block * 2 : block * 2 + 1, 46:48]}\n" in lines
    assert str(torch.cat([a[:2] * 2, torch.full((2, 48), torch.nan)])) in lines
    assert "inspect_values(" in kernel.get_kernel_source()
    assert torch.equal(pickle.loads(pickle.dumps(kernel))(a), a * 2)
    with pytest.raises(ArgumentTypeError, match="missing a required argument"):
        kernel()
    for what in ("op", "artifact", "n_regs"):
        with pytest.raises(ArgumentError, match="for the interpreter"):
            getattr(kernel, what)


def test_a_lazy_function_and_the_default_target(capsys: Any) -> None:
    @tileops.jit(out_idx=-1)
    def lazy(n):
        @T.prim_func
        def main(A: T.Tensor((n,), T.int32), B: T.Tensor((n,), T.int32)):
            with T.Kernel(1):
                tile = T.alloc_shared((n,), T.int32)
                T.copy(A, tile)
                print(tile)
                T.copy(tile, B)

        return main

    a = torch.arange(8, dtype=torch.int32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.equal(lazy(8)(a), a)
    assert str(a) not in capsys.readouterr().out

    with tileops.option.target("interpreter"), warnings.catch_warnings():
        warnings.simplefilter("error")

        @tileops.jit(out_idx=-1)
        def there(n):
            return lazy.func(n)

        assert torch.equal(there(8)(a), a)
    assert str(a) in capsys.readouterr().out


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "uint8", "bool", "float64"])
def test_tiles_of_every_kind_are_shown_as_what_they_are(dtype: str, capsys: Any) -> None:
    @tileops.jit(target="interpreter")
    def shown(A):
        A: T.Tensor((576,), dtype)
        B = T.empty((576,), dtype)
        with T.Kernel(1):
            tile = T.alloc_shared((576,), dtype)
            T.copy(A, tile)
            print(tile)
            T.copy(tile, B)
        return B

    a = (torch.arange(576) % 2).to(getattr(torch, dtype))
    assert torch.equal(shown(a).float(), a.float())
    found = eval(capsys.readouterr().out.replace("tensor", "torch.tensor"))
    assert (found.dtype, found.shape) == (a.dtype, a.shape)


def test_in_place_arguments_scalars_and_tuples() -> None:
    @tileops.jit(target="interpreter")
    def filled(A, x: T.float32, n: T.int32):
        M = T.const("M")
        A: T.Tensor((M,), T.float32)
        B = T.empty((M,), T.int32)
        with T.Kernel(1):
            for i in T.Parallel(M):
                A[i] = A[i] + x
                B[i] = n
        return (B,)

    a = torch.zeros(3)
    (b,) = filled(a, 1.5, 7)
    assert torch.equal(a, torch.full((3,), 1.5))
    assert b.tolist() == [7, 7, 7]
    with pytest.raises(TypeError, match="'n'"):
        filled(a, 1.5, 2.5)
    with pytest.raises(ArgumentError, match="dimensions"):
        filled(torch.zeros(3, 3), 1.5, 7)


def test_a_failed_assertion_is_located() -> None:
    @tileops.jit(target="interpreter")
    def failing(A):
        A: T.Tensor((4,), T.float32)
        with T.Kernel(1):
            T.device_assert(A[0] > 0, "is positive")
            A[0] = 1.0

    failing(torch.ones(4))
    with pytest.raises(TileopsError, match=r"is positive\n  at .*test_interpreter_target.py"):
        failing(torch.zeros(4))


def test_print_in_a_parallel_loop_is_refused() -> None:
    @tileops.jit(target="interpreter")
    def parallel(A):
        A: T.Tensor((4,), T.float32)
        with T.Kernel(1):
            for i in T.Parallel(4):
                print(A[i])

    with pytest.raises(ProgramValueError, match="between tile operations"):
        parallel(torch.zeros(4))


def test_other_targets_print_while_they_trace_and_say_what_does_not(capsys: Any) -> None:
    @tileops.jit(target="cpu")
    def other(A):
        A: T.Tensor((4,), T.float32)
        with T.Kernel(1):
            tile = T.alloc_shared((4,), T.float32)
            T.copy(A, tile)
            print("at trace time")
            print(tile)

    with pytest.warns(UserWarning, match="target='interpreter'"):
        other.get_tir()
    assert "<tile: float32[4] (shared)>" in capsys.readouterr().out


def test_the_torch_op_of_an_interpreted_program_is_refused() -> None:
    with pytest.raises(TileopsError, match="compiled for interpreter"):
        scaled.op(torch.zeros(2, 2).half())


PROGRAM = """
import torch, tileops, tileops.language as T

@T.macro
def halve(tile, n):
    part = n + 1
    breakpoint()
    for i in T.Parallel(4):
        tile[i] = tile[i] / 2

@tileops.jit(target="interpreter")
def stopped(A, n: int = 5):
    A: T.Tensor((4,), T.float32)
    with T.Kernel(2) as bx:
        unset = T.alloc_fragment((4,), T.float32)
        tile = T.alloc_shared((4,), T.float32)
        T.copy(A, tile)
        for k in range(1):
            inner = k + 1
        if bx == 1:
            breakpoint()
        else:
            halve(tile, n)
        T.copy(tile, A)

a = torch.ones(4)
try:
    stopped(a)
except BaseException as error:
    print("raised", type(error).__name__)
print(a)
"""


def debugged(tmp_path: Path, commands: str, **environment: str) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(path)],
        input=commands,
        capture_output=True,
        text=True,
        timeout=120,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "HOME": str(tmp_path),
            **environment,
        },
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_breakpoint_stops_in_the_terminal_at_the_programs_line(tmp_path: Path) -> None:
    out = debugged(tmp_path, "p part, tile\nc\np tile, A, bx, n, 'inner' in locals()\nc\n")
    assert "program.py(7)" in out  # in the macro
    assert "(6, tensor([1., 1., 1., 1.]))" in out
    assert "program.py(21)" in out
    half = "tensor([0.5000, 0.5000, 0.5000, 0.5000])"
    assert f"({half}, {half}, 1, 5, False)" in out
    assert out.endswith(f"{half}\n")


def test_leaving_the_debugger_leaves_the_call(tmp_path: Path) -> None:
    assert "raised BdbQuit" in debugged(tmp_path, "q\n")


def test_a_breakpoint_is_pythons_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def hook() -> None:
        frame = sys._getframe(1)
        seen.append((frame.f_code.co_name, frame.f_lineno, frame.f_locals["tile"].tolist()))
        with pytest.raises(ArgumentError, match="stopped at a breakpoint"):
            stopping(torch.zeros(1))

    @tileops.jit(target="interpreter")
    def stopping(A):
        A: T.Tensor((1,), T.float32)
        with T.Kernel(1):
            tile = T.alloc_shared((1,), T.float32)
            T.copy(A, tile)
            breakpoint()

    monkeypatch.setattr(sys, "breakpointhook", hook)
    stopping(torch.ones(1))
    assert seen == [("stopping", stopping.func.__code__.co_firstlineno + 6, [1.0])]


def test_option_check_names_an_index_that_is_outside() -> None:
    @tileops.jit(target="interpreter")
    def outside(A, n: T.int32):
        A: T.Tensor((4,), T.float32)
        with T.Kernel(1):
            tile = T.alloc_shared((4,), T.float32)
            T.copy(A, tile)
            print(tile)
            tile[n] = 1.0
            T.copy(tile, A)

    with tileops.option.check(), pytest.raises(ArgumentError, match="index 9 is outside") as error:
        outside(torch.ones(4), 9)
    assert "test_interpreter_target.py" in str(error.value)


def test_print_takes_what_pythons_print_takes_or_refuses_it(capsys: Any) -> None:
    @tileops.jit(target="interpreter")
    def printing(A, where, sep):
        A: T.Tensor((2,), T.float32)
        with T.Kernel(1):
            print(A[0], A[1], sep=sep, end=None, file=where, flush=True)

    a = torch.tensor([1.0, 2.0])
    printing(a, None, None)
    assert capsys.readouterr().out == "1.0 2.0\n"
    with pytest.raises(ProgramValueError, match="stdout alone"):
        printing(a, sys.stderr, "-")


@T.prim_func
def tripled(A: T.Tensor((4,), T.float16), B: T.Tensor((4,), T.float16)):
    with T.Kernel(1):
        t = T.alloc_fragment((4,), T.float16)
        T.copy(A, t)
        for i in T.Parallel(4):
            t[i] = t[i] * 3
        T.copy(t, B)


@tileops.jit(target="interpreter")
def counted(A, n: T.int32):
    A: T.Tensor((4,), T.float32)
    B = T.empty((4,), T.float32)
    with T.Kernel(1):
        t = T.alloc_fragment((4,), T.float32)
        T.copy(A, t)
        for _ in T.serial(n):
            for i in T.Parallel(4):
                t[i] = t[i] + 1
        T.copy(t, B)
    return B


@tileops.jit(target="interpreter")
def into(A, B):
    A: T.Tensor((4,), T.float32)
    B: T.Tensor((4,), T.float32)
    with T.Kernel(1):
        for i in T.Parallel(4):
            A[i] = A[i] + 1
            B[i] = A[i] + 10


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (torch.zeros(4), "argument 'A': expected dtype float16, got float32"),
        (torch.zeros(4).int(), "argument 'A': expected dtype float16"),
        (torch.zeros(5).half(), "argument 'A': expected dimension 0 to be 4"),
        (torch.zeros(1, 4).half(), "argument 'A': expected"),
        (torch.zeros(8).half()[::2], "argument 'A'.*contiguous"),
        ([1.0], "argument 'A': expected a tensor, got list"),
        (None, "argument 'A': expected a tensor, got NoneType"),
        (torch.zeros(4, device="meta").half(), "argument 'A'.*a meta tensor"),
    ],
    ids=["float32", "int32", "size", "rank", "strides", "list", "None", "meta"],
)
def test_a_kernel_refuses_what_a_compiled_one_refuses(wrong: Any, said: str) -> None:
    kernel = tileops.compile(tripled, target="interpreter")
    with pytest.raises((ArgumentError, ArgumentTypeError), match=said):
        kernel(wrong, torch.zeros(4).half())


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**40, 2.5, None, "x"])
def test_scalars_fit_their_dtype(value: Any) -> None:
    with pytest.raises(
        (ArgumentError, ArgumentTypeError), match="argument 'n': expected a value of int32"
    ):
        counted(torch.zeros(4), value)


def test_written_arguments_share_no_memory() -> None:
    a = torch.zeros(8)
    for pair in ((a[:4], a[2:6]), (a[:4], a[:4])):
        with pytest.raises(ArgumentError, match="shares memory"):
            into(*pair)
    assert not a.any()
    into(a[:4], a[4:])
    assert a.tolist() == [1.0] * 4 + [11.0] * 4
    with pytest.raises(ArgumentError, match="a leaf that requires grad"):
        into(torch.zeros(4, requires_grad=True), torch.zeros(4))


def test_torch_does_not_take_a_result_for_a_constant() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    with pytest.raises(ArgumentError, match="cannot trace or transform"):
        make_fx(lambda x: counted(x, 1) * 1)(torch.ones(4))
    with pytest.raises(ArgumentError, match="cannot trace or transform"):
        torch.vmap(lambda x: counted(x, 1))(torch.ones(2, 4))
    x = torch.ones(4, requires_grad=True)
    with pytest.raises(NotDifferentiableError, match="counted"):
        (counted(x, 1) * x).sum().backward()
    with torch.no_grad():
        assert counted(x, 1).tolist() == [2.0] * 4


def test_an_interrupted_call_leaves_nothing_to_the_next() -> None:
    def interrupt(number: int, frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        assert counted(torch.zeros(4), 1).tolist() == [1.0] * 4  # the process is there
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(TimeoutError):
            counted(torch.zeros(4), 10**6)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    for n in (2, 3, 4):
        assert counted(torch.full((4,), 100.0), n).tolist() == [100.0 + n] * 4


def test_modules_of_the_working_folder_are_not_the_interpreters(tmp_path: Path) -> None:
    (tmp_path / "random.py").write_text("raise RuntimeError('a module of the user')\n")
    script = tmp_path / "elsewhere" / "program.py"
    script.parent.mkdir()
    script.write_text(
        "import torch\nfrom tests.jit.test_interpreter_target import counted\n"
        "print(counted(torch.zeros(4), 2).tolist())\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout.splitlines()[-1:] == ["[2.0, 2.0, 2.0, 2.0]"], done.stderr


def encoded(dtype: str) -> Any:
    @tileops.jit(target="interpreter", name=f"encoded_{dtype}")
    def shown(A, kind: str = dtype):
        A: T.Tensor((2, 16), kind)
        B = T.empty((2, 16), T.float32)
        with T.Kernel(1):
            print(A)
            T.copy(A, B)
        return B

    return shown


@pytest.mark.parametrize(
    "dtype", ["float8_e8m0fnu", "float4_e2m1fn", "int4", "uint4", "float8_e5m2"]
)
def test_a_tensor_of_a_narrow_dtype_prints_its_elements(
    dtype: str, capsys: pytest.CaptureFixture[str]
) -> None:
    narrow = dtype.startswith("float8")
    raw = torch.arange(32 if narrow else 16, dtype=torch.uint8).reshape(2, -1)
    raw = raw + 110 if narrow else raw * 17
    stored = {
        "float8_e8m0fnu": torch.float8_e8m0fnu,
        "float8_e5m2": torch.float8_e5m2,
        "int4": torch.int8,
    }
    result = encoded(dtype)(raw.view(stored.get(dtype, torch.uint8)))
    printed = capsys.readouterr().out
    tensor = eval(
        printed.strip(),
        {"tensor": torch.tensor, "torch": torch, "nan": float("nan"), "inf": float("inf")},
    )
    assert tensor.shape == (2, 16)
    assert torch.allclose(tensor.float(), result, rtol=1e-3, equal_nan=True)
