"""Owns the way from a traced program to its compiled form: key, cache, generator, compiler."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache as cached
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tileops import cache, counters, log, settings
from tileops.cache import scripts, sources, staging
from tileops.cache.directory import resolve
from tileops.codegen.kernel_code import KernelCode, Specialization
from tileops.errors import (
    ArgumentError,
    CompileMissError,
    InternalError,
    ToolchainError,
    UnsupportedOnTargetError,
)
from tileops.ir.printer import print_program
from tileops.ir.program import Program, ScalarParam, TensorParam
from tileops.ir.walk import locations
from tileops.jit import bundles, toolchain
from tileops.jit.checking import checked
from tileops.jit.lookup import LookUp
from tileops.jit.record import record_of
from tileops.op.identity import Named
from tileops.target import Target

if TYPE_CHECKING:
    from tileops.compiler.artifact import Artifact

MANIFEST_FORMAT = 1


@dataclass(frozen=True)
class Request:
    """A compile that someone needs: a specialised program, a target, facts, and why.

    ``op``, ``title`` (its name in messages, if that is another) and ``sizes`` are for people;
    ``script`` is the hash of the program as its author wrote it, ``named`` its name and identity
    where bundles may hold an op of that name.
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


def key_of(request: Request) -> cache.Key:
    """The cache key of a request; imports no compiler."""
    request = _with_used_facts(request)
    with counters.timed("key"):
        return cache.key_of(
            ir=print_program(request.program),
            options=[list(pair) for pair in request.program.options],
            target=str(request.target),
            specialization={"fast": request.spec.fast, "index64": request.spec.index64},
            codegen=sources.digest(),
            toolchain=toolchain.versions(request.target),
        )


def obtain(request: Request) -> cache.Entry:
    """The compiled form of a program: from memory, disk or a bundle, or compiled now, once a key.

    Raises what the code generator or the compiler raises, and CompileMissError in strict mode.
    """
    request = replace(request, program=checked(request.program, request.target))
    request = _with_used_facts(request)
    looked = LookUp(request.op, request.target)
    entry = _from_bundle(request, looked) if bundles.are_named() else None
    if entry is None:
        entry = _fetched(request, looked)
    if settings.current().dump_ir:
        from tileops.jit import dumping

        program, target, spec = request.program, request.target, request.spec
        dumping.dump_ir(program, entry, lambda: generate(program, target, spec))
    if request.debug_root is not None:
        _export(entry, Path(request.debug_root), request.op)
    return entry


class _ToolsChangedError(Exception):
    """The compiler was replaced while it compiled: the code belongs to no key."""


def _fetched(request: Request, looked: LookUp) -> cache.Entry:
    for is_last in (False, False, True):
        key = _key_to_look_for(request, looked)
        hit = partial(looked.hit, name=key.hash())
        try:
            return cache.store().fetch(key, partial(_build, request, key, looked), hit)
        except _ToolsChangedError:
            if is_last:
                raise ToolchainError(
                    f"op {request.title or request.op}: the compiler for {request.target} "
                    "changed during each of three compiles"
                ) from None
    raise InternalError("not reached")


def _key_to_look_for(request: Request, looked: LookUp) -> cache.Key:
    try:
        return key_of(request)
    except ToolchainError as error:
        looked.miss(None, partial(str, error))
        raise


def _with_used_facts(request: Request) -> Request:
    # Code for the CPU assumes none of the facts, so one compile serves all of them.
    return replace(request, spec=Specialization()) if request.target.kind == "cpu" else request


def _from_bundle(request: Request, looked: LookUp) -> cache.Entry | None:
    """The program from the cache, else from a bundle; a bundle needs no compiler to be there."""
    try:
        key = key_of(request)
        entry = cache.store().get(key, partial(looked.hit, name=key.hash()))
    except ToolchainError:
        entry = None
    if entry is None:
        entry = bundles.find(request.program, request.target, request.spec, request.named)
        if entry is not None:
            looked.hit("bundle", entry.hash)
    return entry


def _build(request: Request, key: cache.Key, looked: LookUp) -> cache.Built:
    from tileops.cache import catalog  # asks why only where something is compiled

    why = cached(partial(catalog.why_missed, key, request.op))
    looked.miss(key.hash(), why)
    if settings.current().strict:
        raise CompileMissError(
            f"op {request.title or request.op} needs a compile for {request.target} "
            f"({_sizes(request.sizes) or 'no sizes'}; key {key.hash()[:12]}), and strict mode "
            "allows none; run tileops.warmup or a first call without TILEOPS_STRICT"
        )
    start = time.perf_counter()
    with counters.timed("generate"):
        code = generate(request.program, request.target, request.spec)
    with counters.timed("compile"):
        artifact = _compile(code, request)
    if json.loads(key.fields["toolchain"]) != toolchain.versions(request.target):
        raise _ToolsChangedError
    built = _built(request, code, artifact, key)
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


def generate(program: Program, target: Target, spec: Specialization) -> KernelCode:
    """The text that ``program`` becomes on ``target``; needs no compiler."""
    if target.kind == "cpu":
        from tileops.codegen import cpu

        return cpu.generate(program, target, spec)
    if target.is_gpu:
        from tileops.codegen import triton

        return triton.generate(program, target, spec)
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
            f"op {request.title or request.op}: the compile for {request.target} could not write "
            f"its files or start its tools: {error}; it works in the folder for temporary files, "
            "which TMPDIR names"
        ) from error


def _compiled_somewhere(code: KernelCode, request: Request) -> Artifact:
    from tileops.compiler import PlaceError, compile_kernel

    options = dict(request.program.options)
    private = resolve(settings.current()).private
    if private is not None:
        # A full disk, say, of which the caller need not know if there is another.
        with contextlib.suppress(OSError, PlaceError), staging.folder(private, "compile") as folder:
            return compile_kernel(code, request.target, options, folder)
    with staging.temporary("compile") as folder:
        return compile_kernel(code, request.target, options, folder)


def _built(request: Request, code: KernelCode, artifact: Artifact, key: cache.Key) -> cache.Built:
    program = request.program
    manifest = {
        "format": MANIFEST_FORMAT,
        "name": program.name,
        "target": str(request.target),
        "language": code.language,
        "toolchain": json.loads(key.fields["toolchain"]),
        "record": record_of(program, code, artifact.launches, request.spec),
        "resources": [
            {
                "entry": launch.entry,
                "registers": launch.registers,
                "spills": launch.spills,
                "shared_bytes": launch.shared_bytes,
                "notes": list(launch.notes),
            }
            for launch in artifact.launches
        ],
        "statements": {str(line): number for line, number in sorted(code.statements.items())},
    }
    files = {**artifact.files, "params.json": _params_text(program).encode()}
    images = frozenset(launch.image for launch in artifact.launches)
    return cache.Built(files, manifest, links=_links(files), required=images)


def _links(files: Mapping[str, bytes]) -> dict[str, str]:
    # With one launch the stages are also found under the plain name kernel.*.
    stages = [name for name in files if re.fullmatch(r"launch\d+\..+", name)]
    if {name.partition(".")[0] for name in stages} != {"launch0"}:
        return {}
    links = {f"kernel.{name.partition('.')[2]}": name for name in stages}
    return {link: name for link, name in links.items() if link not in files}


def _params_text(program: Program) -> str:
    params: list[dict[str, object]] = []
    for param in program.params:
        match param:
            case TensorParam(buffer=buffer):
                params.append(
                    {
                        "name": param.name,
                        "kind": "tensor",
                        "dtype": str(buffer.dtype),
                        "rank": buffer.ndim,
                        "allocated": param.allocated,
                        **({"leading": True} if param.leading else {}),
                    }
                )
            case ScalarParam(var=var):
                params.append({"name": param.name, "kind": "scalar", "dtype": str(var.dtype)})
    return json.dumps(params, indent=1) + "\n"


def _sizes(sizes: Mapping[str, int | str]) -> str:
    return " ".join(f"{name}={value}" for name, value in sizes.items())


def note_script(request: Request, entry: cache.Entry) -> None:
    """List the compiled program under ``scripts/`` of the cache."""
    if request.script is None:
        return
    when = {
        "target": str(request.target),
        "fast": request.spec.fast,
        "index64": request.spec.index64,
        "sizes": dict(request.sizes),
    }
    scripts.record(scripts.Script(request.op, request.script), entry, when)


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
