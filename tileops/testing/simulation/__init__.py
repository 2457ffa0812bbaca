"""Programs on the CPU, a tile at a time, as they are written or in the roles of their schedules."""

from tileops.testing.simulation.launches import Memory as Memory
from tileops.testing.simulation.launches import run_plain as run_plain
from tileops.testing.simulation.launches import run_roles as run_roles
from tileops.testing.simulation.launches import simulate as simulate
