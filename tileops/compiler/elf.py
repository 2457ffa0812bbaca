"""Registers and local memory of a kernel, read from the ELF notes of its cubin."""

from __future__ import annotations

import struct

# Attributes of `.nv.info` (cuobjdump -elf prints them under these names).
_FRAME_SIZE = 0x11
_REGISTER_COUNT = 0x2F
_SIZED_VALUE = 0x04  # format: 16-bit size, then that many bytes


def kernel_resources(cubin: bytes) -> tuple[int, int]:
    """Registers and local memory in bytes, per thread: the largest of the cubin's functions.

    (0, 0) if the bytes are not a 64-bit ELF with such notes.
    """
    if cubin[:5] != b"\x7fELF\x02":
        return 0, 0
    (offset,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", cubin, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, offset + n * size) for n in range(count)]
    strings = sections[names_at][4]
    registers = frame = 0
    for section in sections:
        start = strings + section[0]
        name = cubin[start : cubin.index(b"\0", start)]
        if name != b".nv.info":
            continue
        for attribute, value in _entries(cubin[section[4] : section[4] + section[5]]):
            if attribute == _REGISTER_COUNT:
                registers = max(registers, value)
            elif attribute == _FRAME_SIZE:
                frame = max(frame, value)
    return registers, frame


def _entries(info: bytes) -> list[tuple[int, int]]:
    """(attribute, value) of the entries that hold a symbol and a value."""
    found = []
    at = 0
    while at + 4 <= len(info):
        kind, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if kind != _SIZED_VALUE:
            continue
        if size == 8 and at + 8 <= len(info):
            found.append((attribute, struct.unpack_from("<II", info, at)[1]))
        at += size
    return found
