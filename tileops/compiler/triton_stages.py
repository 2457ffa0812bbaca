"""Triton's compile stages, run from text in memory to device code, without its cache."""

# ruff: noqa: ANN401 - Triton's objects have no types that could be named here.
from __future__ import annotations

import linecache
import math
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tileops import forks, log
from tileops.codegen.kernel_code import KernelCode, LaunchCode
from tileops.compiler.artifact import Artifact, LaunchImage, PlaceError, StageError
from tileops.compiler.cuda_text import compile_text
from tileops.compiler.device_code import LANGUAGES, compile_device_code
from tileops.compiler.elf import kernel_resources
from tileops.compiler.foreign_triton import compile_foreign
from tileops.compiler.stages import stages_of
from tileops.compiler.toolchain import triton_version
from tileops.compiler.triton_params import hidden_pointers, signature_of, tensor_maps
from tileops.errors import InternalError, SharedMemoryError, ToolchainError
from tileops.target import Target

# The name under which the text is known to Python and to Triton's locations: the same everywhere.
_FILE = "kernel.py"
# Bytes of local memory a thread that cost less than a second compilation could win back.
_HARMLESS_SPILL = 64
# Those that a second block on a multiprocessor is worth.
_BOUNDED_SPILL = 128
_MOST_WARPS = 8
_ROOM = 1 << 20  # bytes, more than an assembler writes for a kernel
_STAGES_LINE = re.compile(r"^(STAGES_(\d+) = tl\.constexpr\()(\d+)\)$", re.MULTILINE)
_text_lock = forks.renewed_lock()

_BINARY = {"cuda": "cubin", "hip": "hsaco"}


@dataclass(frozen=True)
class _Job:
    """One launch to compile: ``source`` is the text, with the depths of its pipelines."""

    code: KernelCode
    source: str
    launch: LaunchCode
    target: Target
    options: Mapping[str, str]


@dataclass(frozen=True)
class _Compiled:
    """One launch after all stages: the text or bytes of each, and Triton's metadata.

    ``registers`` and ``spills``, which are bytes, are those of a thread.
    """

    stages: dict[str, bytes]
    metadata: dict[str, Any]
    source: str
    registers: int
    spills: int
    notes: tuple[str, ...] = ()


def compile_triton(
    code: KernelCode, target: Target, options: Mapping[str, str], folder: Path | None = None
) -> Artifact:
    """Compile every launch of ``code``; Triton's tools keep their files in ``folder``.

    ToolchainError without Triton, StageError with Triton's words, PlaceError where the folder
    cannot be written, SharedMemoryError where no pipeline depth fits the target.
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="tileops-triton-") as temporary:
            return compile_triton(code, target, options, Path(temporary))
    files: dict[str, bytes] = {}
    images = []
    source = code.source
    with _tritons_environment(code, folder):
        for number, launch in enumerate(code.launches):
            try:
                if launch.language in LANGUAGES:
                    found, image = _device_code(number, launch, target, folder)
                else:
                    built = _compile_launch(_Job(code, source, launch, target, options))
                    source, found = built.source, built.stages
                    image = _image(number, launch, target, built)
            except StageError as error:
                _require_room(folder)
                if launch.foreign is None:
                    raise
                raise error.of_launch(launch.foreign.program, launch.foreign.place) from error
            files.update({f"launch{number}.{stage}": data for stage, data in found.items()})
            images.append(image)
    files[_FILE] = source.encode()
    return Artifact(files, tuple(images))


def _device_code(
    number: int, launch: LaunchCode, target: Target, folder: Path
) -> tuple[dict[str, bytes], LaunchImage]:
    """A launch that Triton has no part in: a foreign kernel, or a text in CUDA C++."""
    if launch.foreign is not None:
        return compile_device_code(number, launch, launch.foreign, target, folder)
    if launch.cuda is None:
        raise InternalError(f"{launch.entry} has no text in {launch.language}")
    return compile_text(number, launch, launch.cuda, target)


@contextmanager
def _tritons_environment(code: KernelCode, folder: Path) -> Iterator[None]:
    """What Triton needs to compile, where one of the launches needs Triton."""
    if code.launches and all(launch.language in LANGUAGES for launch in code.launches):
        yield
        return
    _require_triton()
    from tileops.compiler.triton_environment import pinned

    with pinned(folder):
        yield


def _compile_launch(job: _Job) -> _Compiled:
    if job.launch.foreign is not None:
        return _compile_foreign(job)
    if job.launch.max_registers:
        return _compile_bounded(job)
    return (_compile_as_written if job.launch.language == "gluon" else _compile_unspilled)(job)


def _compile_foreign(job: _Job) -> _Compiled:
    """A kernel that is not in the text, with the warps and stages that its author chose."""
    assert job.launch.foreign is not None
    with _text_lock:
        try:
            found, metadata = compile_foreign(job.launch, job.launch.foreign, job.target)
        except OSError as error:
            raise PlaceError(f"Triton's tools could not do their work: {error}") from error
    return _Compiled(found, metadata, job.source, *kernel_resources(found.get("cubin", b"")))


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


def _compile_as_written(job: _Job) -> _Compiled:
    """The launch with the warps and stages that its text has; SharedMemoryError if they do not fit.

    A note says what a thread keeps in memory.
    """
    built = _run_stages(job)
    if built.metadata["shared"] > job.target.shared_limit:
        raise _too_much_shared(job, built.metadata["shared"])
    if built.spills == 0:
        return built
    return _noted(
        built,
        f"{job.launch.entry}: a thread keeps {built.spills} bytes of its registers in memory",
    )


def _compile_bounded(job: _Job) -> _Compiled:
    """The launch with a bound of registers; without it where more than a little spills.

    The assembler refuses a bound that is less than an instruction needs. Any other refusal comes
    again without the bound.
    """
    free = replace(job, launch=replace(job.launch, max_registers=0))
    if "tl.maxnreg" in job.options:
        return _compile_unspilled(free)
    try:
        built = _compile_fitting(job)
    except StageError:
        return _compile_unspilled(free)
    return built if built.spills <= _BOUNDED_SPILL else _compile_unspilled(free)


def _compile_unspilled(job: _Job) -> _Compiled:
    """The launch with the warps asked for, or with more where those spill registers to memory.

    The tiles of a block are the same, so that more warps hold less each. An attention forward of
    128 x 128 tiles spills 584 bytes a thread in 4 warps and runs at 84 TFLOP/s on an H200; in 8
    warps it spills nothing and runs at 392.
    """
    first = built = _compile_fitting(job)
    warps = job.launch.num_warps
    while (
        built.spills > _HARMLESS_SPILL and warps < _MOST_WARPS and "tl.maxnreg" not in job.options
    ):
        wider = replace(job.launch, num_warps=warps * 2)
        tried = _compile_fitting(replace(job, source=built.source, launch=wider))
        if 2 * tried.spills > built.spills:
            break
        warps *= 2
        built = tried
    if built is first:
        return built
    return _noted(
        built,
        f"{job.launch.entry}: warps {job.launch.num_warps} -> {warps}; a thread spilled "
        f"{first.spills} bytes, now {built.spills}",
    )


def _compile_fitting(job: _Job) -> _Compiled:
    """The launch with the deepest pipelines, up to those asked for, that fit in shared memory."""
    first = built = _run_stages(job)
    limit = job.target.shared_limit
    stages = job.launch.num_stages
    while built.metadata["shared"] > limit:
        if stages == 1:
            raise _too_much_shared(job, built.metadata["shared"])
        stages -= 1
        job = replace(job, source=_with_stages(job.source, stages))
        built = _run_stages(job)
    if built is first:
        return built
    return _noted(
        built,
        f"{job.launch.entry}: num_stages {job.launch.num_stages} -> {stages}; "
        f"{first.metadata['shared']} bytes of shared memory, {job.target} has {limit}",
    )


def _noted(built: _Compiled, note: str) -> _Compiled:
    log.emit("compile", note)
    return replace(built, notes=(*built.notes, note))


def _with_stages(source: str, most: int) -> str:
    """The text with no pipeline deeper than ``most``."""

    def lowered(match: re.Match[str]) -> str:
        return f"{match.group(1)}{min(int(match.group(2)), most)})"

    return _STAGES_LINE.sub(lowered, source)


def _too_much_shared(job: _Job, needed: int) -> SharedMemoryError:
    launch, target = job.launch, job.target
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


def _run_stages(job: _Job) -> _Compiled:
    with _text_lock:
        function = _function(job.source, job.launch.entry)
        try:
            return _stages_of(function, job)
        except OSError as error:
            raise PlaceError(f"Triton's tools could not do their work: {error}") from error
        except InternalError:
            raise
        except Exception as error:
            raise _explained(error, job) from error


def _function(source: str, entry: str) -> Any:
    """The @triton.jit or @gluon.jit function ``entry`` of the text."""
    lines = source.splitlines(keepends=True)
    # An entry without a modification time is never re-read from a file of the same name.
    linecache.cache[_FILE] = (len(source), None, lines, _FILE)
    namespace: dict[str, Any] = {"__name__": "kernel", "__file__": _FILE}
    exec(compile(source, _FILE, "exec"), namespace)
    return namespace[entry]


def _stages_of(function: Any, job: _Job) -> _Compiled:
    types = signature_of(job.launch)
    found, metadata = stages_of(function, job.launch, job.target, types, {}, _options(job))
    return _Compiled(found, metadata, job.source, *kernel_resources(found.get("cubin", b"")))


def _options(job: _Job) -> dict[str, Any]:
    """Every option that changes code: defaults differ between versions and environments."""
    chosen: dict[str, Any] = {
        "num_warps": job.launch.num_warps,
        "num_ctas": job.launch.cluster,
        # Loops that are to be pipelined say so themselves.
        "num_stages": 1,
        "enable_fp_fusion": True,
        "default_dot_input_precision": "tf32",
        "ptx_options": "",
        "debug": "tl.device_assert(" in job.source,
        "sanitize_overflow": False,
        "instrumentation_mode": "",
    }
    if "tl.maxnreg" in job.options:
        chosen["maxnreg"] = int(job.options["tl.maxnreg"])
    elif job.launch.max_registers:
        chosen["maxnreg"] = job.launch.max_registers
    return chosen


def _explained(error: Exception, job: _Job) -> StageError:
    """Triton's refusal with its own words, the line of the text, and the statement it came from."""
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    words = str(getattr(chain[-1], "error_message", None) or chain[-1]).strip()
    lines = [line for one in chain if (line := _line_of(one, job.source)) is not None]
    if not lines:
        return StageError(f"Triton could not compile {job.launch.entry}: {words}")
    line = lines[-1]
    shown = job.source.splitlines()[line - 1].strip()
    return StageError(
        f"Triton could not compile {job.launch.entry}: {words}\n  {_FILE}:{line}: {shown}",
        job.code.statements.get(line),
    )


def _line_of(error: BaseException, source: str) -> int | None:
    """The line of the text at which Triton refused a function, or None for one of its own."""
    within = getattr(getattr(error, "node", None), "lineno", None)
    function = getattr(error, "src", None)
    start = source.find(function) if function else -1
    return None if within is None or start < 0 else source.count("\n", 0, start) + int(within)


def _image(number: int, launch: LaunchCode, target: Target, built: _Compiled) -> LaunchImage:
    metadata = built.metadata
    ptx = built.stages.get("ptx")
    maps = tensor_maps(launch, metadata)
    return LaunchImage(
        image=f"launch{number}.{_BINARY[target.kind]}",
        entry=str(metadata.get("name", launch.entry)),
        # Triton adds the warps of `warp_specialize` to those that it was given.
        threads=int(metadata["num_warps"]) * target.warp_size,
        shared_bytes=int(metadata["shared"]),
        hidden=hidden_pointers(launch, ptx.decode() if ptx else None, maps),
        global_scratch_bytes=int(metadata.get("global_scratch_size") or 0),
        registers=built.registers,
        spills=built.spills,
        tensormaps=maps,
        notes=(*launch.notes, *built.notes),
    )
