"""Foreign kernels in CUDA C++, PTX and cubins: machine code, and what it says of arguments."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tileops import forks, log, settings
from tileops.codegen.kernel_code import ForeignKernel, KernelParam, LaunchCode
from tileops.compiler.artifact import LaunchImage, StageError
from tileops.compiler.elf import KernelNotes, kernel_names, kernel_notes, kernel_resources
from tileops.compiler.nvrtc import compile_cuda
from tileops.compiler.toolchain import assembler
from tileops.errors import InternalError, SharedMemoryError, UnsupportedOnTargetError
from tileops.foreign.device_sources import CubinSource, CudaSource, PtxSource
from tileops.foreign.nvrtc_library import library
from tileops.foreign.registry import kept
from tileops.target import Target

LANGUAGES = ("cuda", "ptx", "cubin")

# The type of a parameter by the bytes that it has in the machine code.
_INTEGERS = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}
_FLOATS = {4: "f32", 8: "f64"}
_POINTER_BYTES = 8
_MAP_BYTES = 128
# The driver's numbers (cuda.h: CUtensorMapDataType, CUtensorMapSwizzle).
_ELEMENTS = {
    "uint8": 0, "int8": 0, "float8_e4m3fn": 0, "float8_e5m2": 0, "uint16": 1, "int16": 1,
    "uint32": 2, "int32": 3, "uint64": 4, "int64": 5, "float16": 6, "float32": 7, "float64": 8,
    "bfloat16": 9,
}  # fmt: skip
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}

_Code = tuple[dict[str, bytes], str]  # files by stage, and the kernel's symbol


def compile_device_code(
    number: int, launch: LaunchCode, foreign: ForeignKernel, target: Target, folder: Path
) -> tuple[dict[str, bytes], LaunchImage]:
    """The files of launch ``number`` by stage, and its image.

    StageError where a tool refuses the kernel, or its arguments do not fit what it declares.
    """
    if target.kind != "cuda":
        raise UnsupportedOnTargetError(
            f"the foreign kernel {launch.entry} is for CUDA and cannot run on {target}"
        )
    source = kept(foreign.digest)
    match source:
        case CudaSource():
            files, symbol = _from_cuda(source, launch.entry, target)
        case PtxSource():
            files, symbol = _from_ptx(source, launch.entry, target, folder)
        case CubinSource():
            files, symbol = _from_cubin(source, launch.entry, target)
        case _:
            raise InternalError(f"{launch.entry}: {type(source).__name__} is no device code")
    return files, _image(number, launch, foreign, target, files["cubin"], symbol)


def _architecture(target: Target) -> str:
    return str(target).partition(":")[2]


def _from_cuda(source: CudaSource, name: str, target: Target) -> _Code:
    options = [f"--gpu-architecture={_architecture(target)}", *source.options]
    built = compile_cuda(library(), source.text, source.name, [name], source.headers, options)
    files = {"cubin": built.cubin, "source.cu": source.text.encode()}
    if built.log:
        files["log"] = built.log.encode()
    return files, built.names[name]


def _from_ptx(source: PtxSource, name: str, target: Target, folder: Path) -> _Code:
    text, out = folder / "foreign.ptx", folder / "foreign.cubin"
    text.write_text(source.text)
    command = [str(assembler(target)), f"-arch={_architecture(target)}", "-O3", text.name]
    done = forks.run_process(
        [*command, "-o", out.name],
        cwd=str(folder),
        env=settings.compiler_environment(str(folder)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip()
        raise StageError(f"ptxas could not assemble the kernel {name} for {target}:\n{words}")
    return {"cubin": out.read_bytes(), "ptx": source.text.encode()}, name


def _from_cubin(source: CubinSource, name: str, target: Target) -> _Code:
    wanted = _architecture(target)
    major, minor = divmod(target.capability, 10)
    # Code runs on its own architecture; without the `a`, also on later minor versions of it.
    usable = [wanted, f"sm_{target.capability}", *(f"sm_{major}{m}" for m in range(minor, -1, -1))]
    for arch in usable:
        if arch in source.images:
            return {"cubin": source.images[arch]}, name
    raise StageError(
        f"the cubin of {name} is not for {target}",
        expected=", ".join(dict.fromkeys(usable)),
        found=", ".join(sorted(source.images)),
    )


def _image(
    number: int,
    launch: LaunchCode,
    foreign: ForeignKernel,
    target: Target,
    cubin: bytes,
    symbol: str,
) -> LaunchImage:
    notes = kernel_notes(cubin, symbol)
    if notes is None:
        names = ", ".join(kernel_names(cubin)) or "none"
        raise StageError("there is no such kernel in the code", expected=names, found=symbol)
    options = dict(foreign.options)
    block = tuple(int(n) for n in options["block"].split("x"))
    shared = int(options["shared"])
    _check_block(launch.entry, block, notes)
    if shared > target.shared_limit:
        raise SharedMemoryError(
            f"op {foreign.program}: the launch of {launch.entry} asks for more shared memory than "
            f"{target} has",
            location=foreign.place,
            expected=f"at most {target.shared_limit} bytes",
            found=f"{shared} bytes",
        )
    registers, spills = kernel_resources(cubin)
    return LaunchImage(
        image=f"launch{number}.cubin",
        entry=symbol,
        threads=block[0],
        more_threads=block[1:],
        shared_bytes=shared,
        registers=registers,
        spills=spills,
        types=_types(launch, notes),
        tensormaps=tuple(_map(p) for p in launch.params if p.tensormap is not None),
        notes=tuple(_unwritten(launch, foreign, symbol)),
    )


def _map(param: KernelParam) -> dict[str, object]:
    """How the map of a parameter is encoded, in the driver's numbers."""
    spec, dtype = param.tensormap, param.dtype or ""
    assert spec is not None
    if dtype not in _ELEMENTS:
        raise StageError(
            f"argument {param.name}: no tensor map has elements of this type",
            expected=", ".join(_ELEMENTS),
            found=dtype,
        )
    return {
        "box": list(spec.box),
        "swizzle": _SWIZZLES[spec.swizzle],
        "elem_type": _ELEMENTS[dtype],
        **({"nans": True} if spec.nans else {}),
    }


def _unwritten(launch: LaunchCode, foreign: ForeignKernel, symbol: str) -> Iterator[str]:
    """A note for each pointer that the kernel may write through and no declaration mentions.

    What CUDA C++ writes is not known; a parameter that is no pointer to const is a hint.
    """
    for param, declared in zip(launch.params, _declared(symbol), strict=False):
        is_hint = declared.endswith("*") and "const*" not in declared.replace(" ", "")
        if param.kind == "tensor" and is_hint and param.name not in foreign.written:
            note = (
                f"{launch.entry}: argument {param.name} is a {declared} and the program does not "
                "say that the kernel writes it (jit's mutates=, T.Extern's writes=)"
            )
            log.emit("compile", note)
            yield note


def _declared(symbol: str) -> list[str]:
    """The types of a C++ kernel's parameters from its symbol; empty for a plain name."""
    cxx = ctypes.CDLL("libstdc++.so.6")
    cxx.__cxa_demangle.restype = ctypes.c_char_p
    text = cxx.__cxa_demangle(symbol.encode(), None, None, None)
    inside = (text or b"").decode().rpartition("(")[2].rstrip(")")
    return [part.strip() for part in inside.split(", ")] if "<" not in inside else []


def _check_block(entry: str, block: tuple[int, ...], notes: KernelNotes) -> None:
    full = (*block, 1, 1)[:3]
    if notes.required is not None and full != notes.required:
        raise StageError(
            f"the block of {entry} is not the one that the kernel is compiled for (.reqntid)",
            expected=f"{notes.required}",
            found=f"{full}",
        )
    if notes.most is not None and _product(full) > _product(notes.most):
        raise StageError(
            f"the block of {entry} is larger than the kernel is compiled for (__launch_bounds__, "
            ".maxntid)",
            expected=f"at most {_product(notes.most)} threads",
            found=f"{full}",
        )


def _product(extents: tuple[int, ...]) -> int:
    total = 1
    for extent in extents:
        total *= extent
    return total


def _types(launch: LaunchCode, notes: KernelNotes) -> tuple[str, ...]:
    """The type of each parameter, as wide as the kernel declares it."""
    if len(launch.params) != len(notes.parameters):
        sizes = ", ".join(map(str, notes.parameters))
        raise StageError(
            f"{launch.entry} is launched with another number of arguments than it declares",
            expected=f"{len(notes.parameters)} arguments, of {sizes} bytes",
            found=f"{len(launch.params)}",
        )
    pairs = zip(launch.params, notes.parameters, strict=True)
    return tuple(_type(launch.entry, param, size) for param, size in pairs)


def _type(entry: str, param: KernelParam, size: int) -> str:
    if param.kind == "tensormap":
        found = param.type if size == _MAP_BYTES else None
    elif param.type in ("f16", "bf16"):
        found = param.type if size == 2 else None
    elif param.type.startswith("f"):
        found = _FLOATS.get(size)
    elif param.type == "i1":
        found = "i1" if size == 1 else None
    elif param.kind in ("tensor", "workspace", "null"):
        found = param.type if size == _POINTER_BYTES else None
    else:
        found = _INTEGERS.get(size)
    if found is None:
        what = {"ptr": "a pointer", "tensordesc": "a tensor map"}.get(
            param.type, f"a number ({param.type})"
        )
        raise StageError(
            f"argument {param.name} of {entry} does not fit the parameter that the kernel declares",
            expected=f"{size} bytes",
            found=what,
        )
    return found
