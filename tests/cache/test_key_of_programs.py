"""The key of real programs: perturbed in every input it changes, moved and surrounded it does not."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cache import samples
from tileops import cache
from tileops.cache import sources
from tileops.codegen.kernel_code import Specialization
from tileops.ir.program import Program
from tileops.jit import compiling, tool_versions
from tileops.target import Target

PROGRAM = """
import tileops
import tileops.language as T


@tileops.jit(out_idx=[-1])
def keyed(N, factor=2.0, block=64, dtype="float32"):
    @T.prim_func
    def main(A: T.Tensor((N,), dtype), B: T.Tensor((N,), dtype)):
        with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * factor

    return main
"""
HASH = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
from tileops.jit import compiling
from tileops.codegen.kernel_code import Specialization
from tileops.target import parse_target
hashes = set()
for name in sys.argv[2:]:
    program = importlib.import_module(name).keyed.get_tir(100)
    for target in ("cpu:x86-64-v3", "cuda:sm_90"):
        asked = compiling.Request(program, parse_target(target), Specialization(True), "f", "")
        hashes.add(f"{target} {compiling.key_of(asked).hash()}")
print(json.dumps({"hashes": sorted(hashes)}))
"""


def _trace(folder: Path, name: str, **arguments: object) -> Program:
    import importlib.util

    path = folder / f"{name}.py"
    path.write_text(PROGRAM)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.keyed.get_tir(**{"N": 100, **arguments})  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return _trace(tmp_path_factory.mktemp("program"), "keyed_program")


@pytest.fixture(scope="module")
def request_(program: Program) -> compiling.Request:
    return compiling.Request(
        program, Target("cuda", "sm_90a"), Specialization(fast=True), "keyed", "test"
    )


def _with_options(request: compiling.Request, **options: str) -> compiling.Request:
    changed = dataclasses.replace(request.program, options=tuple(sorted(options.items())))
    return dataclasses.replace(request, program=changed)


# Each input of the key: a change of it, and the field that must differ for it.
INPUTS: dict[str, tuple[str, Callable[[compiling.Request], compiling.Request]]] = {
    "sm_90 against sm_90a": ("target", lambda r: dataclasses.replace(r, target=Target("cuda", "sm_90"))),
    "sm_100a": ("target", lambda r: dataclasses.replace(r, target=Target("cuda", "sm_100a"))),
    "sm_80": ("target", lambda r: dataclasses.replace(r, target=Target("cuda", "sm_80"))),
    "hip": ("target", lambda r: dataclasses.replace(r, target=Target("hip", "gfx942"))),
    "general": ("specialization", lambda r: dataclasses.replace(r, spec=Specialization(False))),
    "64-bit": ("specialization", lambda r: dataclasses.replace(r, spec=Specialization(True, True))),
    "an option": ("options", lambda r: _with_options(r, **{"tl.enable_fast_math": "true"})),
    "another option": ("options", lambda r: _with_options(r, **{"tl.gemm_f32_precision": "ieee"})),
    "a flag": ("options", lambda r: _with_options(r, compile_flags="-O2")),
}  # fmt: skip


@pytest.mark.parametrize("name", INPUTS)
def test_each_input_of_a_request_is_in_the_key(request_: compiling.Request, name: str) -> None:
    field, change = INPUTS[name]
    before, after = compiling.key_of(request_), compiling.key_of(change(request_))
    assert field in after.differences(before)
    # Another target may have other tools; options are printed with the program too.
    allowed = {field, "toolchain"} if field == "target" else {field, "ir"}
    assert set(after.differences(before)) <= allowed
    assert before.hash() != after.hash()


VALUES = st.fixed_dictionaries(
    {},
    optional={
        "N": st.integers(1, 5000),
        "factor": st.floats(-8, 8, allow_nan=False).filter(lambda x: x != 0),
        "block": st.sampled_from([16, 32, 64, 128, 256]),
        "dtype": st.sampled_from(["float16", "bfloat16", "float32", "float64"]),
    },
)
DEFAULTS = {"N": 100, "factor": 2.0, "block": 64, "dtype": "float32"}


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(VALUES, VALUES)
def test_programs_share_a_key_only_if_they_are_the_same(
    tmp_path: Path, a: dict[str, object], b: dict[str, object]
) -> None:
    def key(arguments: dict[str, object], name: str) -> cache.Key:
        made = _trace(tmp_path, name, **arguments)
        return compiling.key_of(
            compiling.Request(made, Target("cuda", "sm_90a"), Specialization(True), "f", "")
        )

    same = {**DEFAULTS, **a} == {**DEFAULTS, **b}
    first, second = key(a, "one"), key(b, "two")
    assert (first.hash() == second.hash()) == same
    assert first.differences(second) == (() if same else ("ir",))


TOOLS = {
    "cuda:sm_90a": ("triton", "ptxas"),
    "cpu:x86-64-v3": ("g++",),
}


@pytest.mark.parametrize(
    ("target", "tool"), [(t, tool) for t, tools in TOOLS.items() for tool in tools]
)
def test_each_tool_is_in_the_key(
    request_: compiling.Request, monkeypatch: pytest.MonkeyPatch, target: str, tool: str
) -> None:
    kind, _, arch = target.partition(":")
    asked = dataclasses.replace(request_, target=Target(kind, arch))
    before = compiling.key_of(asked)
    versions = tool_versions.of(asked.target)
    assert set(versions) == set(TOOLS[target])
    monkeypatch.setattr(
        tool_versions, "of", lambda target: {**versions, tool: versions[tool] + " changed"}
    )
    assert compiling.key_of(asked).differences(before) == ("toolchain",)


def test_the_generators_are_in_the_key(
    request_: compiling.Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = compiling.key_of(request_)
    monkeypatch.setattr(sources, "digest", lambda: "0" * 64)
    assert compiling.key_of(request_).differences(before) == ("codegen",)


def test_surroundings_are_not_in_the_key(tmp_path: Path) -> None:
    """Another folder, name, place in the file, HOME, directory, hash seed, order of tracing."""
    texts = {
        "plain": PROGRAM,
        "blank_lines": "\n\n# A comment.\n" + PROGRAM.replace("    @T.prim", "\n\n    @T.prim"),
        "comments": PROGRAM.replace("= A[bx", "=  (A)[bx  ").replace("return main", "return main  # !"),
        "other_first": "import tileops.language as T\nimport math\n" + PROGRAM + "\nkeyed.get_tir(7)\n",
        "indented": "if True:\n" + textwrap.indent(PROGRAM, "    "),
    }  # fmt: skip
    found = set()
    for number in range(2):
        folder = tmp_path / f"folder {number}"
        folder.mkdir()
        for name, text in texts.items():
            (folder / f"{name}.py").write_text(text)
        names = sorted(texts, reverse=bool(number))
        env = samples.environment(
            tmp_path / "cache", HOME=str(folder), PYTHONHASHSEED=str(number), TZ="Asia/Tokyo"
        )
        process = samples.start(HASH, [folder, *names], env=env, cwd=folder)
        found.add(tuple(samples.result(process)["hashes"]))  # type: ignore[arg-type]
    assert len(found) == 1
    assert len(found.pop()) == 2  # one for each target


def test_the_recalled_digest_follows_the_sources(root: Path, tmp_path: Path) -> None:
    package, headers = tmp_path / "tileops", tmp_path / "csrc"
    samples.generators(package)
    headers.mkdir()
    (headers / "gemm.h").write_text("// gemm\n")
    settled = sources._SETTLED_SECONDS
    try:
        sources._SETTLED_SECONDS = -1.0
        first = sources.remembered(package, headers)
        assert first == sources.compute(package, headers) == sources.remembered(package, headers)
        for path in (package / "passes" / "one.py", package / "target.py", headers / "gemm.h"):
            path.write_text(path.read_text().upper())  # the same size
            changed = sources.remembered(package, headers)
            assert changed == sources.compute(package, headers) != first
            first = changed
        (package / "ir" / "new.py").write_text("")
        assert sources.remembered(package, headers) == sources.compute(package, headers) != first
    finally:
        sources._SETTLED_SECONDS = settled


def test_what_was_written_just_now_is_not_remembered(root: Path, tmp_path: Path) -> None:
    package, headers = tmp_path / "tileops", tmp_path / "csrc"
    samples.generators(package)
    headers.mkdir()
    assert sources.remembered(package, headers) == sources.compute(package, headers)
    assert not (root / ".state" / "facts").exists()
