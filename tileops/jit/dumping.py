"""Owns ``option.debug.dump_ir``: the IR after each pass, as files in the entry's folder ``ir``.

The files are no part of the entry: its manifest does not name them and its key does not know of
them. So an entry that was made without them gets them when they are asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from tileops import cache, log
from tileops.cache import catalog, staging
from tileops.cache.files import make_directories, remove, write_file
from tileops.codegen.kernel_code import KernelCode
from tileops.ir import dump
from tileops.ir.program import Program

FOLDER = "ir"
_STAGES = ("ttir", "ttgir", "llir", "ptx", "amdgcn")


def dump_ir(program: Program, entry: cache.Entry, generate: Callable[[], KernelCode]) -> None:
    """Write ``ir/NN_<pass>.txt`` into the entry's folder unless it is there.

    ``generate`` runs the passes over ``program`` as its compile did. Warns once where the entry
    lies in no directory that can be written.
    """
    private = catalog.here().private
    if private is None or entry.path is None or entry.path.parent != private.programs:
        log.warn_once("dump_ir", "dump_ir: the program lies in no directory that can be written")
        return
    folder = entry.path / FOLDER
    if os.path.lexists(folder):
        return
    stage = None
    try:
        stage = staging.fresh(private, f"{entry.hash[:12]}.{FOLDER}")
        make_directories(stage)
        for number, (name, text) in enumerate(_texts(program, entry, generate)):
            write_file(stage / f"{number:02d}_{name}.txt", text.encode())
        stage.rename(folder)
    except OSError as error:
        if stage is not None:
            remove(stage)
        if not os.path.lexists(folder):  # another process may have been faster
            log.warn_once("dump_ir", f"dump_ir: cannot write {folder}: {error}")


def _texts(
    program: Program, entry: cache.Entry, generate: Callable[[], KernelCode]
) -> Iterator[tuple[str, str]]:
    """The program as traced, after each pass, as generated text, and after each compiler stage."""
    with dump.collecting() as dumps:
        dump.after("trace", program)
        code = generate()
    yield from dumps.texts
    yield "generate", code.source
    for launch in range(len(code.launches)):
        for stage in _STAGES:
            data = entry.files.get(f"launch{launch}.{stage}")
            if data is not None:
                yield f"launch{launch}_{stage}", data.decode("utf-8", errors="replace")
