"""``ClothConfig``: material, surroundings and solver of a cloth."""

from typing import Annotated

import msgspec

from callboard.realtime.base.checks import count
from callboard.realtime.base.fields import Limits, Vector, check_fields
from callboard.realtime.particles.obstacles import Collider

__all__ = ["ClothConfig"]


class ClothConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a cloth. A compliance is the inverse of a stiffness: how far a spring gives way, in m/N.

    Attributes:
        width: Particles of a rectangular cloth along x; not used with a mesh.
        height: Along y.
        spacing: Between its neighbours.
        density: Mass of a square metre. A particle without a triangle, as in a rope, has ``spacing`` squared.
        pinned: Indices of particles that forces do not move; :meth:`.ClothSimulationActor.move` does. In a rectangular
            cloth, the particle ``i`` along x and ``j`` along y has the index ``j * width + i``.
        gravity: Acceleration.
        damping: Part of its velocity that a particle loses, a second.
        wind: Velocity of the air.
        air: Force of the air on a square metre at 1 m/s across it.
        stretch: Compliance of springs along edges; 0 does not give way.
        shear: Of the diagonals of a rectangular cloth.
        bend: Of springs across two triangles that share an edge, or to the second neighbour.
        substeps: Parts of a step; more of them are stiffer and keep more energy.
        iterations: Passes over all springs in each part.
        tear: A spring that is longer than ``1 + tear`` times its length at rest breaks for good; None: never.
        thickness: Particles that were further apart at rest stay this far apart; 0: the cloth passes through itself.
        colliders: Obstacles. A cloth does not bounce: their ``restitution`` is not used.
        particles, colours, fans: What follows from the mesh; set by the actor.

    Raises:
        ValueError: An index of ``pinned`` is of no particle; ``width``, ``height``, ``spacing`` or ``density`` of a
            cloth that exists is changed.
    """

    width: Annotated[int, Limits(most=1 << 15)] = 16
    height: Annotated[int, Limits(most=1 << 15)] = 16
    spacing: Annotated[float, Limits("m", above=0.0)] = 0.1
    density: Annotated[float, Limits("kg/m^2", above=0.0)] = 0.2
    pinned: tuple[Annotated[int, Limits(least=0)], ...] = ()
    gravity: Annotated[Vector, Limits("m/s^2")] = (0.0, -9.8, 0.0)
    damping: Annotated[float, Limits("1/s", least=0.0)] = 0.1
    wind: Annotated[Vector, Limits("m/s")] = (0.0, 0.0, 0.0)
    air: Annotated[float, Limits("N s/m^3", least=0.0)] = 0.0
    stretch: Annotated[float, Limits("m/N", least=0.0)] = 0.0
    shear: Annotated[float, Limits("m/N", least=0.0)] = 1e-4
    bend: Annotated[float, Limits("m/N", least=0.0)] = 1e-2
    substeps: Annotated[int, Limits(most=1024)] = 8
    iterations: Annotated[int, Limits(most=1024)] = 2
    tear: Annotated[float, Limits(above=0.0)] | None = None
    thickness: Annotated[float, Limits("m", least=0.0)] = 0.0
    colliders: tuple[Collider, ...] = ()
    particles: Annotated[int, Limits(least=0)] = 0
    colours: tuple[Annotated[int, Limits(least=0)], ...] = ()
    fans: Annotated[int, Limits(least=0)] = 0

    def __post_init__(self) -> None:
        check_fields(self)
        size = self.particles or self.width * self.height
        for n, pin in enumerate(self.pinned):
            count(f"pinned[{n}]", pin, least=0, most=size - 1)
