"""Foreign code that is no Python: CUDA C++ with its headers, PTX, and cubins."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from tileops.errors import ArgumentError, ProgramValueError
from tileops.foreign.nvrtc_library import header_folders
from tileops.foreign.registry import keep
from tileops.foreign.syntax import digest_of_text
from tileops.ir.extern import digest_of_parts

Parts = tuple[tuple[str, str], ...]

# Options that say what the build says itself, or that name files of this machine.
_OWN = re.compile(r"-{1,2}(gpu-architecture|arch|gpu-code|code|include-path|I|std|device-c|dc)\b")
_INCLUDE = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*(?:<([^>\n]+)>|\"([^\"\n]+)\"|(\S+))", re.MULTILINE
)
_STANDARD = "--std=c++17"
# Headers of the C library that cuda.h and kernels include. NVRTC has none; it knows size_t.
_OF_C = {
    "stddef.h": "",
    "stdlib.h": "",
    "stdint.h": "#pragma once\n"
    + "".join(
        f"typedef signed {kind} int{bits}_t;\ntypedef unsigned {kind} uint{bits}_t;\n"
        for kind, bits in (("char", 8), ("short", 16), ("int", 32), ("long long", 64))
    )
    + "typedef signed long long intptr_t;\ntypedef unsigned long long uintptr_t;\n",
}


# Headers of the C++ library, of which NVRTC has none; CUDA has them under another name.
_OF_CPP = frozenset(
    (
        "algorithm", "array", "cassert", "cfloat", "climits", "cmath", "complex", "cstddef",
        "cstdint", "cstdlib", "cstring", "functional", "initializer_list", "iterator", "limits",
        "numeric", "optional", "ratio", "tuple", "type_traits", "utility", "variant",
    )
)  # fmt: skip
_INTO_STD = "namespace std { using namespace cuda::std; }\n"


@dataclass(frozen=True)
class CudaSource:
    """CUDA C++ for NVRTC: the text, the headers that it may include by name, and options.

    ``system`` names the headers that are CUDA's own.
    """

    text: str
    name: str
    headers: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    system: frozenset[str] = frozenset()

    language = "cuda"

    def parts(self) -> Parts:
        """The parts of its identity, without any path."""
        found = [("source", digest_of_text(self.text))]
        digests = {name: digest_of_text(text) for name, text in sorted(self.headers.items())}
        found += [(f"header {n}", d) for n, d in digests.items() if n not in self.system]
        theirs = repr([(n, d) for n, d in digests.items() if n in self.system])
        found.append(("CUDA's headers", digest_of_text(theirs)))
        return (*found, ("options", digest_of_text(repr(self.options))))


@dataclass(frozen=True)
class PtxSource:
    """PTX, which an assembler of Triton's turns into code."""

    text: str
    name: str = "kernel.ptx"

    language = "ptx"

    def parts(self) -> Parts:
        """The parts of its identity."""
        return (("source", digest_of_text(self.text)),)


@dataclass(frozen=True)
class CubinSource:
    """Compiled code by architecture, such as ``sm_90a``."""

    images: Mapping[str, bytes]
    name: str = "kernel.cubin"

    language = "cubin"

    def parts(self) -> Parts:
        """The parts of its identity."""
        return tuple((f"cubin {a}", sha256(b).hexdigest()) for a, b in sorted(self.images.items()))


DeviceSource = CudaSource | PtxSource | CubinSource


def kept_parts(source: DeviceSource, entry: str) -> Parts:
    """The parts of a kernel of ``source``; compiles find the source again by their digest."""
    parts = source.parts()
    keep(digest_of_parts(source.language, entry, parts), source)
    return parts


def cuda_source(
    text: str,
    name: str,
    include: Iterable[str | Path],
    headers: Mapping[str, str],
    options: Sequence[str],
) -> CudaSource:
    """A source with the contents of all headers that it can include.

    Headers are looked up in ``headers`` by name, in the folders ``include``, and in CUDA's. What is
    not found is left to NVRTC, which may never come to that line. ArgumentError for an option that
    the build decides.
    """
    for option in options:
        if _OWN.match(option):
            raise ArgumentError(
                f"tileops.cuda: the option {option!r} is decided by the build (C++17, the target's "
                "architecture); folders of headers go into include="
            )
    folders = [Path(folder) for folder in include]
    for folder in folders:
        if not folder.is_dir():
            raise ArgumentError(f"tileops.cuda: include folder {str(folder)!r} does not exist")
    closure = _Closure(dict(headers), folders, header_folders())
    closure.add(text, name, None, is_own=True)
    chosen = (_STANDARD, "-default-device", *options)
    return CudaSource(text, name, closure.found, chosen, frozenset(closure.system))


class _Closure:
    """The headers that a source includes, and those that they include."""

    def __init__(
        self, given: dict[str, str], folders: Sequence[Path], system: Sequence[Path]
    ) -> None:
        self.found: dict[str, str] = dict(given)
        self._folders = [*((f, True) for f in folders), *((f, False) for f in system)]
        self._paths: dict[str, Path] = {}
        self._is_own: dict[Path, bool] = {}
        self.system: set[str] = set()
        for name, text in given.items():
            self.add(text, name, None, is_own=True)

    def add(self, text: str, name: str, path: Path | None, *, is_own: bool) -> None:
        for angle, quoted, other in _INCLUDE.findall(text):
            if other and is_own:
                raise ProgramValueError(
                    f"{name} includes a header by the macro {other}: its name is not known here",
                    expected="its name and text in tileops.cuda(headers={...})",
                )
            if wanted := angle or quoted:
                self._include(wanted, path, is_quoted=bool(quoted))

    def _include(self, wanted: str, includer: Path | None, *, is_quoted: bool) -> None:
        beside = includer if is_quoted else None
        for folder, is_own in (
            *(((beside.parent, self._is_own[beside]),) if beside is not None else ()),
            *self._folders,
        ):
            # CUDA's own headers lead through `..` to one file by two ways.
            path = Path(os.path.normpath(folder / wanted))
            if not path.is_file():
                continue
            known = self._paths.get(wanted)
            if known is not None and known != path:
                raise ProgramValueError(
                    f"two headers are included as {wanted!r}: {known} and {path}",
                    expected="names that tell them apart",
                )
            if wanted not in self.found:
                self._paths[wanted] = path
                self._is_own[path] = is_own
                if not is_own:
                    self.system.add(wanted)
                self.found[wanted] = text = _text_of(path)
                self.add(text, wanted, path, is_own=is_own)
            return
        if wanted in _OF_C:
            self.system.add(wanted)
            self.found.setdefault(wanted, _OF_C[wanted])
        elif wanted in _OF_CPP and wanted not in self.found:
            self._include(f"cuda/std/{wanted}", None, is_quoted=False)
            if f"cuda/std/{wanted}" in self.found:
                self.system.add(wanted)
                self.found[wanted] = f"#include <cuda/std/{wanted}>\n{_INTO_STD}"


_texts: dict[str, tuple[tuple[int, int], str]] = {}


def _text_of(path: Path) -> str:
    """The text of a header, read again when the file has changed."""
    status = path.stat()
    stamp = (status.st_mtime_ns, status.st_size)
    known = _texts.get(str(path))
    if known is None or known[0] != stamp:
        known = _texts[str(path)] = (stamp, path.read_text(errors="replace"))
    return known[1]
