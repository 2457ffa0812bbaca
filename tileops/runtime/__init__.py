"""The way from an artifact to a loaded kernel: ops, variants, entries, devices.

All names of ``tileops._C`` are here, as ``tileops/_C.pyi`` describes them. Importing this package
loads no native code; the first use of one of those names does.
"""

import os
from typing import TYPE_CHECKING, TypeAlias

from tileops.runtime.devices import current_device, device_target, resolve_target

if TYPE_CHECKING:
    from tileops._C import *  # noqa: F403
else:
    from tileops.runtime.binding import __getattr__ as __getattr__

# A file of a compiled kernel: its content, its path, or its content and the path of a copy.
Image: TypeAlias = bytes | str | os.PathLike[str] | tuple[bytes, str]

__all__ = ["Image", "current_device", "device_target", "resolve_target"]
