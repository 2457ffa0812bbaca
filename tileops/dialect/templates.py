"""``carver.template``: configs of common programs, ranked by what the machine takes for them.

Each template has a tile program of its own. Configs are combinations of its tunable parameters
that fit the device; their rank is the time that their blocks take by the counts of
``tileops.roofline``. The tuner measures instead; these are a start without a device.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tileops.arch import CUDA, TileDevice
from tileops.autotuner.spaces import Config, fits, needs_of, space
from tileops.dialect import template_programs
from tileops.dialect.rasterization import NoRasterization, Rasterization, Rasterization2DColumn
from tileops.dtypes import dtype_of
from tileops.errors import ArgumentError, TileopsError
from tileops.ir.program import Program, const_value
from tileops.roofline import Machine, work_of

__all__ = [
    "ElementwiseTemplate",
    "FlashAttentionTemplate",
    "GEMVTemplate",
    "GeneralReductionTemplate",
    "Hint",
    "MatmulTemplate",
]

# Blocks of a wave share what they read through the L2 cache, which is about this much faster.
_CACHE_SPEEDUP = 3.0
# Between configs of one time: two accesses of 16 bytes to 16-bit elements.
_ELEMENTS_A_THREAD = 16


@dataclass(frozen=True)
class Hint:
    """A config: the tile of a block and of a warp, steps of the reduction, stages, threads."""

    block: list[int]
    warp: list[int]
    rstep: list[int]
    threads: int
    pipeline_stage: int = 1
    use_tc: bool = False
    rasterization_plan: Rasterization = field(default_factory=NoRasterization)
    seconds: float = 0.0
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def thread(self) -> list[int]:
        """Threads along each dimension of the tile, the last one first."""
        left, found = self.threads, list[int]()
        for extent in reversed(self.block):
            found.insert(0, math.gcd(left, extent))
            left //= found[0]
        return found


@dataclass
class Template(ABC):
    """What all templates do. ``with_arch`` gives the device, by default an H100."""

    arch: TileDevice = field(
        default_factory=lambda: CUDA("cuda:sm_90"), init=False, repr=False, compare=False
    )

    def with_arch(self, arch: TileDevice) -> Template:
        """Rank for this device; gives the template itself."""
        self.arch = arch
        return self

    def equivalent_function(self) -> Program:
        """The template's own program with the best config, traced."""
        return self.program(self.recommend_hints(1)[0].config)

    def recommend_hints(self, topk: int = 10) -> list[Hint]:
        """The ``topk`` best configs, best first. ArgumentError where none fits the device."""
        machine = self.arch.machine
        if machine is None:
            raise ArgumentError(f"{type(self).__name__}: the peaks of {self.arch!r} are not known")
        found = [
            dataclasses.replace(self.hint(config), config=config, seconds=seconds)
            for seconds, config in self._ranked(machine)
        ]
        if not found:
            raise ArgumentError(f"{type(self).__name__}: no config fits {self.arch!r}")
        return found[:topk]

    def get_hardware_aware_configs(
        self, arch: TileDevice | None = None, topk: int = 10
    ) -> list[Hint]:
        """``recommend_hints`` for ``arch``, by default the template's own device."""
        return (self if arch is None else self.with_arch(arch)).recommend_hints(topk)

    def _ranked(self, machine: Machine) -> list[tuple[float, Config]]:
        found = []
        for number, config in enumerate(self.configs()):
            try:
                program = self.program(config)
            except TileopsError:
                continue  # not every combination is a program
            needs = needs_of(program)
            if fits(needs, self.arch.target):
                seconds = _seconds(program, machine, self.arch, needs.shared_bytes)
                found.append((seconds, _imbalance(self.hint(config)), number, config))
        return [(seconds, config) for seconds, *_, config in sorted(found, key=lambda f: f[:3])]

    @abstractmethod
    def configs(self) -> Iterator[Config]:
        """The combinations to rank."""

    def program(self, config: Mapping[str, Any]) -> Program:
        """The traced program of a config."""
        traced: Program = self._program(config)
        return traced

    @abstractmethod
    def _program(self, config: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """The same; the language decides the types of its functions."""

    @abstractmethod
    def hint(self, config: Mapping[str, Any]) -> Hint:
        """A config as a hint."""


def _imbalance(hint: Hint) -> float:
    """How far the elements of a thread are from 16, in doublings; products have no such best."""
    elements = math.prod(hint.block) * math.prod(hint.rstep) / hint.threads
    return 0.0 if hint.use_tc else abs(math.log2(elements / _ELEMENTS_A_THREAD))


def _seconds(program: Program, machine: Machine, arch: TileDevice, shared_bytes: int) -> float:
    """The time of all waves of blocks: what a block computes, or reads and writes."""
    work = work_of(program)
    (launch,) = program.launches
    blocks = math.prod(const_value(extent) or 1 for extent in launch.grid)
    resident = max(1, min(2048 // launch.threads, arch.smem_cap // max(1, shared_bytes)))
    lanes = min(blocks, arch.compute_max_core * resident)
    waves = -(-blocks // lanes)
    idle = waves * lanes / blocks * max(1.0, arch.compute_max_core / lanes)
    products = sum(n / machine.product_peak(dtype) for dtype, n in work.products.items())
    compute = products + sum(work.elementwise.values()) / machine.elementwise
    traffic = work.traffic_bytes / (machine.bandwidth * _CACHE_SPEEDUP)
    memory = work.tensor_bytes / machine.bandwidth
    return max(compute * idle, traffic * idle, memory)


def _warps(tile: tuple[int, int], threads: int) -> list[int]:
    """The part of a tile of each warp: the longer side is divided first."""
    rows, columns = tile
    count = threads // 32
    while count > 1:
        if (rows >= columns and rows > 16) or columns <= 8:
            rows //= 2
        else:
            columns //= 2
        count //= 2
    return [max(1, rows), max(1, columns)]


@dataclass
class MatmulTemplate(Template):
    """``C[M, N] = A[M, K] @ B[N, K].T``, or with operands transposed otherwise."""

    M: int
    N: int
    K: int
    trans_A: bool = False
    trans_B: bool = True
    in_dtype: str = "float16"
    out_dtype: str = "float16"
    accum_dtype: str = "float16"
    with_bias: bool = False

    def configs(self) -> Iterator[Config]:
        tiles = tuple(t for t in (32, 64, 128, 256) if t // 2 < max(self.M, self.N)) or (32,)
        yield from space(
            block_M=tiles, block_N=tiles, block_K=(32, 64), num_stages=(2, 3, 4),
            threads=(128, 256), where=lambda block_M, block_N, threads, **_: (
                block_M * block_N * 4 <= threads * 512 and block_M * block_N >= threads * 8
            ),
        )  # fmt: skip

    def _program(self, config: Mapping[str, Any]) -> Any:  # noqa: ANN401
        dtypes = [dtype_of(d) for d in (self.in_dtype, self.out_dtype, self.accum_dtype)]
        sizes = (self.M, self.N, self.K)
        return template_programs.matmul(
            sizes, dtypes, self.trans_A, self.trans_B, self.with_bias, **config
        )

    def hint(self, config: Mapping[str, Any]) -> Hint:
        tile = (config["block_M"], config["block_N"])
        blocks = -(-self.M // tile[0]) * -(-self.N // tile[1])
        panels = blocks > 2 * self.arch.compute_max_core
        return Hint(
            list(tile), _warps(tile, config["threads"]), [config["block_K"]], config["threads"],
            config["num_stages"], True, Rasterization2DColumn(10) if panels else NoRasterization(),
        )  # fmt: skip


@dataclass
class GEMVTemplate(Template):
    """``C[N] = B[N, K] @ A[K]``; ``trans_B=False`` for B of [K, N]."""

    N: int
    K: int
    trans_B: bool = True
    in_dtype: str = "float16"
    out_dtype: str = "float16"
    accum_dtype: str = "float16"
    with_bias: bool = False

    def configs(self) -> Iterator[Config]:
        yield from space(block_N=(4, 8, 16, 32, 64), block_K=(64, 128, 256), threads=(128, 256))

    def _program(self, config: Mapping[str, Any]) -> Any:  # noqa: ANN401
        dtypes = [dtype_of(d) for d in (self.in_dtype, self.out_dtype, self.accum_dtype)]
        return template_programs.gemv(
            (self.N, self.K), dtypes, self.trans_B, self.with_bias, **config
        )

    def hint(self, config: Mapping[str, Any]) -> Hint:
        rows = config["block_N"]
        return Hint([1, rows], [1, rows], [config["block_K"]], config["threads"])


@dataclass
class ElementwiseTemplate(Template):
    """One result for each element of a tensor."""

    shape: list[int]
    dtype: str = "float16"

    def configs(self) -> Iterator[Config]:
        yield from space(block=(256, 512, 1024, 2048, 4096), threads=(128, 256))

    def _program(self, config: Mapping[str, Any]) -> Any:  # noqa: ANN401
        length = math.prod(self.shape)
        return template_programs.elementwise(length, dtype_of(self.dtype), **config)

    def hint(self, config: Mapping[str, Any]) -> Hint:
        left, tile = config["block"], list[int]()
        for extent in reversed(self.shape):
            tile.insert(0, min(left, extent))
            left = max(1, left // extent)
        return Hint(tile, tile, [], config["threads"])


@dataclass
class GeneralReductionTemplate(Template):
    """A sum over the last dimensions: ``structure`` has S for each that stays, R for the others."""

    structure: str | list[str]
    shape: list[int]
    dtype: str = "float16"

    def __post_init__(self) -> None:
        text = "".join(self.structure)
        kept = len(text) - len(text.lstrip("S"))
        if len(text) != len(self.shape) or set(text[kept:]) != {"R"} or not kept:
            raise ArgumentError(
                "GeneralReductionTemplate: expected a structure of S and then R, one letter a "
                f"dimension, such as 'SSR'; got {text!r} for {list(self.shape)}"
            )
        self._kept = kept

    def configs(self) -> Iterator[Config]:
        yield from space(rows=(1, 2, 4, 8, 16, 32), step=(128, 256, 512, 1024), threads=(128, 256))

    def _program(self, config: Mapping[str, Any]) -> Any:  # noqa: ANN401
        rows, length = math.prod(self.shape[: self._kept]), math.prod(self.shape[self._kept :])
        return template_programs.reduction(rows, length, dtype_of(self.dtype), **config)

    def hint(self, config: Mapping[str, Any]) -> Hint:
        tile = [1] * (self._kept - 1) + [config["rows"]]
        return Hint(tile, tile, [config["step"]], config["threads"])


@dataclass
class FlashAttentionTemplate(Template):
    """Attention of heads: softmax(Q K.T) V, over tiles of queries and keys."""

    batch_size: int = 1
    num_heads: int = 1
    head_dim: int = 64
    seq_length: int = 1024
    seq_kv_length: int = 1024
    is_causal: bool = False
    in_dtype: str = "float16"
    out_dtype: str = "float16"
    accum_dtype: str = "float32"

    def configs(self) -> Iterator[Config]:
        yield from space(
            block_M=(64, 128), block_N=(32, 64, 128), num_stages=(1, 2, 3), threads=(128, 256)
        )

    def _program(self, config: Mapping[str, Any]) -> Any:  # noqa: ANN401
        dtypes = [dtype_of(d) for d in (self.in_dtype, self.out_dtype, self.accum_dtype)]
        heads = self.batch_size * self.num_heads
        sizes = (heads, self.seq_length, self.seq_kv_length, self.head_dim)
        return template_programs.attention(sizes, self.is_causal, dtypes, **config)

    def hint(self, config: Mapping[str, Any]) -> Hint:
        tile = (config["block_M"], config["block_N"])
        return Hint(
            list(tile), _warps(tile, config["threads"]), [config["block_N"]], config["threads"],
            config["num_stages"], True,
        )  # fmt: skip
