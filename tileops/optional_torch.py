"""torch for the modules that define ops, and a stand-in where it is not installed.

A build that only traces and compiles does not need torch, which is a large download. There the
stand-in takes its place: programs can be defined, and what needs torch says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tileops.errors import ToolchainError

if TYPE_CHECKING:
    import torch as torch
    from torch.autograd import forward_ad as forward_ad

    IS_HERE: bool
else:

    class _Absent:
        """What ``torch`` is where it is not installed: types that nothing is an instance of."""

        class _Nothing:
            pass

        class autograd:
            Function = object

        class compiler:
            @staticmethod
            def is_compiling() -> bool:
                return False

        Tensor = SymInt = SymFloat = SymBool = device = Size = _Nothing
        __version__ = "0"

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401
            raise ToolchainError(
                f"torch is not installed, and torch.{name} is needed: pip install torch. Without "
                "it, tileops compiles programs for given targets and runs nothing"
            )

    try:
        import torch
        from torch.autograd import forward_ad

        IS_HERE = True
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        torch = forward_ad = _Absent()
        IS_HERE = False

__all__ = ["IS_HERE", "forward_ad", "torch"]
