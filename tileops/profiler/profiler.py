"""The Profiler: inputs for one kernel, its time, and its comparison with a reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tileops.errors import ArgumentError
from tileops.profiler.bench import do_bench
from tileops.profiler.supply import Param, TensorSupplyType, make_tensor


class Profiler:
    """Makes inputs for a kernel and times or checks it.

    ``params`` are all parameters of the kernel, ``result_idx`` those that it returns. Without a
    ``kernel``, ``do_bench`` and ``run_once`` need a function.
    """

    def __init__(
        self,
        params: Sequence[Param],
        result_idx: Sequence[int],
        supply_type: TensorSupplyType = TensorSupplyType.Auto,
        *,
        kernel: Callable[..., object] | None = None,
        device: str | torch.device = "cuda",
    ) -> None:
        self.params = list(params)
        self.result_idx = list(result_idx)
        self.supply_type = supply_type
        self._kernel = kernel
        self.device = torch.device(device)

    @property
    def kernel(self) -> Callable[..., object]:
        """What is timed and checked; ArgumentError where there is none."""
        if self._kernel is None:
            raise ArgumentError("this profiler has no kernel: give do_bench or run_once a function")
        return self._kernel

    def with_default_adapter(self, adapter: Callable[..., object]) -> Profiler:
        """Make ``adapter`` the kernel; returns the profiler."""
        self._kernel = adapter
        return self

    @property
    def func(self) -> Callable[..., object]:
        """The kernel that is timed and checked."""
        return self.kernel

    def make_inputs(self, sizes: Mapping[str, int] | None = None) -> list[Any]:
        """New inputs, in the order of a call; ArgumentError where a shape is not known."""
        return [
            make_tensor(p, self.supply_type, self.device, sizes)
            for n, p in enumerate(self.params)
            if n not in self.result_idx
        ]

    def run_once(self, func: Callable[..., object] | None = None) -> Any:  # noqa: ANN401
        """One call of ``func`` (the kernel by default) on made inputs."""
        return (func or self.kernel)(*self.make_inputs())

    def do_bench(
        self,
        func: Callable[..., object] | None = None,
        warmup: float = 25,
        rep: float = 100,
        n_warmup: int = 0,
        n_repeat: int = 0,
        input_tensors: Sequence[Any] | None = None,
        backend: str = "event",
        quantiles: Sequence[float] | None = None,
        return_mode: str = "mean",
        dynamic_symbolic_constraints: Mapping[str, int] | None = None,
        device: str | torch.device | None = None,
        early_stop_baseline: float | None = None,
    ) -> Any:  # noqa: ANN401
        """Milliseconds of one call of ``func`` (the kernel by default); see ``do_bench``.

        ``dynamic_symbolic_constraints`` gives run-time sizes by name.
        """
        given = dynamic_symbolic_constraints
        inputs = self.make_inputs(given) if input_tensors is None else input_tensors
        call = func or self.kernel
        return do_bench(
            lambda: call(*inputs), warmup, rep, n_warmup, n_repeat, quantiles, return_mode, backend,
            device or self.device, early_stop_baseline,
        )  # fmt: skip

    def assert_allclose(
        self,
        reference_program: Callable[..., object],
        input_tensors: Sequence[Any] | None = None,
        atol: float = 1e-2,
        rtol: float = 1e-2,
        max_mismatched_ratio: float = 0.01,
    ) -> None:
        """Compare the kernel with a reference on the same inputs.

        AssertionError where more than ``max_mismatched_ratio`` of an output's elements differ by
        more than ``atol + rtol * |reference|``. Kernels that write into arguments are compared by
        those.
        """
        found, expected = self._both(reference_program, input_tensors)
        assert_all_close(found, expected, atol, rtol, max_mismatched_ratio)

    def manual_assert_close(
        self,
        reference_program: Callable[..., object],
        input_tensors: Sequence[Any] | None = None,
        manual_check_prog: Callable[[object, object], object] | None = None,
    ) -> None:
        """Call ``manual_check_prog(outputs, reference outputs)``, which raises as it likes.

        Both are lists of tensors; of kernels that write into arguments, those.
        """
        if manual_check_prog is None:
            raise ArgumentError("manual_assert_close needs manual_check_prog")
        manual_check_prog(*self._both(reference_program, input_tensors))

    def _both(
        self, reference_program: Callable[..., object], input_tensors: Sequence[Any] | None
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """What the kernel and the reference give for equal inputs."""
        inputs = self.make_inputs() if input_tensors is None else input_tensors
        copies = _copied(inputs)
        expected = _outputs(reference_program(*copies), copies)
        return _outputs(self.kernel(*inputs), inputs), expected

    def assert_consistent(self, repeat: int = 10) -> None:
        """Call the kernel several times on equal inputs; AssertionError where a bit differs."""
        inputs = self.make_inputs()
        first: list[torch.Tensor] = []
        for run in range(repeat):
            # A kernel that writes into its arguments would see what the run before left there.
            copies = _copied(inputs)
            found = _outputs(self.kernel(*copies), copies)
            first = first or found
            for n, (got, want) in enumerate(zip(found, first, strict=True)):
                if not torch.equal(_bytes(got), _bytes(want)):
                    raise AssertionError(f"run {run}: output {n} differs from the first run")


def assert_all_close(
    found: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    atol: float,
    rtol: float,
    max_mismatched_ratio: float,
) -> None:
    """``assert_close`` for each output; ArgumentError where the reference has more or fewer."""
    if len(expected) != len(found):
        raise ArgumentError(
            f"the kernel gives {len(found)} tensors and the reference {len(expected)}"
        )
    for n, (got, want) in enumerate(zip(found, expected, strict=True)):
        assert_close(got.to(want.device), want, atol, rtol, max_mismatched_ratio, f"output {n}")


def assert_close(
    got: torch.Tensor,
    want: torch.Tensor,
    atol: float,
    rtol: float,
    max_mismatched_ratio: float,
    label: str,
) -> None:
    """AssertionError naming how many elements differ, and by how much, where too many do."""
    if got.shape != want.shape:
        raise AssertionError(f"{label}: shape {tuple(got.shape)}, expected {tuple(want.shape)}")
    a, b = got.double(), want.double()
    # Equal infinities and NaN in both places agree.
    agree = (a == b) | ((a - b).abs() <= atol + rtol * b.abs()) | (a.isnan() & b.isnan())
    wrong = agree.numel() - int(agree.sum())
    if wrong > max_mismatched_ratio * agree.numel():
        largest = (a - b).abs().nan_to_num().max().item()
        raise AssertionError(
            f"{label}: {wrong} of {agree.numel()} elements differ (allowed "
            f"{max_mismatched_ratio:.3g} of them); largest difference {largest:.4g}"
        )


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _copied(values: Sequence[Any]) -> list[Any]:
    return [v.clone() if isinstance(v, torch.Tensor) else v for v in values]


def _outputs(result: object, arguments: Sequence[object]) -> list[torch.Tensor]:
    """The tensors that a call returned; of one that returned none, its arguments."""
    returned = result if isinstance(result, (list, tuple)) else [result]
    found = [v for v in returned if isinstance(v, torch.Tensor)]
    return found or [v for v in arguments if isinstance(v, torch.Tensor)]
