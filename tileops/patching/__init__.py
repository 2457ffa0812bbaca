"""Models whose modules call the operators of ``tileops.ops``: ``tileops.patch``."""

from tileops.patching.entry import patch as patch
from tileops.patching.report import Report as Report

__all__ = ["Report", "patch"]
