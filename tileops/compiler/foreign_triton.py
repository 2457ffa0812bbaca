"""Foreign Triton and Gluon kernels through Triton's stages."""

# ruff: noqa: ANN401 - Triton's objects have no types that could be named here.
from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from tileops.codegen.kernel_code import ForeignKernel, LaunchCode
from tileops.compiler.artifact import OneError, StageError
from tileops.compiler.stages import stages_of
from tileops.compiler.triton_params import signature_of, spelled, tensor_maps, widths
from tileops.compiler.written_arguments import written_arguments
from tileops.dtypes import DType
from tileops.errors import SharedMemoryError
from tileops.foreign.registry import kept
from tileops.foreign.triton_source import source_text
from tileops.target import Target

# Places in Triton's IR: files and lines of the machine that compiles, which no artifact names.
_PLACES = re.compile(r"^#loc.*\n|[ ]loc\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", re.MULTILINE)
_TEXTS = ("ttir", "ttgir", "glir", "llir")


def compile_foreign(
    launch: LaunchCode, foreign: ForeignKernel, target: Target
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The stages of a foreign kernel by name, and Triton's metadata.

    StageError with Triton's words; OneError, a StageError, where it refuses a kernel some of whose
    arguments are assumed to be 1; SharedMemoryError where the kernel does not fit.
    """
    function = kept(foreign.digest)
    try:
        found, metadata = stages_of(
            function,
            launch,
            target,
            _signature(function, launch, foreign),
            _constants(function, foreign),
            _options(function, launch, foreign, target),
        )
    except OSError:
        raise
    except Exception as error:
        kind = OneError if any(text == "1" for _, text in foreign.constants) else StageError
        raise kind(_explained(error, function, launch.entry)) from error
    if metadata["shared"] > target.shared_limit:
        raise SharedMemoryError(
            f"op {foreign.program}: the foreign kernel {launch.entry} needs more shared memory "
            f"than {target} has",
            location=foreign.place,
            expected=f"at most {target.shared_limit} bytes",
            found=f"{metadata['shared']} bytes",
        )
    _check_writes(function, launch, foreign, found, metadata)
    for name in _TEXTS:
        if name in found:
            found[name] = _PLACES.sub("", found[name].decode()).encode()
    found["source.py"] = source_text(function).encode()
    return found, metadata


def _signature(function: Any, launch: LaunchCode, foreign: ForeignKernel) -> dict[str, str]:
    types = {**signature_of(launch), **{name: "constexpr" for name, _ in foreign.constants}}
    return {p.name: types[p.name] for p in function.params}


def _constants(function: Any, foreign: ForeignKernel) -> dict[tuple[int], Any]:
    numbers = {p.name: p.num for p in function.params}
    return {(numbers[name],): _value(text) for name, text in foreign.constants}


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)  # what a call chose, too
    except (ValueError, SyntaxError):
        value = kept(text)
    return _tritons_dtype(value) if isinstance(value, DType) else value


def _tritons_dtype(dtype: DType) -> Any:
    import triton.language as tl

    return tl.dtype(spelled(dtype.short))


def _options(
    function: Any, launch: LaunchCode, foreign: ForeignKernel, target: Target
) -> dict[str, Any]:
    """Every option that changes code, with the defaults of Triton's own launcher."""
    chosen: dict[str, Any] = {
        "num_warps": launch.num_warps,
        "num_stages": launch.num_stages,
        "num_ctas": launch.cluster,
        "enable_fp_fusion": True,
        "default_dot_input_precision": "tf32",
        "ptx_options": "",
        "debug": bool(getattr(function, "debug", False)),
        "sanitize_overflow": False,
        "instrumentation_mode": "",
    }
    for name, text in foreign.options:
        if target.kind == "cuda" or not name.startswith("launch_"):
            chosen[name] = ast.literal_eval(text)
    return chosen


def _explained(error: Exception, function: Any, entry: str) -> str:
    """Triton's refusal in its own words, with the file and line of the innermost function."""
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    words = str(getattr(chain[-1], "error_message", None) or chain[-1]).strip()
    places = [place for one in chain if (place := _place(one, function)) is not None]
    where = f"\n  {places[-1]}" if places else ""
    return f"Triton could not compile the foreign kernel {entry}: {words}{where}"


def _place(error: BaseException, function: Any) -> str | None:
    node, source = getattr(error, "node", None), getattr(error, "src", None)
    if node is None or source is None or not hasattr(node, "lineno"):
        return None
    shown = source.splitlines()[node.lineno - 1].strip()
    if source != function.src:
        return f"in a function that it calls: {shown}"
    first = function.starting_line_number + sum(
        1 for _ in _before_def(getattr(function, "raw_src", []))
    )
    return f"{function.fn.__code__.co_filename}:{first + node.lineno - 1}: {shown}"


def _before_def(lines: Any) -> Any:
    for line in lines:
        if line.lstrip().startswith("def "):
            return
        yield line


def _check_writes(
    function: Any,
    launch: LaunchCode,
    foreign: ForeignKernel,
    found: Mapping[str, bytes],
    metadata: Mapping[str, Any],
) -> None:
    text = found.get("ttir") or found.get("ttgir") or b""
    # A descriptor is several arguments there.
    counts = widths(launch, tensor_maps(launch, metadata))
    each = {p.name: n for p, n in zip(launch.params, counts, strict=True)}
    params = [p.name for p in function.params for _ in range(each.get(p.name, 0))]
    written = {params[n] for n in written_arguments(text.decode()) if n < len(params)}
    kinds = {p.name for p in launch.params if p.kind in ("tensor", "workspace", "tensormap")}
    undeclared = sorted((written & kinds) - foreign.written)
    if undeclared:
        names = ", ".join(f"`{name}`" for name in undeclared)
        raise StageError(
            f"the foreign kernel {launch.entry} writes its argument {names}, and the program does "
            "not say so",
            expected="@tileops.jit(mutates=(...)) or T.Extern(writes=...) with the tensor, or one "
            "that T.empty makes",
        )
