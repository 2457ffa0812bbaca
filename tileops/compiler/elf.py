"""The notes that an assembler leaves in a cubin: registers, stack, parameters, block sizes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

# Attributes of `.nv.info` sections (cuobjdump -elf prints them under these names).
_MAX_THREADS = 0x05
_REQUIRED_THREADS = 0x10
_FRAME_SIZE = 0x11
_PARAMETER = 0x17
_REGISTER_COUNT = 0x2F
_SIZED_VALUE = 0x04  # format: 16-bit size, then that many bytes
_SIZE_SHIFT = 18  # of the bits of a parameter's note

_INFO = ".nv.info"


@dataclass(frozen=True)
class KernelNotes:
    """One kernel: the bytes of each parameter, and the threads of a block along each dimension.

    ``required`` is the block that the kernel demands, ``most`` the largest that it allows.
    """

    parameters: tuple[int, ...]
    required: tuple[int, ...] | None = None
    most: tuple[int, ...] | None = None


def kernel_resources(cubin: bytes) -> tuple[int, int]:
    """Registers and local memory in bytes, per thread: the largest of the cubin's functions.

    (0, 0) if the bytes are not a 64-bit ELF with such notes.
    """
    found = {_REGISTER_COUNT: 0, _FRAME_SIZE: 0}
    for name, info in sections(cubin):
        if name == _INFO:
            for attribute, value in _notes(info):
                if attribute in found and len(value) == 8:
                    found[attribute] = max(found[attribute], struct.unpack("<II", value)[1])
    return found[_REGISTER_COUNT], found[_FRAME_SIZE]


def kernel_names(cubin: bytes) -> tuple[str, ...]:
    """The kernels in a cubin."""
    prefix = f"{_INFO}."
    return tuple(n.removeprefix(prefix) for n, _ in sections(cubin) if n.startswith(prefix))


def kernel_notes(cubin: bytes, entry: str) -> KernelNotes | None:
    """The notes of the kernel ``entry``; None if the cubin does not have it."""
    for name, info in sections(cubin):
        if name != f"{_INFO}.{entry}":
            continue
        sizes: dict[int, int] = {}
        blocks: dict[int, tuple[int, ...]] = {}
        for attribute, value in _notes(info):
            if attribute == _PARAMETER:
                _, number, _, bits = struct.unpack_from("<IHHI", value)
                sizes[number] = bits >> _SIZE_SHIFT
            elif attribute in (_REQUIRED_THREADS, _MAX_THREADS):
                blocks[attribute] = struct.unpack_from("<III", value)
        parameters = tuple(sizes[n] for n in sorted(sizes))
        return KernelNotes(parameters, blocks.get(_REQUIRED_THREADS), blocks.get(_MAX_THREADS))
    return None


def sections(cubin: bytes) -> Iterator[tuple[str, bytes]]:
    """The sections of a 64-bit ELF by name."""
    if cubin[:5] != b"\x7fELF\x02":
        return
    (offset,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, offset + n * size) for n in range(count)]
    strings = headers[names_at][4]
    for header in headers:
        start = strings + header[0]
        name = cubin[start : cubin.index(b"\0", start)].decode(errors="replace")
        yield name, cubin[header[4] : header[4] + header[5]]


def _notes(info: bytes) -> Iterator[tuple[int, bytes]]:
    """(attribute, value) of the entries that hold a value of some size."""
    at = 0
    while at + 4 <= len(info):
        kind, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if kind == _SIZED_VALUE:
            yield attribute, info[at : at + size]
            at += size
