"""What a program asks of a machine: operations, bytes, and the least time that they take."""

from __future__ import annotations

from tileops.roofline.estimate import Estimate, analyze
from tileops.roofline.machines import Machine, machine_of
from tileops.roofline.work import Work, work_of

__all__ = ["Estimate", "Machine", "Work", "analyze", "machine_of", "work_of"]
