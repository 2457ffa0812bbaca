"""Conversions to 8-bit floats survive ptxas 12, which merges some with a value computed from them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import tileops
from tests.programs.edges import quotients
from tileops.codegen.kernel_code import Specialization
from tileops.codegen.triton import generate
from tileops.compiler import ptx_repairs
from tileops.compiler.ptx_repairs import exposed_conversions, repaired
from tileops.compiler.triton_stages import compile_triton
from tileops.frontend.trace import trace
from tileops.target import parse_target

_CONVERT = "cvt.rn.satfinite.{type} %rs1, %r2, %r1;"
_HIGH = "shr.u16 %rs2, %rs1, 8;"
_KERNEL = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 source, .param .u64 result) {{
    .reg .b16 %rs<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>;
    ld.param.b64 %rd1, [source];
    ld.param.b64 %rd2, [result];
    ld.global.v2.b32 {{ %r1, %r2 }}, [ %rd1 + 0 ];
    setp.eq.u32 %p1, %r1, 3;
    mov.u16 %rs1, 0x0;
    {body}
    ret;
}}
"""
_ENDS = {
    "pair": "mov.b32 %r3, {%rs1, %rs2}; st.global.b32 [ %rd2 + 0 ], { %r3 };",
    "four": "mov.b64 %rd3, {%rs7, %rs7, %rs1, %rs2}; st.global.b64 [%rd2], %rd3;",
    "stored_together": "st.global.v2.b16 [%rd2], {%rs1, %rs2};",
    "copied_first": "mov.b16 %rs3, %rs1; mov.b32 %r3, {%rs3, %rs2}; st.global.b32 [%rd2], %r3;",
    "taken_apart": (
        "and.b16 %rs3, %rs1, 255; cvt.rn.f32.u16 %r3, %rs3; cvt.rn.f32.u16 %r4, %rs2; "
        "st.global.v2.b32 [%rd2], {%r3, %r4};"
    ),
    "with_itself": "mov.b32 %r3, {%rs1, %rs1}; st.global.b32 [%rd2], %r3;",
}
_TYPES = ("e5m2x2.f32", "e4m3x2.f32")


def _text(conversion: str, end: str) -> str:
    return _KERNEL.format(body="\n    ".join(("mov.u16 %rs7, 0x1;", conversion, _HIGH, end)))


def _tools() -> Path:
    import triton

    return Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


def _machine_code(ptx: str, folder: Path) -> list[str]:
    """The instructions that the ptxas of Triton makes of ``ptx``."""
    tools = _tools()
    (folder / "k.ptx").write_text(ptx, encoding="utf-8")
    cubin = folder / "k.cubin"
    subprocess.run(
        [tools / "ptxas", "-arch=sm_90a", folder / "k.ptx", "-o", cubin],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return _instructions(cubin)


def _instructions(cubin: Path) -> list[str]:
    command = [_tools() / "nvdisasm", cubin]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return re.findall(r"/\*[0-9a-f]{4}\*/\s+(.*?) ;", shown.stdout)


def _conversion(ptx: str, folder: Path) -> str:
    (found,) = (x for x in _machine_code(ptx, folder) if x.startswith("F2FP"))
    return found


def _keeps_its_register(conversion: str) -> bool:
    """The last operand is what the high half comes from; RZ is zero."""
    return conversion.split(", ")[-1] == "RZ"


def test_ptxas_12_needs_the_repair(tmp_path: Path) -> None:
    said = subprocess.run(
        [_tools() / "ptxas", "--version"], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    ptx = _text(_CONVERT.format(type="e5m2x2.f32"), _ENDS["pair"])
    is_old = "release 12." in said
    assert _keeps_its_register(_conversion(ptx, tmp_path)) is not is_old


@pytest.mark.parametrize("end", _ENDS.values(), ids=_ENDS)
@pytest.mark.parametrize("kind", _TYPES)
def test_a_conversion_keeps_a_register_of_its_own(kind: str, end: str, tmp_path: Path) -> None:
    ptx = _text(_CONVERT.format(type=kind), end)
    assert exposed_conversions(ptx) == ["%rs1"]
    mended = repaired(ptx)
    assert _keeps_its_register(_conversion(mended, tmp_path))


_WIDE = "cvt.rn.f16x2.e4m3x2 %r3, %rs1; st.global.b32 [%rd2], %r3;"


@pytest.mark.parametrize("kind", ["e4m3x2.f32 {}, {}, %r2;", "e4m3x2.f16x2 {}, {};"])
@pytest.mark.parametrize("both", ["{pack} {wide}", "{wide} {pack}"])
def test_a_packed_conversion_with_another_use(both: str, kind: str, tmp_path: Path) -> None:
    """ptxas 12 joins the conversions of both halves; another use of the low one reads no result."""
    first = f"cvt.rn.satfinite.{kind.format('%rs1', '%r1')}"
    second = f"cvt.rn.satfinite.{kind.format('%rs3', '%r2')}"
    pack = "mov.b32 %r4, {%rs1, %rs3}; st.global.b32 [%rd2 + 8], %r4;"
    ptx = _KERNEL.format(body=f"{first} {second} {both.format(pack=pack, wide=_WIDE)}")
    assert exposed_conversions(ptx) == ["%rs1"]
    conversions = [x for x in _machine_code(repaired(ptx), tmp_path) if ".SATFINITE." in x]
    assert len(conversions) == 2


def test_the_guard_of_a_conversion_stays(tmp_path: Path) -> None:
    ptx = _text("@!%p1 " + _CONVERT.format(type="e5m2x2.f32"), _ENDS["pair"])
    assert exposed_conversions(ptx) == ["%rs1"]
    mended = repaired(ptx)
    assert mended.count("@!%p1") == 4
    assert _machine_code(mended, tmp_path)


def test_a_conversion_of_two_float16(tmp_path: Path) -> None:
    ptx = _text("cvt.rn.satfinite.e4m3x2.f16x2 %rs1, %r1;", _ENDS["pair"])
    assert exposed_conversions(ptx) == ["%rs1"]
    assert _machine_code(repaired(ptx), tmp_path)


@pytest.mark.parametrize(
    "end",
    [
        "st.global.b16 [%rd2], %rs1;",
        "cvt.rn.satfinite.e5m2x2.f32 %rs3, %r1, %r2; mov.b32 %r3, {%rs1, %rs3};",
        "cvt.rn.f16x2.e5m2x2 %r3, %rs1; st.global.b32 [%rd2], %r3;",
    ],
)
def test_other_uses_stay_as_they_are(end: str) -> None:
    ptx = _KERNEL.format(body=f"{_CONVERT.format(type='e5m2x2.f32')} {end}")
    assert repaired(ptx) is ptx


def test_a_program_that_takes_the_signs_of_converted_neighbours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = parse_target("cuda:sm_90")
    program = trace(quotients, name="quotients", static={}, consts={})
    code = generate(program, target, Specialization())
    given: list[str] = []

    def watched(ptx: str) -> str:
        given.append(ptx)
        return repaired(ptx)

    monkeypatch.setattr(ptx_repairs, "repaired", watched)
    kept = compile_triton(code, target, {}).files["launch0.ptx"].decode()
    assert exposed_conversions(given[0]) != []
    assert kept == repaired(given[0])


def test_packed_sums_are_two(tmp_path: Path) -> None:
    """ptxas 12 makes the constant of one half 0 where the halves of this sum are used far apart."""
    from tests.property.expressions import function_of, inputs_of

    target = parse_target("cuda:sm_90")
    program = tileops.jit(function_of(1214, tmp_path), name="packed_sums")
    code = generate(program.get_tir(*inputs_of(1214)), target, Specialization(fast=True))
    artifact = compile_triton(code, target, {})
    ptx = artifact.files["launch0.ptx"].decode()
    assert "tileops_high_b" in ptx
    (tmp_path / "sums.cubin").write_bytes(artifact.files["launch0.cubin"])
    assert not [x for x in _instructions(tmp_path / "sums.cubin") if x.startswith("VIADD.16x2")]


@pytest.mark.parametrize("guard", ["", "@%p1 "])
def test_two_sums_give_what_a_packed_one_gives(guard: str) -> None:
    text = repaired(f"\t{guard}add.s16x2 \t%r3, %r1, %r2;\n")
    assert "add.s16x2" not in text
    assert text.count("add.s16 ") == 2
    assert f"{guard}mov.b32 %r3, {{tileops_low, tileops_high}};" in text
