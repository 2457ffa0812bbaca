"""Repairs of PTX that ptxas 12 turns into wrong code: conversions to 8-bit floats, packed sums.

``cvt.rn.satfinite.e5m2x2.f32 %rs1, …`` becomes a machine instruction that converts into the low
half of a register and takes the high half from another one. ptxas 12.8 and 12.9 fill that half with
what stands beside the result, ``mov.b32 %r1, {%rs1, %rs2}``, also where ``%rs2`` was computed from
``%rs1``: it is then read before the conversion has written it. Another use of ``%rs1`` then reads a
register that nothing wrote. Results whose two bytes are taken apart go wrong too. LLVM makes all
three where a program takes the bits of what it has just converted. ptxas 13.0 compiles them
rightly.

``add.s16x2`` with a constant, whose halves are used far apart, becomes one addition for each half,
and ptxas 12.8 and 12.9 make the constant of one of them 0.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

_CONVERSION = re.compile(
    r"(?P<guard>@!?[%\w$]+\s+)?(?P<op>cvt\.[\w.:]*e[45]m[23]x2\.(?:f32|b?f16x2))\s+"
    r"(?P<to>[%\w$]+)\s*,(?P<rest>[^;]*);"
)
_STATEMENT = re.compile(r"(?:@!?[%\w$]+\s+)?(?P<op>[a-z][\w.:]*)\s+(?P<operands>[^;]*)")
_REGISTER = re.compile(r"%?[A-Za-z_$][\w$]*")
_GROUP = re.compile(r"\{([^{}]*)\}")
_PACKED_SUM = re.compile(
    r"(?P<guard>@!?[%\w$]+\s+)?add\.[su]16x2\s+(?P<to>[%\w$]+)\s*,\s*(?P<a>[%\w$]+)\s*,\s*"
    r"(?P<b>[-%\w$]+)\s*;"
)
_WIDENING = re.compile(r"cvt\.[\w.:]*f16x2\.e[45]m[23]x2$")
_WITHOUT_RESULT = ("st", "red", "bra", "bar", "membar", "fence", "ret", "exit", "trap", "cp")


def repaired(ptx: str) -> str:
    """``ptx`` with a permutation of bytes, which changes nothing, behind such conversions.

    Packed sums become two. Text without either comes back as it is.
    """
    ptx = _PACKED_SUM.sub(_two_sums, ptx)
    exposed = set(exposed_conversions(ptx))
    if not exposed:
        return ptx

    def parted(match: re.Match[str]) -> str:
        if match["to"] not in exposed:
            return match[0]
        guard = match["guard"] or ""
        return (
            "{ .reg .b16 tileops_half; .reg .b32 tileops_word; "
            f"{guard}{match['op']} tileops_half,{match['rest']}; "
            f"{guard}cvt.u32.u16 tileops_word, tileops_half; "
            f"{guard}prmt.b32 tileops_word, tileops_word, 0, 0x4410; "
            f"{guard}cvt.u16.u32 {match['to']}, tileops_word; }}"
        )

    return _CONVERSION.sub(parted, ptx)


def _two_sums(match: re.Match[str]) -> str:
    guard = match["guard"] or ""
    halves = ("tileops_low", "tileops_high")
    return (
        "{ .reg .b16 tileops_low, tileops_high, tileops_low_b, tileops_high_b; "
        f"mov.b32 {{tileops_low, tileops_high}}, {match['a']}; "
        f"mov.b32 {{tileops_low_b, tileops_high_b}}, {match['b']}; "
        + "".join(f"add.s16 {half}, {half}, {half}_b; " for half in halves)
        + f"{guard}mov.b32 {match['to']}, {{tileops_low, tileops_high}}; }}"
    )


def exposed_conversions(ptx: str) -> list[str]:
    """The results of conversions that are more than stored, converted back, or packed once."""
    converted = {match["to"] for match in _CONVERSION.finditer(ptx)}
    if not converted:
        return []
    sources: dict[str, set[str]] = defaultdict(set)
    pairs: list[tuple[str, str]] = []
    uses: Counter[str] = Counter()
    found = set()
    for op, operands in _statements(ptx):
        first, rest = _split_result(op, operands)
        used = _REGISTER.findall(rest)
        for result in _REGISTER.findall(first):
            sources[result].update(used)
        mine = converted.intersection(used)
        uses.update(name for name in used if name in mine)
        if not mine or _WIDENING.match(op):
            continue
        packed = [name for group in _GROUP.findall(rest) for name in _REGISTER.findall(group)]
        if op.startswith(("mov.b", "st.")) and mine <= set(packed) <= converted:
            pairs += zip(packed[::2], packed[1::2], strict=False)
        elif not op.startswith("st.") or len(packed) > 1:
            found |= mine
    found |= {low for low, high in pairs if low in _reached(high, sources)}
    return sorted(found | {name for pair in pairs for name in pair if uses[name] > 1})


def _statements(ptx: str) -> Iterator[tuple[str, str]]:
    for line in ptx.splitlines():
        for part in line.split("//", 1)[0].split(";"):
            match = _STATEMENT.match(part.strip().lstrip("{}").strip())
            if match:
                yield match["op"], match["operands"]


def _split_result(op: str, operands: str) -> tuple[str, str]:
    if op.split(".", 1)[0] in _WITHOUT_RESULT:
        return "", operands
    end = operands.find("}") if operands.lstrip().startswith("{") else -1
    comma = operands.find(",", end + 1)
    return (operands, "") if comma < 0 else (operands[:comma], operands[comma:])


def _reached(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    """``start`` and all that its value comes from."""
    seen, todo = {start}, [start]
    while todo:
        for name in edges.get(todo.pop(), ()):
            if name not in seen:
                seen.add(name)
                todo.append(name)
    return seen
