"""``FluidConfig``: grid, boundaries, forces and solver of a fluid."""

import math
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from callboard.realtime.base.checks import count, vector
from callboard.realtime.base.fields import Limits, Vector, check_fields
from callboard.realtime.particles.distances import sampled, values_of
from callboard.realtime.particles.obstacles import Bowl, Collider, DistanceField, Plane

__all__ = ["FluidConfig", "FluidSource", "is_fluid"]


class FluidSource(msgspec.Struct, frozen=True, kw_only=True):
    """A ball in which every step adds dye and velocity.

    Attributes:
        center: Of the ball; the middle of the first cell is at half its spacing.
        radius: Cells whose middle is inside take part.
        density: Dye that a cell gets, a second.
        channel: Of the dye.
        acceleration: Velocity that is added, a second.
    """

    center: Annotated[Vector, Limits("m")]
    radius: Annotated[float, Limits("m", above=0.0)]
    density: Annotated[float, Limits("dye/s")] = 0.0
    channel: Annotated[int, Limits(least=0)] = 0
    acceleration: Annotated[Vector, Limits("m/s^2")] = (0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        check_fields(self)


class FluidConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a fluid.

    Attributes:
        width: Cells along x.
        height: Cells along y.
        depth: Cells along z; a depth of 1 is a flow in a plane.
        spacing: Of a cell.
        channels: Kinds of dye.
        periodic: Whether what leaves at one end comes in at the other, along x, y, z. Other ends are walls.
        viscosity: Kinematic.
        buoyancy: Acceleration along +y for each unit of dye; one number for each channel, or none.
        vorticity: Confinement of vortices, which gives back what the grid takes from the small ones; 0: none.
        fading: Part of the dye that vanishes, a second.
        solids: Obstacles: inside of balls, outside of bowls, behind planes. They may change during a simulation.
        mask: One bit for each cell that is solid for another reason; the actor makes it from an array.
        sources: Where dye and velocity come in.
        cycles: V-cycles of the pressure in each step. More of them leave less divergence.
        sweeps: Sweeps of the viscosity in each step.

    Raises:
        ShapeError: ``buoyancy`` has not one number for each channel.
        ValueError: A source has a channel that there is not; ``mask`` has another length.
        TypeError: ``periodic`` is not three bools.
    """

    width: Annotated[int, Limits(most=1 << 14)] = 32
    height: Annotated[int, Limits(most=1 << 14)] = 32
    depth: Annotated[int, Limits(most=1 << 11)] = 1
    spacing: Annotated[float, Limits("m", above=0.0)] = 1.0
    channels: Annotated[int, Limits(most=16)] = 1
    periodic: tuple[bool, bool, bool] = (False, False, False)
    viscosity: Annotated[float, Limits("m^2/s", least=0.0)] = 0.0
    buoyancy: Annotated[tuple[float, ...], Limits("m/s^2")] = ()
    vorticity: Annotated[float, Limits(least=0.0)] = 0.0
    fading: Annotated[float, Limits("1/s", least=0.0)] = 0.0
    solids: tuple[Collider, ...] = ()
    mask: bytes = b""
    sources: tuple[FluidSource, ...] = ()
    cycles: Annotated[int, Limits(most=256)] = 2
    sweeps: Annotated[int, Limits(most=256)] = 8

    def __post_init__(self) -> None:
        check_fields(self)
        periodic: Any = self.periodic
        if len(periodic) != 3 or not all(isinstance(one, bool) for one in periodic):
            raise TypeError(f"periodic is {self.periodic!r:.80}; pass three bools, for x, y, z")
        if self.buoyancy:
            vector("buoyancy", self.buoyancy, self.channels)
        for n, source in enumerate(self.sources):
            count(f"sources[{n}].channel", source.channel, least=0, most=self.channels - 1)
        if self.mask and len(self.mask) != -(-math.prod(self.shape) // 8):
            raise ValueError(f"mask has {len(self.mask)} bytes; it needs one bit for each of {list(self.shape)} cells")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of a field: depth, height, width."""
        return self.depth, self.height, self.width

    @property
    def axes(self) -> int:
        """Components of a velocity."""
        return 2 if self.depth == 1 else 3


def is_fluid(config: FluidConfig) -> NDArray[np.bool_]:
    """Which cells are not solid, ``[d, h, w]``."""
    z, y, x = np.indices(config.shape)
    places = (np.stack([x, y, z], -1) + 0.5) * config.spacing
    found = np.ones(config.shape, bool)
    for one in config.solids:
        if isinstance(one, Plane):
            normal: Any = np.array(one.normal, "f8")
            found &= places @ normal / np.linalg.norm(normal) >= one.offset
        elif isinstance(one, DistanceField):
            which, depth, _ = sampled(values_of(one), places.reshape(-1, 3).T.astype("f4"), one.origin, one.spacing)
            found.reshape(-1)[which[depth < 0]] = False
        else:
            away = places - np.array(one.center)
            if config.depth == 1:
                away = away[..., :2]
            inside = (away**2).sum(-1) < one.radius**2
            found &= inside if isinstance(one, Bowl) else ~inside
    if config.mask:
        bits = np.unpackbits(np.frombuffer(config.mask, "u1"), count=found.size)
        found &= bits.reshape(config.shape) == 0
    return found
