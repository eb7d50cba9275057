"""``FluidConfig``: grid, boundaries, forces and solver of a fluid."""

import math
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from callboard.realtime.base.checks import count, number, vector
from callboard.realtime.particles.obstacles import Bowl, Collider, DistanceField, Plane
from callboard.realtime.particles.distances import sampled, values_of

__all__ = ["FluidConfig", "FluidSource", "is_fluid"]

Vector = tuple[float, float, float]


class FluidSource(msgspec.Struct, frozen=True, kw_only=True):
    """A ball in which every step adds dye and velocity.

    Attributes:
        center: In metres; the middle of the first cell is at half its spacing.
        radius: In metres. Cells whose middle is inside take part.
        density: Dye that a cell gets, a second.
        channel: Of the dye.
        acceleration: Velocity that is added, a second.
    """

    center: Vector
    radius: float
    density: float = 0.0
    channel: int = 0
    acceleration: Vector = (0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        vector("center", self.center)
        vector("acceleration", self.acceleration)
        number("radius", self.radius, above=0.0)
        number("density", self.density)
        count("channel", self.channel, least=0)


class FluidConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a fluid.

    Attributes:
        width, height, depth: Cells along x, y, z; a depth of 1 is a flow in a plane.
        spacing: Metres of a cell.
        channels: Kinds of dye.
        periodic: Whether what leaves at one end comes in at the other, along x, y, z. Other ends are walls.
        viscosity: Kinematic, in square metres a second.
        buoyancy: Acceleration along +y for each unit of dye; one number for each channel, or none.
        vorticity: Confinement of vortices, which gives back what the grid takes from the small ones; 0: none.
        fading: Part of the dye that vanishes, a second.
        solids: Obstacles: inside of balls, outside of bowls, behind planes. They may change during a simulation.
        mask: One bit for each cell that is solid for another reason; the actor makes it from an array.
        sources: Where dye and velocity come in.
        cycles: V-cycles of the pressure in each step. More of them leave less divergence.
        sweeps: Sweeps of the viscosity in each step.
    """

    width: int = 32
    height: int = 32
    depth: int = 1
    spacing: float = 1.0
    channels: int = 1
    periodic: tuple[bool, bool, bool] = (False, False, False)
    viscosity: float = 0.0
    buoyancy: tuple[float, ...] = ()
    vorticity: float = 0.0
    fading: float = 0.0
    solids: tuple[Collider, ...] = ()
    mask: bytes = b""
    sources: tuple[FluidSource, ...] = ()
    cycles: int = 2
    sweeps: int = 8

    def __post_init__(self) -> None:
        for name, most in (("width", 1 << 14), ("height", 1 << 14), ("depth", 1 << 11), ("channels", 16)):
            count(name, getattr(self, name), most=most)
        for name in ("cycles", "sweeps"):
            count(name, getattr(self, name), most=256)
        number("spacing", self.spacing, above=0.0)
        for name in ("viscosity", "vorticity", "fading"):
            number(name, getattr(self, name), least=0.0)
        periodic: Any = self.periodic
        if len(periodic) != 3 or not all(isinstance(one, bool) for one in periodic):
            raise TypeError(f"periodic is {self.periodic!r:.80}; pass three bools, for x, y, z")
        if self.buoyancy:
            vector("buoyancy", self.buoyancy, self.channels)
        for n, solid in enumerate(self.solids):
            if not isinstance(solid, Collider):
                raise TypeError(f"solids[{n}] is {solid!r:.80}; pass objects of Plane, Ball, Bowl, DistanceField")
        for n, source in enumerate(self.sources):
            if not isinstance(source, FluidSource):
                raise TypeError(f"sources[{n}] is {source!r:.80}; pass objects of FluidSource")
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
