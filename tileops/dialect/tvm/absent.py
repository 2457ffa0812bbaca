"""The error for a name of TVM that tileops does not have."""

from __future__ import annotations

from tileops.errors import ProgramAttributeError


def absent(module: str, name: str) -> ProgramAttributeError:
    """An AttributeError for ``module.name``, which an import turns into its own error."""
    return ProgramAttributeError(
        f"{module}.{name}: tileops is not built on TVM and has only the dtypes, targets and scalar "
        "expressions that tile programs use; the table in docs/migrating.md lists them"
    )
