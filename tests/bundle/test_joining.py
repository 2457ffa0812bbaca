"""One name, two programs: bundles and programs with source join where they are one, else say who is in the way."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import tileops
from tests.programs import samples
from tileops.errors import ArgumentError

Run = Callable[..., str]

SOURCE = """
import tileops
import tileops.language as T

SCALE = {scale}


@tileops.jit(name="{name}")
def act(X):
    N = T.const("N")
    X: T.Tensor((N,), T.float32)
    Y = T.empty((N,), T.float32)
    with T.Kernel(1):
        for i in T.Parallel(N):
            Y[i] = X[i] * SCALE
    return Y


@tileops.jit(name="{other}")
def other(X):
    N = T.dynamic("N")
    X: T.Tensor((N,), T.float32)
    Y = T.empty((N,), T.float32)
    with T.Kernel(N) as bx:
        Y[bx] = X[bx] + 1
    return Y
"""
MAKING = """
import sys, tileops
sys.path.insert(0, sys.argv[1])
import programs as p
ops = [(p.act, [{"N": int(n)} for n in sys.argv[3].split(",")])]
tileops.bundle(sys.argv[2], [*ops, p.other], sys.argv[4])
"""


class Maker:
    """Writes the program with a scale to a folder, and bundles of it in processes of their own."""

    def __init__(self, root: Path, run: Run) -> None:
        self.root = root
        self.run = run

    def source(self, scale: float, name: str = "act", other: str = "act_other") -> Path:
        folder = self.root / f"{name.replace(':', '_')}_{other}_{scale}"
        folder.mkdir(exist_ok=True)
        (folder / "programs.py").write_text(SOURCE.format(scale=scale, name=name, other=other))
        return folder

    def bundle(
        self, scale: float, sizes: str, target: str = "cpu", name: str = "act", other: str = "act_other"
    ) -> Path:  # fmt: skip
        place = self.root / "_".join(map(str, (scale, sizes, target, name, other))).replace(
            ":", "_"
        )
        if not place.exists():
            self.run(MAKING, self.source(scale, name, other), place, sizes, target)
        return place


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory, run_python: Run) -> Maker:
    return Maker(tmp_path_factory.mktemp("joining"), run_python)


LOADING = """
import sys, torch, tileops, json
def attempt(*args, **kw):
    try: return sorted(tileops.load_bundle(*args, **kw))
    except tileops.ArgumentError as error: return str(error)
ops = torch.ops.tileops
"""


def test_different_programs_are_refused_with_both_files(make: Maker, run_python: Run) -> None:
    text = LOADING + (
        "print(attempt(sys.argv[1]), attempt(sys.argv[2]), sep='\\n')\n"
        "print(ops.act(torch.ones(4)).tolist())\n"
        "try: ops.act(torch.ones(6))\n"
        "except tileops.CompileMissError: print('miss')\n"
        "print(attempt(sys.argv[2], namespace='vendor'))\n"
        "print(torch.ops.vendor.act(torch.ones(6)).tolist(), ops.act(torch.ones(4)).tolist())\n"
    )
    two, three = make.bundle(2.0, "4"), make.bundle(3.0, "6")
    first, refused, values, miss, beside, both = run_python(text, two, three).splitlines()
    assert first == "['tileops::act', 'tileops::act_other']"
    assert refused == (
        f"{three}/ops/act/op.json: the op tileops::act is another program than that of "
        f"{two}/ops/act/op.json (they differ in: captured values); to have both, load this bundle "
        'with namespace="..." (in C tileops_load_bundle_ex)'
    )
    assert (values, miss) == ("[2.0, 2.0, 2.0, 2.0]", "miss")
    assert beside == "['vendor::act', 'vendor::act_other']"
    assert both == f"{[3.0] * 6} {[2.0] * 4}"


def test_one_program_for_two_targets_joins(make: Maker, run_python: Run) -> None:
    text = LOADING + (
        "print([attempt(path) == ['tileops::act', 'tileops::act_other'] for path in sys.argv[1:]])\n"
        "print(ops.act(torch.ones(4)).tolist(), ops.act(torch.ones(6)).tolist())\n"
        "try: ops.act(torch.ones(7))\n"
        "except tileops.CompileMissError as error: print(error)\n"
    )
    bundles = [make.bundle(2.0, "4"), make.bundle(2.0, "6"), make.bundle(2.0, "4", "cuda:sm_90")]
    for order in (bundles, bundles[::-1]):
        loaded, values, miss = run_python(text, *order).splitlines()
        assert loaded == "[True, True, True]"
        assert values == f"{[2.0] * 4} {[2.0] * 6}"
        assert all(str(path) in miss for path in bundles)
        assert "cuda:sm_90a" in miss


def test_of_several_bundles_all_or_none(make: Maker, run_python: Run) -> None:
    text = LOADING + (
        "print(attempt())\nprint([hasattr(ops, name) for name in ('act', 'act_other')])\n"
    )
    two, three = make.bundle(2.0, "4"), make.bundle(3.0, "6")
    refused, held = run_python(text, TILEOPS_BUNDLE=f"{two}{os.pathsep}{three}").splitlines()
    assert f"{three}/ops/act/op.json" in refused
    assert f"{two}/ops/act/op.json" in refused
    assert held == "[False, False]"
    more = make.bundle(2.0, "6")
    loaded, held = run_python(text, TILEOPS_BUNDLE=f"{two}{os.pathsep}{more}").splitlines()
    assert (loaded, held) == ("['tileops::act', 'tileops::act_other']", "[True, True]")


def test_nothing_of_a_bundle_stays_where_torch_refuses_one_name(
    make: Maker, run_python: Run
) -> None:
    # `act_other` is registered after `act`; another library has its name.
    text = LOADING + (
        "library = torch.library.Library('tileops', 'FRAGMENT')\n"
        "library.define('act_other(Tensor x) -> Tensor')\n"
        "print(attempt(sys.argv[1]))\n"
        "print(hasattr(ops, 'act'), tileops.stats()['launches'])\n"
        "library._destroy()\n"
        "torch.ops.tileops.__dict__.pop('act_other', None)\n"
        "print(attempt(sys.argv[1]))\n"
        "print(ops.act(torch.ones(4)).tolist())\n"
    )
    refused, held, loaded, value = run_python(text, make.bundle(2.0, "4")).splitlines()
    assert "torch refused to define tileops::act_other(" in refused
    assert held == "False 0"
    assert loaded == "['tileops::act', 'tileops::act_other']"
    assert value == f"{[2.0] * 4}"


def test_a_further_name_of_one_op_is_no_name_of_another(make: Maker, run_python: Run) -> None:
    with_alias = shutil.copytree(make.bundle(2.0, "4"), make.root / "with_alias")
    rewrite(with_alias, "act", lambda document: document.update(aliases=["plain_act"]))
    named = make.bundle(2.0, "4", other="plain_act", name="act_2")
    text = LOADING + (
        "for path in sys.argv[1:]: print(attempt(path))\n"
        "print([hasattr(ops, name) for name in ('act', 'plain_act', 'act_2')])\n"
    )
    first, second, held = run_python(text, with_alias, named).splitlines()
    assert first == "['tileops::act', 'tileops::act_other']"
    assert "the name tileops::plain_act is held by" in second
    assert f"{with_alias}/ops/act/op.json" in second
    assert held == "[True, True, False]"
    first, second, held = run_python(text, named, with_alias).splitlines()
    assert f"{named}/ops/plain_act/op.json" in second
    assert held == "[False, True, True]"


def test_two_ops_of_one_bundle_that_would_have_one_name(make: Maker, run_python: Run) -> None:
    spaces = make.bundle(2.0, "4", name="one::act", other="two::act")
    text = LOADING + (
        "print(attempt(sys.argv[1], namespace='both'))\n"
        "print(hasattr(torch.ops.both, 'act'), attempt(sys.argv[1]))\n"
    )
    refused, rest = run_python(text, spaces).splitlines()
    assert "ops/one.act/op.json" in refused
    assert "ops/two.act/op.json" in refused
    assert rest == "False ['one::act', 'two::act']"


# -- format 1 ------------------------------------------------------------------------------------
def rewrite(bundle: Path, op: str, change: Callable[[dict[str, object]], object]) -> Path:
    """Change an op's description and what the index says of it."""
    path = bundle / "ops" / op / "op.json"
    document = json.loads(path.read_text())
    change(document)
    data = json.dumps(document).encode()
    path.write_bytes(data)
    index = json.loads((bundle / "bundle.json").read_text())
    index["ops"][op] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (bundle / "bundle.json").write_text(json.dumps(index))
    return bundle


def format_1(bundle: Path, place: Path) -> Path:
    def change(document: dict[str, object]) -> None:
        document["format"] = 1
        for key in ("definition", "parts"):
            del document[key]
        for variant in document["variants"]:  # type: ignore[attr-defined]
            del variant["digest"]

    shutil.copytree(bundle, place)
    for folder in (place / "ops").iterdir():
        rewrite(place, folder.name, change)
    return place


def test_bundles_of_format_1_stay_alone(make: Maker, run_python: Run, tmp_path: Path) -> None:
    new, more = make.bundle(2.0, "4"), make.bundle(2.0, "6")
    old, older = format_1(new, tmp_path / "old"), format_1(more, tmp_path / "older")
    text = LOADING + (
        "print(attempt(sys.argv[1]))\n"
        "print(attempt(sys.argv[1]) == attempt(sys.argv[1]), ops.__dict__.get('act') is None)\n"
        "print(attempt(sys.argv[2]))\n"
        "print(attempt(sys.argv[2], namespace='beside'))\n"
    )
    for first, second in ((old, new), (new, old), (old, older)):
        loaded, _, refused, beside = run_python(text, first, second).splitlines()
        assert loaded == "['tileops::act', 'tileops::act_other']"
        assert "format 1, which does not tell" in refused
        assert f"{first}/ops/act/op.json" in refused
        assert f"{second}/ops/act/op.json" in refused
        assert beside == "['beside::act', 'beside::act_other']"
    values = LOADING + "attempt(sys.argv[1]); print(ops.act(torch.ones(4)).tolist())"
    assert run_python(values, old) == f"{[2.0] * 4}"


def test_another_trace_of_one_definition_is_refused(make: Maker, run_python: Run) -> None:
    new = make.bundle(2.0, "4")
    other = shutil.copytree(make.bundle(2.0, "6"), make.root / "other_trace")
    rewrite(other, "act", lambda d: d["variants"][0].update(digest="0" * 64))  # type: ignore[index]
    text = LOADING + "print(attempt(sys.argv[1])); print(attempt(sys.argv[2]))"
    _, refused = run_python(text, new, other).splitlines()
    assert refused.startswith(
        f"{other}/ops/act/op.json: the op tileops::act is another program than that of {new}/ops/act"
    )


# -- with source ---------------------------------------------------------------------------------
WITH_SOURCE = """
sys.path.insert(0, sys.argv[2])
def define():
    try:
        import programs
        return programs
    except tileops.ArgumentError as error:
        print(error)
"""


def test_a_program_with_source_and_a_bundle_of_the_same(make: Maker, run_python: Run) -> None:
    environment = {"TILEOPS_STRICT": "1", "TILEOPS_CACHE_DIR": str(make.root / "empty_cache")}
    text = LOADING + WITH_SOURCE + (
        "p = define()\n"
        "print(attempt(sys.argv[1]))\n"
        "print(p.act(torch.ones(4)).tolist(), ops.act is p.act.op._overloadpacket)\n"
        "print(tileops.stats()['compiles'])\n"
        "try: p.act(torch.ones(6))\n"
        "except tileops.CompileMissError: print('miss')\n"
    )  # fmt: skip
    loaded, values, compiles, miss = run_python(
        text, make.bundle(2.0, "4"), make.source(2.0), **environment
    ).splitlines()
    assert loaded == "['tileops::act', 'tileops::act_other']"
    assert (values, compiles, miss) == (f"{[2.0] * 4} True", "0", "miss")
    # The other way round the program takes over the op of the bundle.
    after = LOADING + WITH_SOURCE + (
        "print(attempt(sys.argv[1]))\n"
        "p = define()\n"
        "print(p.act(torch.ones(4)).tolist(), p.act.op is ops.act.default)\n"
        "print(tileops.stats()['compiles'])\n"
    )  # fmt: skip
    lines = run_python(after, make.bundle(2.0, "4"), make.source(2.0), **environment).splitlines()
    assert lines == [loaded, f"{[2.0] * 4} True", "0"]


def test_a_program_with_source_and_a_bundle_of_another(make: Maker, run_python: Run) -> None:
    bundle, source = make.bundle(2.0, "4"), make.source(3.0)
    before = LOADING + WITH_SOURCE + (
        "p = define()\n"
        "print(attempt(sys.argv[1]))\n"
        "print(p.act(torch.ones(4)).tolist(), ops.act(torch.ones(4)).tolist())\n"
        "print(attempt(sys.argv[1], namespace='vendor'), torch.ops.vendor.act(torch.ones(4)).tolist())\n"
    )  # fmt: skip
    refused, values, beside = run_python(before, bundle, source).splitlines()
    assert refused == (
        f"{bundle}/ops/act/op.json: the op tileops::act is defined in this process already, by "
        "programs.act, and that of the bundle is another program (they differ in: captured values); "
        "to have both, load the bundle with namespace=..., or give the program another name with "
        "jit(name=...)"
    )
    assert values == f"{[3.0] * 4} {[3.0] * 4}"
    assert beside == f"['vendor::act', 'vendor::act_other'] {[2.0] * 4}"
    after = LOADING + WITH_SOURCE + (
        "print(attempt(sys.argv[1]))\n"
        "p = define()\n"
        "print(p, ops.act(torch.ones(4)).tolist())\n"
    )  # fmt: skip
    _, error, rest = run_python(after, bundle, source).splitlines()
    assert error == refused
    assert rest == f"None {[2.0] * 4}"


def test_a_named_bundle_of_another_program_gives_no_kernels(make: Maker, run_python: Run) -> None:
    bundle, source = make.bundle(2.0, "4"), make.source(3.0)
    text = LOADING + WITH_SOURCE + (
        "import warnings\n"
        "p = define()\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    try: print(p.act(torch.ones(4)).tolist(), tileops.stats()['compiles'])\n"
        "    except tileops.CompileMissError: print('miss')\n"
        "for w in caught: print(w.message)\n"
    )  # fmt: skip
    both = f"{bundle}{os.pathsep}{make.bundle(3.0, '4')}"
    warning = (
        f"{bundle}/ops/act/op.json: its op tileops::act is another program than that of "
        f"{source}/programs.py:8 (they differ in: captured values); its kernels are not taken"
    )
    for place, strict, expected in (
        (bundle, "", [f"{[3.0] * 4} 1", warning]),
        (bundle, "1", ["miss", warning]),
        (both, "1", [f"{[3.0] * 4} 0", warning]),  # the second bundle has the program
    ):
        cache = make.root / f"cache_{strict}_{len(str(place))}"
        environment = {"TILEOPS_BUNDLE": str(place), "TILEOPS_CACHE_DIR": str(cache)}
        lines = run_python(text, bundle, source, TILEOPS_STRICT=strict, **environment).splitlines()
        assert lines == expected


def test_c_sees_programs_with_source(make: Maker, run_python: Run) -> None:
    text = LOADING + WITH_SOURCE + (
        "import ctypes\n"
        "from pathlib import Path\n"
        "p = define()\n"
        "library = ctypes.CDLL(str(Path(tileops.__file__).parent / 'libtileops.so'))\n"
        "library.tileops_last_error.restype = ctypes.c_char_p\n"
        "print(library.tileops_load_bundle(sys.argv[1].encode()), library.tileops_last_error().decode())\n"
        "print(hasattr(ops, 'act_other'), p.act(torch.ones(4)).tolist())\n"
    )  # fmt: skip
    bundle, source = make.bundle(2.0, "4"), make.source(3.0, other="unrelated")
    refused, rest = run_python(text, bundle, source).splitlines()
    expected = (
        f"-1 ArgumentError: {bundle}/ops/act/op.json: the name tileops::act is held by a program"
    )
    assert refused.startswith(expected)
    assert rest == f"False {[3.0] * 4}"


# -- under another namespace ---------------------------------------------------------------------
def test_a_namespace_of_ones_own(sample_bundle: Path) -> None:
    ops = tileops.load_bundle(sample_bundle, namespace="joining_vendor")
    assert set(ops) >= {"joining_vendor::sample_axpy", "joining_vendor::sample_scaled"}
    op = torch.ops.joining_vendor.sample_axpy
    x = torch.randn(100)
    assert torch.equal(op(x, x, 1.0), x + x)
    compiled = torch.compile(lambda x: op(x * 2, x, 0.5), fullgraph=True, backend="eager")
    assert torch.equal(compiled(x), x * 2)
    torch.library.opcheck(op.default, (x, x, 0.5))
    with pytest.raises(
        tileops.CompileMissError, match=r"^joining_vendor::sample_scaled: no kernel"
    ):
        torch.ops.joining_vendor.sample_scaled(torch.ones(9), factor=3.0)
    with torch.device("meta"), pytest.raises(
        tileops.CompileMissError, match=r"^joining_vendor::sample_scaled: no kernel"
    ):  # fmt: skip
        torch.ops.joining_vendor.sample_scaled(torch.ones(9), factor=3.0)
    assert samples.axpy.op.name() == "tileops::sample_axpy"


@pytest.mark.parametrize("bad", ["", "a-b", "1a", "a::b", "class", "é", 5])
def test_what_is_no_namespace(sample_bundle: Path, bad: object) -> None:
    with pytest.raises(
        ArgumentError, match=r"namespace=\.\.\.\): a namespace of ops: expected ASCII letters"
    ):
        tileops.load_bundle(sample_bundle, namespace=bad)  # type: ignore[arg-type]


def test_options_in_c(sample_bundle: Path) -> None:
    library = ctypes.CDLL(str(Path(tileops.__file__).parent / "libtileops.so"))
    library.tileops_last_error.restype = ctypes.c_char_p
    load = library.tileops_load_bundle_ex
    count = len(list((sample_bundle / "ops").iterdir()))
    path = str(sample_bundle).encode()
    assert load(path, b'{"namespace": "joining_c", "trust": "user"}') == count
    x = torch.randn(10)
    assert torch.equal(torch.ops.joining_c.sample_axpy(x, x, 1.0), x + x)
    for options, message in (
        (b'{"namespace": "a-b"}', "namespace: expected ASCII letters, digits and _, got 'a-b'"),
        (b'{"trust": "all"}', 'trust: expected "shared" or "user", got \'all\''),
        (b'{"trusted": "user"}', "options: unknown member 'trusted'"),
        (b'{"namespace": 5}', "namespace: expected string, got integer"),
        (b"[]", "expected an object"),
        (b"{", "not valid JSON"),
    ):
        assert load(path, options) == -1
        text = library.tileops_last_error().decode()
        assert text.startswith("ArgumentError: ")
        assert message in text
