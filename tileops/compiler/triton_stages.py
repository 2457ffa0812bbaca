"""Triton's compile stages, run from text in memory to device code, without its cache."""

# ruff: noqa: ANN401 - Triton's objects have no types that could be named here.
from __future__ import annotations

import linecache
import math
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tileops import forks, log
from tileops.codegen.kernel_code import KernelCode, LaunchCode
from tileops.compiler import ptx_repairs
from tileops.compiler.artifact import Artifact, LaunchImage, PlaceError, StageError
from tileops.compiler.elf import kernel_resources
from tileops.compiler.toolchain import triton_version
from tileops.compiler.triton_params import hidden_pointers, tensor_maps, type_text
from tileops.errors import SharedMemoryError, ToolchainError
from tileops.target import Target

# The name under which the text is known to Python and to Triton's locations: the same everywhere.
_FILE = "kernel.py"
# Bytes of local memory a thread that cost less than a second compilation could win back.
_HARMLESS_SPILL = 64
_MOST_WARPS = 8
_ROOM = 1 << 20  # bytes, more than an assembler writes for a kernel
_STAGES_LINE = re.compile(r"^(STAGES_(\d+) = tl\.constexpr\()(\d+)\)$", re.MULTILINE)
_text_lock = forks.renewed_lock()

_BINARY = {"cuda": "cubin", "hip": "hsaco"}


@dataclass(frozen=True)
class _Compiled:
    """One launch after all stages: the text or bytes of each, and Triton's metadata."""

    stages: dict[str, bytes]
    metadata: dict[str, Any]
    source: str
    notes: tuple[str, ...] = ()


def compile_triton(
    code: KernelCode, target: Target, options: Mapping[str, str], folder: Path | None = None
) -> Artifact:
    """Compile every launch of ``code``; Triton's tools keep their files in ``folder``.

    ToolchainError without Triton, StageError with Triton's words, PlaceError where the folder
    cannot be written, SharedMemoryError where no pipeline depth fits the target.
    """
    _require_triton()
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="tileops-triton-") as temporary:
            return compile_triton(code, target, options, Path(temporary))
    from tileops.compiler.triton_environment import pinned

    files: dict[str, bytes] = {}
    images = []
    source = code.source
    with pinned(folder):
        for number, launch in enumerate(code.launches):
            is_gluon = launch.language == "gluon"
            compiled = _compile_as_written if is_gluon else _compile_unspilled
            try:
                built = compiled(code, source, launch, target, options)
            except StageError:
                _require_room(folder)
                raise
            source = built.source
            for stage, content in built.stages.items():
                files[f"launch{number}.{stage}"] = content
            images.append(_image(number, launch, target, built))
    files[_FILE] = source.encode()
    return Artifact(files, tuple(images))


def _require_room(folder: Path) -> None:
    """PlaceError where the assembler may have failed because it could not write its output."""
    try:
        (folder / "room").write_bytes(bytes(_ROOM))
    except OSError as error:
        raise PlaceError(f"Triton's tools could not write in {folder}: {error}") from None


def _require_triton() -> None:
    try:
        import triton
    except ImportError as error:
        raise ToolchainError(
            "compiling for a GPU needs Triton 3.6 to 3.9, which is not installed: "
            "pip install triton"
        ) from error
    if triton.knobs.runtime.interpret:
        raise ToolchainError(
            "Triton was imported with TRITON_INTERPRET=1; such a process cannot compile for a GPU"
        )
    # A key names the Triton that is installed, and this process compiles with the one it imported.
    installed = triton_version()
    if installed.partition("+")[0] != triton.__version__.partition("+")[0]:
        raise ToolchainError(
            f"Triton {triton.__version__} was imported and {installed} is installed; restart this "
            "process to compile with the installed one"
        )


def _compile_as_written(
    code: KernelCode, source: str, launch: LaunchCode, target: Target, options: Mapping[str, str]
) -> _Compiled:
    """The launch with the warps and stages that its text has; SharedMemoryError if they do not fit.

    A note says what a thread keeps in memory.
    """
    built = _run_stages(code, source, launch, target, options)
    if built.metadata["shared"] > target.shared_limit:
        raise _too_much_shared(launch, target, built.metadata["shared"])
    spilled = _spilled_bytes(built, target)
    if spilled == 0:
        return built
    note = f"{launch.entry}: a thread keeps {spilled} bytes of its registers in memory"
    log.emit("compile", note)
    return replace(built, notes=(note,))


def _compile_unspilled(
    code: KernelCode, source: str, launch: LaunchCode, target: Target, options: Mapping[str, str]
) -> _Compiled:
    """The launch with the warps asked for, or with more where those spill registers to memory.

    The tiles of a block are the same, so that more warps hold less each. An attention forward of
    128 x 128 tiles spills 584 bytes a thread in 4 warps and runs at 84 TFLOP/s on an H200; in 8
    warps it spills nothing and runs at 392.
    """
    built = _compile_fitting(code, source, launch, target, options)
    first = spilled = _spilled_bytes(built, target)
    warps = launch.num_warps
    while spilled > _HARMLESS_SPILL and warps < _MOST_WARPS and "tl.maxnreg" not in options:
        wider = replace(launch, num_warps=warps * 2)
        tried = _compile_fitting(code, built.source, wider, target, options)
        if 2 * _spilled_bytes(tried, target) > spilled:
            break
        warps *= 2
        built, spilled = tried, _spilled_bytes(tried, target)
    if warps == launch.num_warps:
        return built
    note = (
        f"{launch.entry}: warps {launch.num_warps} -> {warps}; a thread spilled {first} bytes, "
        f"now {spilled}"
    )
    log.emit("compile", note)
    return replace(built, notes=(*built.notes, note))


def _spilled_bytes(built: _Compiled, target: Target) -> int:
    return kernel_resources(built.stages["cubin"])[1] if target.kind == "cuda" else 0


def _compile_fitting(
    code: KernelCode, source: str, launch: LaunchCode, target: Target, options: Mapping[str, str]
) -> _Compiled:
    """The launch with the deepest pipelines, up to those asked for, that fit in shared memory."""
    built = _run_stages(code, source, launch, target, options)
    limit = target.shared_limit
    first = built.metadata["shared"]
    stages = deepest = launch.num_stages
    while built.metadata["shared"] > limit:
        if stages == 1:
            raise _too_much_shared(launch, target, built.metadata["shared"])
        stages -= 1
        source = _with_stages(source, stages)
        built = _run_stages(code, source, launch, target, options)
    if stages == deepest:
        return built
    note = (
        f"{launch.entry}: num_stages {deepest} -> {stages}; {first} bytes of shared memory, "
        f"{target} has {limit}"
    )
    log.emit("compile", note)
    return _Compiled(built.stages, built.metadata, built.source, (note,))


def _with_stages(source: str, most: int) -> str:
    """The text with no pipeline deeper than ``most``."""

    def lowered(match: re.Match[str]) -> str:
        return f"{match.group(1)}{min(int(match.group(2)), most)})"

    return _STAGES_LINE.sub(lowered, source)


def _too_much_shared(launch: LaunchCode, target: Target, needed: int) -> SharedMemoryError:
    parts = []
    for buffer in launch.shared_buffers:
        shape = buffer.static_shape() or ()
        size = math.prod((buffer.dtype.bytes, *shape))
        parts.append(f"{buffer.name} {shape} {buffer.dtype}: {size}")
    how = "" if launch.language == "gluon" else ", also without pipelining"
    return SharedMemoryError(
        f"{launch.entry} needs more shared memory than {target} has{how}; "
        f"its shared buffers are {'; '.join(parts) or 'none (its gemm tiles are too large)'}",
        expected=f"at most {target.shared_limit} bytes",
        found=f"{needed} bytes",
    )


def _run_stages(
    code: KernelCode, source: str, launch: LaunchCode, target: Target, options: Mapping[str, str]
) -> _Compiled:
    with _text_lock:
        function = _function(source, launch.entry)
        try:
            return _stages_of(function, source, launch, target, options)
        except OSError as error:
            raise PlaceError(f"Triton's tools could not do their work: {error}") from error
        except Exception as error:
            raise _explained(error, code, source, launch) from error


def _function(source: str, entry: str) -> Any:
    """The @triton.jit or @gluon.jit function ``entry`` of the text."""
    lines = source.splitlines(keepends=True)
    # An entry without a modification time is never re-read from a file of the same name.
    linecache.cache[_FILE] = (len(source), None, lines, _FILE)
    namespace: dict[str, Any] = {"__name__": "kernel", "__file__": _FILE}
    exec(compile(source, _FILE, "exec"), namespace)
    return namespace[entry]


def _stages_of(
    function: Any, source: str, launch: LaunchCode, target: Target, options: Mapping[str, str]
) -> _Compiled:
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    gpu = GPUTarget(
        target.kind, target.capability if target.kind == "cuda" else target.arch, target.warp_size
    )
    backend = make_backend(gpu)
    parsed = backend.parse_options(_options(launch, source, options))
    signature = {p.name: type_text(p) for p in launch.params}
    attributes = {(n,): [["tt.divisibility", 16]] for n, p in enumerate(launch.params) if p.aligned}
    text = _source_class(launch.language)(function, signature, {}, attributes)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = text.make_ir(
        gpu, parsed, backend.get_codegen_implementation(parsed), backend.get_module_map(), context
    )
    stages: dict[str, Any] = {}
    backend.add_stages(stages, parsed, text.language)
    metadata: dict[str, Any] = {"num_warps": launch.num_warps, "num_ctas": launch.cluster}
    found: dict[str, bytes] = {}
    for name, run in stages.items():
        module = run(module, metadata)
        if name == "ptx":
            module = ptx_repairs.repaired(module)
        found[name] = module if isinstance(module, bytes) else str(module).encode()
    return _Compiled(found, metadata, source)


def _source_class(language: str) -> Any:
    """Triton's class for functions of ``language``, which also chooses the stages."""
    if language == "gluon":
        from triton.experimental.gluon._runtime import GluonASTSource

        return GluonASTSource
    from triton.compiler.compiler import ASTSource

    return ASTSource


def _options(launch: LaunchCode, source: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Every option that changes code: defaults differ between versions and environments."""
    checks = "tl.device_assert(" in source
    chosen: dict[str, Any] = {
        "num_warps": launch.num_warps,
        "num_ctas": launch.cluster,
        # Loops that are to be pipelined say so themselves.
        "num_stages": 1,
        "enable_fp_fusion": True,
        "default_dot_input_precision": "tf32",
        "ptx_options": "",
        "debug": checks,
        "sanitize_overflow": False,
        "instrumentation_mode": "",
    }
    if "tl.maxnreg" in options:
        chosen["maxnreg"] = int(options["tl.maxnreg"])
    return chosen


def _explained(error: Exception, code: KernelCode, source: str, launch: LaunchCode) -> StageError:
    """Triton's refusal with its own words, the line of the text, and the statement it came from."""
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    words = str(getattr(chain[-1], "error_message", None) or chain[-1]).strip()
    lines = [line for one in chain if (line := _line_of(one, source)) is not None]
    if not lines:
        return StageError(f"Triton could not compile {launch.entry}: {words}")
    line = lines[-1]
    shown = source.splitlines()[line - 1].strip()
    return StageError(
        f"Triton could not compile {launch.entry}: {words}\n  {_FILE}:{line}: {shown}",
        code.statements.get(line),
    )


def _line_of(error: BaseException, source: str) -> int | None:
    """The line of the text at which Triton refused a function, or None for one of its own."""
    within = getattr(getattr(error, "node", None), "lineno", None)
    function = getattr(error, "src", None)
    start = source.find(function) if function else -1
    return None if within is None or start < 0 else source.count("\n", 0, start) + int(within)


def _image(number: int, launch: LaunchCode, target: Target, built: _Compiled) -> LaunchImage:
    metadata = built.metadata
    binary = _BINARY[target.kind]
    cubin = built.stages[binary]
    registers, local = kernel_resources(cubin) if binary == "cubin" else (0, 0)
    scratch = int(metadata.get("global_scratch_size") or 0)
    ptx = built.stages.get("ptx")
    return LaunchImage(
        image=f"launch{number}.{binary}",
        entry=str(metadata.get("name", launch.entry)),
        # Triton adds the warps of `warp_specialize` to those that it was given.
        threads=int(metadata["num_warps"]) * target.warp_size,
        shared_bytes=int(metadata["shared"]),
        hidden=hidden_pointers(launch, ptx.decode() if ptx else None),
        global_scratch_bytes=scratch,
        registers=registers,
        spills=local,
        tensormaps=tensor_maps(launch, metadata),
        notes=built.notes,
    )
