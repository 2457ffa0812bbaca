"""From a traced program to its compiled form: key, look-up, generator, compiler."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache as cached
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tileops import cache, counters, log, settings
from tileops.cache import scripts, sources, staging
from tileops.cache.directory import here
from tileops.cache.files import write_file
from tileops.cache.key import canonical
from tileops.codegen.kernel_code import KernelCode, Specialization
from tileops.errors import (
    ArgumentError,
    InternalError,
    SharedMemoryError,
    ToolchainError,
    UnsupportedOnTargetError,
)
from tileops.ir.codec import decode_program, encode_program
from tileops.ir.extern import without_ones
from tileops.ir.printer import collected_dumps, dump, print_program
from tileops.ir.program import Program
from tileops.ir.stmt import Assert
from tileops.ir.walk import locations, walk
from tileops.jit import bundle_programs, discovery, recording, tool_versions
from tileops.jit.bundle_programs import Named
from tileops.jit.look_up import LookUp, from_alias, miss_error
from tileops.jit.record import built_of
from tileops.op import bundle_paths
from tileops.pass_configs import CHECKS, DEBUG_CPU
from tileops.target import Target, parse_target

if TYPE_CHECKING:
    from tileops.compiler.artifact import Artifact

_T = TypeVar("_T")


@dataclass(frozen=True)
class Request:
    """A compile that is needed: a specialised program, a target, facts, and why.

    ``op``, ``title`` (its name in messages, if that is another) and ``sizes`` are for people;
    ``script`` is the hash of the program as its author wrote it, ``named`` its name and identity
    where bundles may hold an op of that name; ``config`` the compile-time values in words, for
    errors of the device; ``gpu`` the index of the GPU that will run the code: None where that is
    the CPU, or no device of this process.
    """

    program: Program
    target: Target
    spec: Specialization
    op: str
    why: str
    sizes: Mapping[str, int | str] = field(default_factory=dict)
    script: str | None = None
    named: Named | None = None
    debug_root: str | None = None
    verbose: bool = False
    title: str | None = None
    config: str = ""
    gpu: int | None = None

    @property
    def what(self) -> str:
        """The op's name in messages."""
        return self.title or self.op

    def to_json(self) -> dict[str, Any]:
        """What another process needs to compile the same."""
        return {
            "program": encode_program(self.program),
            "target": str(self.target),
            "fast": self.spec.fast,
            "index64": self.spec.index64,
            "op": self.op,
            "why": self.why,
            "sizes": dict(self.sizes),
            "script": self.script,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Request:
        """The request that ``to_json`` described."""
        return cls(
            decode_program(found["program"]),
            parse_target(found["target"]),
            Specialization(found["fast"], found["index64"]),
            found["op"],
            found["why"],
            found["sizes"],
            found["script"],
        )


def checked(program: Program, target: Target) -> Program:
    """``program`` as it is compiled for ``target``: its options name the checks to insert."""
    now = settings.current()
    debug = now.debug_cpu and target.kind == "cpu"
    if not (now.check or debug):
        return program
    asked = {(CHECKS, "bounds,nans" if debug and now.debug_nans else "bounds")}
    if debug:
        asked.add((DEBUG_CPU, "1"))
    return replace(program, options=tuple(sorted({*program.options, *asked})))


def check_reports(program: Program, target: Target) -> list[dict[str, Any]]:
    """What the runtime says where a check of ``program``, as compiled for ``target``, fails."""
    if target.is_gpu and not settings.current().check:
        return []  # nothing reads what a trap leaves behind
    asking = checked(program, target)
    if asking is program and not any(isinstance(s, Assert) for s in walk(program.launches)):
        return []
    # The passes are read only where they are used: a warm start is short.
    from tileops.passes import pipeline
    from tileops.passes.context import Context
    from tileops.passes.report_checks import reports

    inserted = pipeline.run(pipeline.CHECKS, asking, Context(target))
    return [asdict(r) for r in reports(inserted)]


def texts_of(request: Request) -> dict[str, str]:
    """The fields of a request's key but the toolchain: what needs no compiler."""
    return cache.texts_of(
        ir=print_program(request.program),
        options=[list(pair) for pair in request.program.options],
        target=str(request.target),
        specialization=asdict(request.spec),
        codegen=sources.digest(),
    )


def key_of(request: Request) -> cache.Key:
    """The cache key of a request; imports no compiler."""
    request = _with_used_facts(request)
    with counters.timed("key"):
        return _key_of(request, texts_of(request))


def _key_of(request: Request, texts: Mapping[str, str]) -> cache.Key:
    toolchain = tool_versions.of_program(request.program, request.target)
    return cache.Key({**texts, "toolchain": canonical(toolchain)})


@settings.read_once()
def obtain(request: Request) -> cache.Entry:
    """The compiled form of a program: from memory, disk or a bundle, or compiled now, once a key.

    What the generator or the compiler raises; CompileMissError in strict mode.
    """
    if request.target.kind == "interpreter":
        raise UnsupportedOnTargetError(
            f"op {request.what}: target='interpreter' has no torch op; call the "
            "program or kernel itself"
        )
    lock_file = settings.current().record
    if lock_file is not None:
        recording.note(request.to_json(), lock_file)
    request = replace(request, program=checked(request.program, request.target))
    request = _with_used_facts(request)
    entry = _obtained(request, LookUp(request.op, request.target))
    if settings.current().dump_ir:
        _dump_ir(request, entry)
    if request.debug_root is not None:
        _export(entry, Path(request.debug_root), request.op)
    return entry


class _ToolsChangedError(Exception):
    """The compiler was replaced while it compiled: the code belongs to no key."""


def _obtained(request: Request, looked: LookUp) -> cache.Entry:
    """The entry from the first place that has it, else compiled.

    The places: by key, which the compiler's versions belong to, memory and the directories; then,
    whatever compiler made it, bundles and the aliases; the remote, by key or, where the compiler is
    missing, by its pointers.
    """
    key, lack, target = None, None, request.target
    with counters.timed("key"):
        texts = texts_of(request)
        try:
            key = _key_of(request, texts)
        except ToolchainError as error:
            lack = error
    entry = None
    if key is not None:
        entry = cache.store().find(key, partial(looked.hit, name=key.hash()))
    if entry is None:
        discovery.look()
    if entry is None and bundle_paths.serving():
        entry = bundle_programs.find(texts, target, request.gpu, request.named, looked)
    if entry is None:
        entry = from_alias(texts, target, request.gpu, looked, has_tools=key is not None)
    if entry is not None:
        return entry
    if key is not None:
        return _fetched(request, texts, key, looked)
    looked.miss(None, partial(str, lack))
    if settings.current().strict:
        raise miss_error(request.what, request.sizes, texts, looked, None, lack) from lack
    raise ToolchainError(f"{lack}{looked.refusals}") from None


def _fetched(
    request: Request, texts: Mapping[str, str], key: cache.Key, looked: LookUp
) -> cache.Entry:
    for is_last in (False, False, True):
        hit = partial(looked.hit, name=key.hash())
        try:
            return cache.store().fetch(key, partial(_build, request, texts, key, looked), hit)
        except _ToolsChangedError:
            if is_last:
                raise ToolchainError(
                    f"op {request.what}: the compiler for {request.target} "
                    "changed during each of three compiles"
                ) from None
        key = _key_of(request, texts)
    raise InternalError("not reached")


def _with_used_facts(request: Request) -> Request:
    # Code for the CPU assumes none of the facts, so one compile serves all of them; foreign kernels
    # have facts of their own for the widths of numbers.
    if request.target.kind == "cpu":
        return replace(request, spec=Specialization())
    if request.spec.index64 and not request.program.launches:
        return replace(request, spec=replace(request.spec, index64=False))
    return request


def _build(
    request: Request, texts: Mapping[str, str], key: cache.Key, looked: LookUp
) -> cache.Built:
    from tileops.cache import catalog  # asks why only where something is compiled

    why = cached(partial(catalog.why_missed, key, request.op))
    looked.miss(key.hash(), why)
    if settings.current().strict:
        raise miss_error(request.what, request.sizes, texts, looked, key)
    start = time.perf_counter()
    code, artifact = _generated_and_compiled(request)
    now = tool_versions.of_program(request.program, request.target)
    if json.loads(key.fields["toolchain"]) != now:
        raise _ToolsChangedError
    built = built_of(request.program, request.target, code, artifact, key)
    event = counters.CompileEvent(
        op=request.op,
        target=str(request.target),
        why=f"{request.why}; {why()}",
        seconds=time.perf_counter() - start,
        key=key.hash(),
        sizes=dict(request.sizes),
    )
    counters.record_compile(event)
    if request.verbose and not {"compile", "all"} & set(settings.current().log):
        log.write(event.line())
    return built


def _generated_and_compiled(request: Request) -> tuple[KernelCode, Artifact]:
    """Text and machine code. What Triton refuses in roles is written without them."""
    from tileops.compiler import OneError, StageError

    with counters.timed("generate"):
        code = generate(request.program, request.target, request.spec)
    try:
        with counters.timed("compile"):
            return code, _compile(code, request)
    except OneError as error:
        # A kernel may call `stride.to(...)`, which a compile-time 1 does not have.
        log.emit(
            "compile", f"{request.op}: no argument is taken as 1: {str(error).splitlines()[0]}"
        )
        return _generated_and_compiled(replace(request, program=without_ones(request.program)))
    except (StageError, SharedMemoryError) as error:
        if all(launch.language != "gluon" for launch in code.launches):
            raise
        refused = str(error).splitlines()[0]
    log.emit("compile", f"{request.op}: Triton path: {refused}")
    from tileops.codegen import gpu

    with counters.timed("generate"):
        code = gpu.generate_plain(
            request.program, request.target.text_target, request.spec, refused
        )
    with counters.timed("compile"):
        return code, _compile(code, request)


def generate(program: Program, target: Target, spec: Specialization) -> KernelCode:
    """The text that ``program`` becomes on ``target``; needs no compiler."""
    if program.externs and (target.kind == "interpreter" or not target.is_gpu):
        names = ", ".join(dict.fromkeys(extern.name for extern in program.externs))
        raise UnsupportedOnTargetError(
            f"{program.name} launches foreign kernels ({names}), which do not run on {target}; "
            f'@tileops.jit(cpu=program) or {program.name}.fallback("cpu", function) gives CPU '
            "tensors other code",
            location=program.externs[0].loc,
        )
    target = target.text_target
    if target.kind == "cpu":
        from tileops.codegen import cpu

        return cpu.generate(program, target, spec)
    if target.is_gpu:
        from tileops.codegen import gpu

        return gpu.generate(program, target, spec)
    raise UnsupportedOnTargetError(f"no code generator for target {target}")


def _compile(code: KernelCode, request: Request) -> Artifact:
    from tileops.compiler import PlaceError, StageError

    try:
        return _compiled_somewhere(code, request)
    except StageError as error:
        raise error.at(locations(request.program)) from error
    except PlaceError as error:
        raise ToolchainError(str(error)) from None
    except OSError as error:
        raise ToolchainError(
            f"op {request.what}: the compile for {request.target} could not write "
            f"its files or start its tools: {error}; it works in the folder for temporary files, "
            "which TMPDIR names"
        ) from error


def _compiled_somewhere(code: KernelCode, request: Request) -> Artifact:
    from tileops.compiler import PlaceError, compile_kernel

    options = dict(request.program.options)
    private = here().private
    if private is not None:
        # A full disk, say, does not matter if another one has room.
        with contextlib.suppress(OSError, PlaceError), staging.folder(private, "compile") as folder:
            return compile_kernel(code, request.target, options, folder)
    with staging.temporary("compile") as folder:
        return compile_kernel(code, request.target, options, folder)


def obtain_listed(request: Request) -> cache.Entry:
    """``obtain``, and the compiled program listed under ``scripts/`` of the cache."""
    entry = obtain(request)
    if request.script is not None:
        sizes = dict(request.sizes)
        when = {"target": str(request.target), **asdict(request.spec), "sizes": sizes}
        scripts.record(scripts.Script(request.op, request.script), entry, when)
    return entry


def _export(entry: cache.Entry, root: Path, op: str) -> None:
    folder = root / op / entry.hash[:12]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in entry.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    except OSError as error:
        raise ArgumentError(
            f"op {op}: debug_root_path={str(root)!r} cannot be written: {error}"
        ) from error


def _dump_ir(request: Request, entry: cache.Entry) -> None:
    """Write ``ir/NN_<pass>.txt`` into the entry's folder, unless it has them, or warn once."""
    private = here().private
    if private is None or entry.path is None or entry.path.parent != private.programs:
        log.warn_once("dump_ir", "dump_ir: the program is not in a directory that can be written")
        return
    folder = entry.path / "ir"
    if os.path.lexists(folder):
        return
    try:
        with staging.folder(private, f"{entry.hash[:12]}.ir") as stage:
            stage.chmod(0o755)  # as other folders of entries are
            for number, (name, text) in enumerate(_dumps(request, entry)):
                write_file(stage / f"{number:02d}_{name}.txt", text.encode())
            stage.rename(folder)
    except OSError as error:
        if not os.path.lexists(folder):  # another process may have been faster
            log.warn_once("dump_ir", f"dump_ir: cannot write {folder}: {error}")


def _dumps(request: Request, entry: cache.Entry) -> Iterator[tuple[str, str]]:
    """The program as traced, after each pass, as generated text, and after each compiler stage."""
    with collected_dumps() as dumps:
        dump("trace", request.program)
        code = generate(request.program, request.target, request.spec)
    yield from dumps
    yield "generate", code.source
    for launch in range(len(code.launches)):
        for stage in ("ttir", "glir", "ttgir", "llir", "ptx", "amdgcn"):
            data = entry.files.get(f"launch{launch}.{stage}")
            if data is not None:
                yield f"launch{launch}_{stage}", data.decode("utf-8", errors="replace")


def run_all(
    jobs: Sequence[Callable[[], _T]], num_workers: int | None, ignore_error: bool
) -> list[_T | None]:
    """The results of ``jobs`` in their order, from a pool of threads.

    The first failure raises after all jobs have ended; with ``ignore_error`` each failure is logged
    and gives None. Default ``num_workers``: ``TILEOPS_COMPILE_WORKERS``, else usable processors.
    """
    from concurrent.futures import ThreadPoolExecutor

    if not jobs:
        return []
    workers = num_workers or settings.current().compile_workers or len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(max_workers=min(len(jobs), workers)) as pool:
        futures = [pool.submit(job) for job in jobs]
    results: list[_T | None] = []
    for number, future in enumerate(futures):
        error = future.exception()
        if ignore_error and isinstance(error, Exception):
            log.logger.warning("compile %d failed: %s: %s", number, type(error).__name__, error)
            results.append(None)
        else:
            results.append(future.result())
    return results
