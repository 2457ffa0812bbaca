"""``python -m tileops check``: what it finds in a file that it does not run, and where."""

from __future__ import annotations

import ast
import json
import textwrap
from pathlib import Path

import pytest

from tests.frontend import bad_programs
from tileops.cli import check
from tileops.cli.check_paths import paths_of
from tileops.cli.main import main
from tileops.language import missing

ROOT = Path(__file__).parents[2]


def found(text: str) -> list[tuple[int, int, str]]:
    """Line, column and construct of each finding in a file's text."""
    report = check.analyze(textwrap.dedent(text).lstrip("\n"))
    return [(f.line, f.column, f.construct) for f in report.findings]


def body(*lines: str) -> list[tuple[int, int, str]]:
    """Findings in the body of one program, whose first line is line 5 and starts in column 9."""
    head = [
        "import tileops.language as T",
        "@T.prim_func",
        "def main(A: T.Tensor((64, 64), T.float16)):",
        "    with T.Kernel(1, threads=128) as bx:",
    ]
    return found("\n".join([*head, *(f"        {line}" for line in lines)]))


def test_a_program_that_is_supported() -> None:
    assert body("s = T.alloc_shared((64, 64), T.float16)", "T.copy(A, s[0:64, :])") == []


@pytest.mark.parametrize(
    ("imports", "used"),
    [
        ("import tilelang.language as T", "T"),
        ("import tileops.language as T", "T"),
        ("import tilelang.language as L", "L"),
        ("from tilelang import language as T", "T"),
        ("from tileops import language", "language"),
        ("import tilelang", "tilelang.language"),
        ("import tilelang as tl", "tl.language"),
        ("import tilelang.language", "tilelang.language"),
        ("import tilelang\nT = tilelang.language", "T"),
        ("if True:\n    import tilelang.language as T", "T"),
    ],
)
def test_every_way_to_import_the_language(imports: str, used: str) -> None:
    line = imports.count("\n") + 2
    assert found(f"{imports}\nx = {used}.alloc_tmem(1)\n{used}.gemm\n") == [
        (line, 5, "T.alloc_tmem")
    ]


def test_names_imported_one_by_one_are_reported_at_their_import() -> None:
    text = """
        from tilelang.language import copy, alloc_tmem as tm, nonsense
        tm((128, 128), "float32")
        copy(1, 2, tma=True)
    """
    assert found(text) == [
        (1, 37, "T.alloc_tmem"),
        (1, 55, "T.nonsense"),
        (3, 16, "T.copy(tma=...)"),
    ]


def test_an_alias_of_another_package_is_not_the_language() -> None:
    assert found("import torch as T\nimport tilelang\nT.alloc_tmem(1)\n") == []


def test_a_file_without_the_language() -> None:
    report = check.analyze("import torch as T\nT.alloc_tmem(1)\n")
    assert not report.has_language
    assert report.findings == ()


@pytest.mark.parametrize("name", missing.all_names())
def test_every_unsupported_name_is_found_with_its_reason(name: str) -> None:
    source = f"import tilelang.language as T\n\ndef f():\n    return T.{name}\n"
    (finding,) = check.analyze(source).findings
    assert (finding.line, finding.column, finding.construct) == (4, 12, f"T.{name}")
    reason = missing.lookup(name)
    assert reason is not None
    assert finding.reason.startswith(reason.reason)


def test_every_supported_name_is_accepted() -> None:
    names = check.language.__all__
    source = "import tilelang.language as T\n" + "\n".join(f"T.{name}" for name in names)
    assert check.analyze(source).findings == ()


def test_unknown_names_and_vector_types() -> None:
    assert body(
        "T.frobnicate(A)",
        "v = T.float16x2(1) + T.uint32x3(1)",
        "s = T.alloc_shared((4,), 'float16x2', scope='shared')",
        "t = T.alloc_shared((4,), dtype='int8x16')",
        "p = T.bfloat16(A[0, 0], A[0, 1])",
    ) == [
        (5, 9, "T.frobnicate"),
        (6, 30, "T.uint32x3"),
        (7, 34, "'float16x2'"),
        (8, 40, "'int8x16'"),
        (9, 13, "T.bfloat16"),
    ]


def test_text_that_only_looks_like_a_vector_type() -> None:
    assert body("T.print(A[0, 0], 'int8x2')", "T.alloc_shared((4,), 'integersx2')") == []


def test_arguments() -> None:
    assert body(
        "T.sync_threads()",
        "T.mbarrier_arrive(A, 1)",
        "T.tma_copy(A, A, barrier=A, cluster_mask=3)",
        "T.gemm(A, A, A, mbar=A)",
        "T.gemm(A, A, A, False, True, T.GemmWarpPolicy.FullRow, False, 1, A)",
        "T.gemm(A, A, A, mbar=None)",
        "s = T.alloc_shared((4,), 'float16', 'wmma.matrix_a')",
        "x = T.cast(A[0, 0], 'float8_e4m3fn', round='rs')",
        "y = T.ieee_add(x, x, 'rz')",
        "T.copy(A, s, colour=3)",
    ) == [
        (6, 30, "T.mbarrier_arrive(cta_id=...)"),
        (7, 50, "T.tma_copy(cluster_mask=...)"),
        (8, 30, "T.gemm(mbar=...)"),
        (9, 74, "T.gemm(mbar=...)"),
        (11, 45, "T.alloc_shared(scope=...)"),
        (12, 52, "T.cast(round=...)"),
        (14, 29, "T.copy(colour=...)"),
    ]


def test_a_prelude_of_c_text() -> None:
    text = """
        import tilelang.language as T
        def f():
            with T.Kernel(1, threads=1, prelude="#include <x>"):
                pass
    """
    assert found(text) == [(3, 41, "T.Kernel(prelude=...)")]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("try:", "    T.clear(A)", "finally:", "    pass"), (5, 9, "`try`")),
        (("x = A[0, 0]", "del x"), (6, 9, "`del`")),
        (("match 1:", "    case 1:", "        T.clear(A)"), (5, 9, "`match`")),
        (("if (n := A[0, 0]) > 0:", "    A[0, 1] = n"), (5, 13, "`:=`")),
        (("while True:", "    T.clear(A)"), (5, 15, "`while True`")),
        (("for i in [1, 2]:", "    A[i, 0] = 1"), (5, 18, "`for` over a collection")),
        (("for i, j in zip(a, b):", "    A[i, j] = 1"), (5, 21, "`for` over a collection")),
        (("for k, v in d.items():", "    A[k, v] = 1"), (5, 21, "`for` over a collection")),
        (("for i in range(2):", "    pass", "else:", "    T.clear(A)"), (8, 13, "`else` of a loop")),
        (("for x.y in range(2):", "    pass"), (5, 13, "a loop variable that is not a name")),
        (("A.tag = 3",), (5, 9, "assignment to an attribute")),
        (("A[0:8, 0] = 0.0",), (5, 9, "assignment to a slice")),
        (("T.copy(A[0:16:2, 0], A)",), (5, 23, "a slice with a step")),
        (("class C:", "    pass"), (5, 9, "a class definition")),
        (("global g", "g = 1"), (5, 9, "`global`")),
        (("yield A",), (5, 9, "`yield`")),
    ],
)  # fmt: skip
def test_forms(lines: tuple[str, ...], expected: tuple[int, int, str]) -> None:
    assert body(*lines) == [expected]


def test_forms_outside_programs_are_plain_python() -> None:
    text = """
        import tilelang
        import tilelang.language as T

        @tilelang.jit(out_idx=[-1])
        def outer(shape):
            try:
                n = shape[::2]
            finally:
                pass
            for x in [1, 2]:
                self.x = x

            @T.prim_func
            def main(A: T.Tensor((64,), "float16")):
                def helper(values):
                    for v in list(values):
                        del v
                with T.Kernel(1) as bx:
                    sizes = [s for s in shape[::2]]
                    A[bx] = sizes[0]
            return main
    """
    assert found(text) == []


def test_an_eager_program_is_a_program() -> None:
    text = """
        import tilelang
        import tilelang.language as T

        @tilelang.jit
        def f(A):
            N = T.const("N")
            A: T.Tensor((N,), T.float16)
            C = T.empty((N,), T.float16)
            with T.Kernel(1) as bx:
                s = T.alloc_shared((64,), T.float16)
                T.annotate_layout({s: 1, C: 2})
                try:
                    T.copy(A, s)
                except ValueError:
                    pass
            return C
    """
    assert found(text) == [(12, 9, "`try`")]


def test_columns_count_characters() -> None:
    assert found('import tilelang.language as T\nx = "ä→", T.match_buffer\n') == [
        (2, 11, "T.match_buffer")
    ]


def test_modules_and_names_that_do_not_exist() -> None:
    text = """
        import tilelang
        import tilelang.autodd
        from tilelang.profiler import do_bench, frobnicate
        from tilelang import tvm
        from tvm import te, tirx, DataType
        tilelang.jit
        tilelang.nonsense()
        tilelang.PassConfigKey.TL_ENABLE_FAST_MATH
        from tilelang.carver.arch import driver
        from tilelang.transform.below_a_module import something
        import tvm.script
        tirx.const(1, "int32") + tirx.Evaluate
        from tilelang.cuda.intrinsics.layout.mma_layout import make_mma_swizzle_layout
    """
    assert found(text) == [
        (2, 8, "tileops.autodd"),
        (3, 41, "tileops.profiler.frobnicate"),
        (5, 17, "tvm.te"),
        (7, 1, "tileops.nonsense"),
        (10, 47, "tileops.transform.below_a_module"),
        (11, 8, "tvm.script"),
        (12, 26, "tvm.tirx.Evaluate"),
    ]


def test_what_a_trace_refuses_as_a_form_is_found() -> None:
    source = (ROOT / "tests/frontend/bad_programs.py").read_text()
    lines = {f.line for f in check.analyze(source).findings}
    functions = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]
    hit = {f.name for f in functions if any(f.lineno <= n <= (f.end_lineno or 0) for n in lines)}
    assert hit == {
        "attribute_assignment", "cast_towards_zero", "cast_with_an_unknown_rounding",
        "loop_over_a_list", "slice_with_a_step", "stochastic_cast", "stochastic_cast_without_bits",
        "store_to_a_slice", "try_statement", "while_true",
    }  # fmt: skip
    assert hasattr(bad_programs, "while_true")


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_the_examples_are_supported(path: Path) -> None:
    assert check.analyze(path.read_text(), str(path)).findings == ()


# -- the command -------------------------------------------------------------------------------
@pytest.fixture
def bad_file(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(
        "raise SystemExit('it was run')\nimport tilelang.language as T\nT.match_buffer\n"
    )
    return path


def test_the_command_prints_places_and_reasons(
    bad_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(bad_file)]) == 1
    assert capsys.readouterr().out == (
        f"{bad_file}:3:1: T.match_buffer: a raw pointer; tileops does not have it, on any target; "
        "instead: pass the tensor; T.make_tensor makes one of an address\n"
        f"{bad_file}: 1 thing is not supported\n"
    )


def test_the_command_prints_json(bad_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--json", str(bad_file), str(ROOT / "examples/matmul.py")]) == 1
    first, second = json.loads(capsys.readouterr().out)
    assert first["file"] == str(bad_file)
    assert not first["supported"]
    assert first["findings"] == [
        {
            "line": 3, "column": 1, "construct": "T.match_buffer",
            "reason": "a raw pointer; tileops does not have it, on any target; instead: pass the "
            "tensor; T.make_tensor makes one of an address",
        }
    ]  # fmt: skip
    assert second["supported"]
    assert second["findings"] == []
    uses = {use["construct"]: use["paths"] for use in second["uses"]}
    assert uses["T.gemm"].endswith("on sm_90 Gluon in roles where a schedule fits the launch")


def test_each_construct_has_the_paths_that_take_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "import tilelang.language as T\n"
        "T.exp(T.exp(x))\n"
        "T.barrier_wait(b, 0)\n"
        "T.use_swizzle(10); tx = T.get_thread_binding(0)\n"
        "T.exp\n"
    )
    assert main(["check", "--constructs", str(path)]) == 0
    assert capsys.readouterr().out == (
        f"{path}: T.barrier_wait, line 3: Gluon in roles for sm_90, C++ in one order for CPUs\n"
        f"{path}: T.exp, line 2, 5: Triton for GPUs, C++ for CPUs\n"
        f"{path}: T.get_thread_binding, line 4: loops over the threads of a block: Triton for "
        "GPUs, C++ for CPUs; on sm_90 roles where it chooses them; as statements of single "
        "threads: CUDA C++ for NVIDIA's GPUs, fibers on CPUs\n"
        f"{path}: T.use_swizzle, line 4: a hint, accepted everywhere; results do not depend on it\n"
        f"{path}: everything that can be told without running it is supported\n"
    )


def test_every_construct_has_paths_and_every_refusal_an_instead() -> None:
    assert all(paths_of(name) for name in check.language.__all__)
    assert {r for r in missing.by_reason() if r not in missing.INSTEAD_OF} == set()


def test_the_status_of_a_supported_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(ROOT / "examples/matmul.py")]) == 0
    assert "is supported" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["def f(:\n", "\x00"])
def test_a_file_that_is_not_python(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.py"
    path.write_text(text)
    assert main(["check", str(path)]) == 2
    assert "is not Python" in capsys.readouterr().err
