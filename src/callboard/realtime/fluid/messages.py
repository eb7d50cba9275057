"""Messages of :class:`.FluidSimulationActor`."""

from typing import TYPE_CHECKING, Any

from callboard.actors import Request

if TYPE_CHECKING:
    from callboard.realtime.fluid.actor import FluidSimulationActor  # noqa: F401 -- in the types below

__all__ = ["AddDensity", "AddVelocity", "SnapshotDensity"]


class AddDensity(Request["FluidSimulationActor", None]):
    """Add dye to a cell; see :meth:`.FluidSimulationActor.add_density`."""

    x: int
    y: int
    amount: float
    z: int = 0
    channel: int = 0


class AddVelocity(Request["FluidSimulationActor", None]):
    """Add to the velocity of a cell; see :meth:`.FluidSimulationActor.add_velocity`."""

    x: int
    y: int
    vx: float
    vy: float
    z: int = 0
    vz: float = 0.0


class SnapshotDensity(Request["FluidSimulationActor", Any]):
    """The dye of a channel; see :meth:`.FluidSimulationActor.snapshot_density`."""

    channel: int = 0
