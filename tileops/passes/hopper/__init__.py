"""The analyses that bring a launch onto Hopper's asynchronous units, and the schedule they give."""

from tileops.passes.hopper.check_schedule import check_schedule as check_schedule
from tileops.passes.hopper.choices import Choices as Choices
from tileops.passes.hopper.schedule_launch import schedule_launch as schedule_launch
from tileops.passes.hopper.unfit import Unfit as Unfit
