"""Owns the repair of PTX that ptxas 12 turns into wrong code: conversions to 8-bit floats.

``cvt.rn.satfinite.e5m2x2.f32 %rs1, …`` followed by ``mov.b32 %r1, {%rs1, %rs2}`` becomes one
machine instruction that converts into the low half of a register and takes the high half from
another one. ptxas 12.8 and 12.9 do this also where ``%rs2`` was computed from ``%rs1``: it is then
read before the conversion has written it. LLVM makes such pairs where a program takes the bits of
two neighbours that it has just converted. ptxas 13.0 compiles them rightly.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

_CONVERSION = re.compile(
    r"(?P<guard>@!?[%\w$]+\s+)?(?P<op>cvt\.[\w.:]*e[45]m[23]x2\.(?:f32|f16x2))\s+"
    r"(?P<to>[%\w$]+)\s*,(?P<rest>[^;]*);"
)
_STATEMENT = re.compile(r"(?:@!?[%\w$]+\s+)?(?P<op>[a-z][\w.:]*)\s+(?P<operands>[^;]*)")
_REGISTER = re.compile(r"%?[A-Za-z_$][\w$]*")
_GROUP = re.compile(r"\{([^{}]*)\}")
_COPIES = ("mov.b16", "mov.u16", "mov.s16")
_WITHOUT_RESULT = ("st", "red", "bra", "bar", "membar", "fence", "ret", "exit", "trap", "cp")


def repaired(ptx: str) -> str:
    """``ptx`` with each conversion taken out of the pair that ptxas would merge it into.

    A permutation of bytes that changes nothing stands between the conversion and its uses. Text
    without such pairs comes back as it is.
    """
    merged = set(merged_too_early(ptx))
    if not merged:
        return ptx

    def parted(match: re.Match[str]) -> str:
        if match["to"] not in merged:
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


def merged_too_early(ptx: str) -> list[str]:
    """The registers of conversions that are paired with a value computed from them."""
    converted = {match["to"] for match in _CONVERSION.finditer(ptx)}
    if not converted:
        return []
    sources: dict[str, set[str]] = defaultdict(set)
    copies: dict[str, set[str]] = defaultdict(set)
    pairs: list[tuple[str, str]] = []
    for op, operands in _statements(ptx):
        pairs += _pairs(operands)
        if op.split(".", 1)[0] in _WITHOUT_RESULT:
            continue
        first, rest = _split_result(operands)
        for result in _REGISTER.findall(first):
            sources[result].update(_REGISTER.findall(rest))
            if op in _COPIES:
                copies[result].update(_REGISTER.findall(rest))
    found = set()
    for low, high in pairs:
        direct = _reached(low, copies) & converted
        if direct:
            found |= direct & _reached(high, sources)
    return sorted(found)


def _statements(ptx: str) -> Iterator[tuple[str, str]]:
    for line in ptx.splitlines():
        for part in line.split("//", 1)[0].split(";"):
            match = _STATEMENT.match(part.strip().lstrip("{}").strip())
            if match:
                yield match["op"], match["operands"]


def _split_result(operands: str) -> tuple[str, str]:
    end = operands.find("}") if operands.lstrip().startswith("{") else -1
    comma = operands.find(",", end + 1)
    return (operands, "") if comma < 0 else (operands[:comma], operands[comma:])


def _pairs(operands: str) -> Iterable[tuple[str, str]]:
    """What shares a 32-bit register: each two neighbours of a group, from the left."""
    for group in _GROUP.findall(operands):
        names = [name.strip() for name in group.split(",")]
        yield from zip(names[::2], names[1::2], strict=False)


def _reached(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    """``start`` and all that its value comes from."""
    seen, todo = {start}, [start]
    while todo:
        for name in edges.get(todo.pop(), ()):
            if name not in seen:
                seen.add(name)
                todo.append(name)
    return seen
