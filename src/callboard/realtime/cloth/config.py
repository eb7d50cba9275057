"""``ClothConfig``: material, surroundings and solver of a cloth."""

import math

import msgspec

from callboard.realtime.base.checks import count, number, vector
from callboard.realtime.particles.obstacles import Collider

__all__ = ["ClothConfig"]

Vector = tuple[float, float, float]


class ClothConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a cloth. A compliance is the inverse of a stiffness: how far a spring gives way, in m/N.

    Attributes:
        width, height: Particles of a rectangular cloth, along x and along y; not used with a mesh.
        spacing: Metres between its neighbours.
        density: Kilograms a square metre. A particle without a triangle, as in a rope, has ``spacing`` squared.
        pinned: Indices of particles that forces do not move; :meth:`.ClothSimulationActor.move` does.
        gravity: Acceleration.
        damping: Part of its velocity that a particle loses, a second.
        wind: Velocity of the air.
        air: Force of the air on a square metre at 1 m/s across it; 0: none.
        stretch: Compliance of springs along edges, in m/N.
        shear: Of the diagonals of a rectangular cloth.
        bend: Of springs across two triangles that share an edge, or to the second neighbour.
        substeps: Parts of a step; more of them are stiffer and keep more energy.
        iterations: Passes over all springs in each part.
        tear: A spring that is longer than ``1 + tear`` times its length at rest breaks for good; None: never.
        thickness: Particles that were further apart at rest stay this far apart; 0: the cloth passes through itself.
        colliders: Obstacles. A cloth does not bounce: their ``restitution`` is not used.
        particles, colours, fans: What follows from the mesh; set by the actor.
    """

    width: int = 16
    height: int = 16
    spacing: float = 0.1
    density: float = 0.2
    pinned: tuple[int, ...] = ()
    gravity: Vector = (0.0, -9.8, 0.0)
    damping: float = 0.1
    wind: Vector = (0.0, 0.0, 0.0)
    air: float = 0.0
    stretch: float = 0.0
    shear: float = 1e-4
    bend: float = 1e-2
    substeps: int = 8
    iterations: int = 2
    tear: float | None = None
    thickness: float = 0.0
    colliders: tuple[Collider, ...] = ()
    particles: int = 0
    colours: tuple[int, ...] = ()
    fans: int = 0

    def __post_init__(self) -> None:
        for name, most in (("width", 1 << 15), ("height", 1 << 15), ("substeps", 1024), ("iterations", 1024)):
            count(name, getattr(self, name), most=most)
        for name in ("spacing", "density"):
            number(name, getattr(self, name), above=0.0)
        for name in ("damping", "air", "stretch", "shear", "bend", "thickness"):
            number(name, getattr(self, name), least=0.0)
        for name in ("gravity", "wind"):
            vector(name, getattr(self, name))
        if self.tear is not None:
            number("tear", self.tear, above=0.0, most=math.inf)
        for n, one in enumerate(self.colliders):
            if not isinstance(one, Collider):
                raise TypeError(f"colliders[{n}] is {one!r:.80}; pass objects of Plane, Ball, Bowl, DistanceField")
        size = self.particles or self.width * self.height
        for n, pin in enumerate(self.pinned):
            count(f"pinned[{n}]", pin, least=0, most=size - 1)
