"""``tilelang.tools``: the analyser of programs, over ``tileops.roofline``; pictures of layouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tileops.dialect.layout_picture import plot_layout
from tileops.errors import ArgumentTypeError
from tileops.ir.program import Program
from tileops.roofline import Estimate, analyze
from tileops.target import Target

__all__ = ["AnalysisResult", "Analyzer", "plot_layout"]


@dataclass(frozen=True)
class AnalysisResult:
    """What an analysis found.

    ``total_flops`` are operations of matrix products, ``total_global_bytes`` those that blocks
    read and write, ``estimated_time`` seconds, ``expected_tflops`` and ``expected_bandwidth_GBps``
    the machine's peaks; None where its peaks are not known.
    """

    total_flops: int
    total_global_bytes: int
    estimated_time: float | None
    expected_tflops: float | None
    expected_bandwidth_GBps: float | None
    estimate: Estimate


class Analyzer:
    """Counts what a program does on a device, such as ``tilelang.carver.arch.CUDA("cuda")``."""

    def __init__(self, fn: Any, device: Any) -> None:  # noqa: ANN401
        """Take a traced program, as of ``f.get_tir(...)``, or a ``@T.prim_func``.

        ArgumentTypeError for anything else.
        """
        program = fn if isinstance(fn, Program) else getattr(fn, "program", None)
        if not isinstance(program, Program):
            raise ArgumentTypeError(f"Analyzer: expected a program, got {type(fn).__name__}")
        target = getattr(device, "target", device)
        if not isinstance(target, Target):
            raise ArgumentTypeError(f"Analyzer: expected a device, got {device!r}")
        self._estimate = analyze(program, target, device_name=getattr(device, "name", ""))

    def ir_pass(self) -> Analyzer:
        """The analyser itself: everything was counted when it was made."""
        return self

    def calculate(self) -> AnalysisResult:
        """What was counted, and the time that it takes at least."""
        work, machine = self._estimate.work, self._estimate.machine
        main = max(work.products, key=lambda d: work.products[d], default="float32")
        return AnalysisResult(
            sum(work.products.values()),
            work.traffic_bytes,
            self._estimate.seconds,
            machine.product_peak(main) * 1e-12 if machine else None,
            machine.bandwidth * 1e-9 if machine else None,
            self._estimate,
        )

    @classmethod
    def analysis(cls, fn: Any, device: Any) -> AnalysisResult:  # noqa: ANN401
        """The result for a program on a device."""
        return cls(fn, device).calculate()


__path__: list[str] = []  # imports of what is below it come here
