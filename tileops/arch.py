"""An import path that programs use: ``driver.get_num_sms()`` and other facts of a device."""

from __future__ import annotations

from tileops import devices as driver

__all__ = ["driver"]
