"""Generated CUDA C++: from the text of a launch to its cubin, by NVRTC."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping

from tileops.codegen.kernel_code import CudaText, LaunchCode
from tileops.compiler.artifact import LaunchImage, StageError
from tileops.compiler.elf import kernel_resources
from tileops.compiler.nvrtc import compile_cuda
from tileops.cxx import include_folder
from tileops.errors import SharedMemoryError
from tileops.foreign.device_sources import cuda_source
from tileops.foreign.nvrtc_library import library
from tileops.target import Target

_FILE = "kernel.cu"
_STANDARD = "--std=c++17"
# The headers are host code's too: what has no execution space is for the device.
_FOR_DEVICE = "-default-device"
_PLACE = re.compile(rf"^{re.escape(_FILE)}\((\d+)\): error", re.MULTILINE)


def compile_text(
    number: int, launch: LaunchCode, text: CudaText, target: Target
) -> tuple[dict[str, bytes], LaunchImage]:
    """The files of launch ``number`` by stage, and its image.

    StageError with NVRTC's words, SharedMemoryError where the target has too little.
    """
    if text.shared_bytes > target.shared_limit:
        raise _too_much_shared(launch, text, target)
    architecture = str(target).partition(":")[2]
    options = [f"--gpu-architecture={architecture}", _STANDARD, _FOR_DEVICE]
    try:
        headers: Mapping[str, str] = _headers()
        if text.includes_cuda:
            headers = cuda_source(text.source, _FILE, (), headers, ()).headers
        built = compile_cuda(library(), text.source, _FILE, [launch.entry], headers, options)
    except StageError as error:
        place = _PLACE.search(error.message)
        statement = text.statements.get(int(place[1])) if place else None
        raise StageError(error.message, statement) from None
    registers, spills = kernel_resources(built.cubin)
    image = LaunchImage(
        image=f"launch{number}.cubin",
        entry=built.names[launch.entry],
        threads=text.threads,
        shared_bytes=text.shared_bytes,
        registers=registers,
        spills=spills,
        notes=launch.notes,
    )
    return {"cubin": built.cubin, "cu": text.source.encode()}, image


@functools.cache
def _headers() -> dict[str, str]:
    """The texts of all headers that generated text includes, by the names that it gives them."""
    folder = include_folder()
    paths = [*folder.glob("*.h"), *folder.glob("cuda/*.h")]
    return {path.relative_to(folder).as_posix(): path.read_text() for path in sorted(paths)}


def _too_much_shared(launch: LaunchCode, text: CudaText, target: Target) -> SharedMemoryError:
    parts = []
    for buffer in launch.shared_buffers:
        shape = buffer.static_shape() or ()
        size = math.prod((buffer.dtype.bytes, *shape))
        parts.append(f"{buffer.name} {shape} {buffer.dtype}: {size}")
    return SharedMemoryError(
        f"{launch.entry} needs more shared memory than {target} has; its tiles are "
        f"{'; '.join(parts)}",
        expected=f"at most {target.shared_limit} bytes",
        found=f"{text.shared_bytes} bytes",
    )
