"""Pass configs, compile flags and targets: what they accept and what they mean."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tileops
import tileops.language as T
from tests.programs import samples
from tileops import option
from tileops.errors import ArgumentError, ArgumentTypeError
from tileops.jit.targets import default_target, is_runnable_on, requested_target
from tileops.pass_configs import EFFECTIVE, PassConfigKey, merged, options_of
from tileops.target import Target, parse_target


def test_every_key_is_accepted_by_member_and_by_text() -> None:
    values = {PassConfigKey.TL_GEMM_F32_PRECISION: "ieee", PassConfigKey.SCHEDULE: {"depth": 3}}
    for key in PassConfigKey:
        value = values.get(key, True)
        assert options_of({key: value}) == options_of({key.value: value})
        assert bool(options_of({key: value})) == (key.value in EFFECTIVE)


def test_values_become_sorted_text() -> None:
    configs = {
        PassConfigKey.TL_PTXAS_REGISTER_USAGE_LEVEL: 5,
        "tl.enable_fast_math": True,
        "tl.disable_tma_lower": False,
        "tl.device_compile_flags": None,
    }
    assert options_of(configs, ["-O2", "-g0"]) == (
        ("compile_flags", "-O2 -g0"),
        ("tl.disable_tma_lower", "false"),
        ("tl.enable_fast_math", "true"),
        ("tl.ptxas_register_usage_level", "5"),
    )


def test_choices_for_schedules_have_one_text() -> None:
    one = options_of({"tileops.schedule": {"persistent": False, "groups": 1}})
    assert one == options_of({PassConfigKey.SCHEDULE: {"groups": 1, "persistent": False}})
    assert one == (("tileops.schedule", '{"groups": 1, "persistent": false}'),)
    # No choice overrides those of the body, as False does with other keys.
    assert options_of({"tileops.schedule": {}}) == (("tileops.schedule", "false"),)
    assert merged(dict(one), dict(options_of({"tileops.schedule": {}}))) == ()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (True, "tileops.schedule must be a dict of choices, got bool"),
        ({"group": 1}, "tileops.schedule: unknown choice 'group'; there are path, groups, depth"),
        ({"groups": 4}, "tileops.schedule: groups must be one of 1, 2, 3, got 4"),
        ({"groups": True}, "tileops.schedule: groups must be one of 1, 2, 3, got True"),
        ({"staged": 1}, "tileops.schedule: staged must be one of True, False, got 1"),
        ({"path": "cuda"}, "tileops.schedule: path must be one of 'roles', 'triton', got 'cuda'"),
    ],
)
def test_bad_choices_for_schedules(value: object, message: str) -> None:
    with pytest.raises((ArgumentError, ArgumentTypeError), match=re.escape(message)):
        options_of({"tileops.schedule": value})


def test_bad_keys_and_values() -> None:
    with pytest.raises(ArgumentTypeError, match="must be a PassConfigKey"):
        options_of({5: True})
    with pytest.raises(ArgumentTypeError, match="pass_configs: expected a mapping, got int"):
        options_of(3)
    with pytest.raises(ArgumentTypeError, match="compile_flags: expected text or texts, got int"):
        options_of(None, 3)
    for name, value in (
        ("mutates", 3),
        ("debug_root_path", 3),
        ("name", b"x"),
        ("name", Path("x")),
    ):
        with pytest.raises(ArgumentTypeError, match=f"{name}: expected .*, got"):
            tileops.jit(**{name: value})
    for programs in (None, samples.axpy):
        with pytest.raises(ArgumentTypeError, match="warmup takes a list of programs"):
            tileops.warmup(programs)
    with pytest.raises(ArgumentTypeError, match="expected a path, got int"):
        tileops.option.cache_dir(3)
    with pytest.raises(ArgumentError, match="unknown key"):
        options_of({"tl.nothing": True})
    with pytest.raises(ArgumentError, match="must be one of tf32, tf32x3, ieee"):
        options_of({"tl.gemm_f32_precision": "half"})


def test_options_are_part_of_the_program_and_ignored_ones_are_not() -> None:
    func = samples.lazy_add.func(70)
    plain = tileops.compile(func, out_idx=[2])
    ignored = tileops.compile(func, out_idx=[2], pass_configs={"tl.disable_wgmma": True})
    fast = tileops.compile(func, out_idx=[2], pass_configs={"tl.enable_fast_math": True})
    assert ignored.name == plain.name
    assert fast.name != plain.name


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("cuda:sm_90", Target("cuda", "sm_90a")),
        ({"kind": "cuda", "arch": "sm_80"}, Target("cuda", "sm_80")),
        ("cpu", parse_target("cpu")),
        ("c", parse_target("cpu")),
        ("hip:gfx942", Target("hip", "gfx942")),
        (Target("cuda", "sm_120a"), Target("cuda", "sm_120a")),
        ("auto", None),
        (None, None),
    ],
)
def test_requested_targets(value: object, expected: Target | None) -> None:
    assert requested_target(value) == expected


def test_the_environment_names_the_default_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEOPS_TARGET", "cuda:sm_80")
    assert requested_target(None) == Target("cuda", "sm_80")
    assert tileops.compile(samples.lazy_add.func(71), out_idx=[2]).get_ptx()


def test_where_a_target_runs() -> None:
    assert is_runnable_on(default_target(), "cpu", 0) == (default_target().kind == "cpu")
    assert not is_runnable_on(Target("cuda", "sm_90a"), "cpu", 0)


def test_strict_mode_allows_no_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEOPS_STRICT", "1")
    with pytest.raises(
        tileops.CompileMissError, match=r"sample_scaled needs a compile .*N=72.*key"
    ):
        samples.scaled(samples.vector(72), 13.0)
    monkeypatch.delenv("TILEOPS_STRICT")
    samples.scaled(samples.vector(72), 13.0)
    monkeypatch.setenv("TILEOPS_STRICT", "1")
    samples.scaled(samples.vector(72), 13.0)


def test_an_entry_says_what_was_compiled(tmp_path: Path) -> None:
    with option.cache_dir(tmp_path):
        kernel = tileops.compile(samples.lazy_add.func(73), out_idx=[2])
        assert kernel.artifact.path is not None
        files = {p.name for p in kernel.artifact.path.iterdir()}
        assert {"manifest.json", "program.txt", "params.json", "device_kernel.cpp"} <= files
        assert re.fullmatch(r"[0-9a-f]{64}", kernel.artifact.path.name)
        assert list((tmp_path / "scripts").rglob("dispatch.json"))


@pytest.mark.parametrize("given", [False, True, None])
def test_the_decorators_false_overrides_the_bodys_true(given: bool | None) -> None:
    def program(A):
        A: T.Tensor((16,), T.float32)
        B = T.empty((16,), T.float32)
        T.annotate_pass_configs({"tl.enable_fast_math": True})
        with T.Kernel(1, threads=32):
            for i in T.Parallel(16):
                B[i] = T.exp(A[i])
        return B

    made = tileops.jit(program, pass_configs={"tl.enable_fast_math": given}).get_tir()
    options = dict(made.options)
    assert options == ({} if given is False else {"tl.enable_fast_math": "true"})
