"""Owns the compile worker: a process that turns traced programs into entries of the cache.

``python -m tileops.autotuner.worker``. It gets programs as text, so it never runs user code.
"""

from __future__ import annotations

from tileops import counters
from tileops.autotuner.pipes import Message, serve
from tileops.codegen.kernel_code import Specialization
from tileops.errors import SharedMemoryError
from tileops.ir.codec import decode_program
from tileops.jit.compiling import Request, note_script, obtain
from tileops.jit.loadable import loadable_of
from tileops.target import parse_target


def answer(request: Message) -> Message:
    """Compile what ``request`` asks for: status, and what loads the result or why there is none.

    A request has ``program`` (text), ``target``, ``fast``, ``index64``, and for people ``op``,
    ``why``, ``sizes`` and ``script``. An answer with status ok has ``hash``, ``loadable`` and
    ``compile_s`` (0 where the cache had it); one with another status has ``reason``. A request
    without a program is answered once the worker is there.
    """
    if "program" not in request:
        return {"status": "ok"}
    try:
        return _compile(request)
    except SharedMemoryError as error:
        return {"status": "shared_memory", "reason": str(error)}
    except Exception as error:  # whatever a compiler does, the worker goes on
        return {"status": "compile_error", "reason": f"{type(error).__name__}: {error}"}


def _compile(request: Message) -> Message:
    job = Request(
        program=decode_program(request["program"]),
        target=parse_target(request["target"]),
        spec=Specialization(request["fast"], request["index64"]),
        op=request["op"],
        why=request["why"],
        sizes=request["sizes"],
        script=request["script"],
    )
    seconds: list[float] = []
    remove = counters.on_compile(lambda event: seconds.append(event.seconds))
    try:
        entry = obtain(job)
    finally:
        remove()
    note_script(job, entry)
    return {
        "status": "ok",
        "hash": entry.hash,
        "loadable": loadable_of(job, entry),
        "compile_s": sum(seconds),
    }


if __name__ == "__main__":
    serve(answer)
