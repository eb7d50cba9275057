"""Obstacles of particles, cloth and fluids."""

import math
from typing import Annotated, Any

import numpy as np

from callboard.core.errors import ShapeError
from callboard.core.ref.hostarrays import refuse_masked
from callboard.realtime.base.checks import count
from callboard.realtime.base.fields import Limits, Part, Vector

__all__ = ["Ball", "Bowl", "Collider", "DistanceField", "Plane"]

Metres = Annotated[Vector, Limits("m")]
Share = Annotated[float, Limits(least=0.0, most=1.0)]
Radius = Annotated[float, Limits("m", least=0.0)]


class Plane(Part, frozen=True, kw_only=True):
    """A wall: particles stay where ``normal . x >= offset``.

    Attributes:
        normal: Away from the wall, of any length but 0.
        offset: Where the wall is; with a normal of length 1, its distance from the origin.
        restitution: Part of the velocity across the wall that is left after a collision.
        friction: Part of the velocity along the wall that is lost in a collision.

    Raises:
        ValueError: ``normal`` is 0.
    """

    normal: Vector = (0.0, 1.0, 0.0)
    offset: Annotated[float, Limits("m")] = 0.0
    restitution: Share = 0.5
    friction: Share = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not any(self.normal):
            raise ValueError(f"Plane.normal is {self.normal}; it must have a direction")


class Ball(Part, frozen=True, kw_only=True):
    """A sphere: particles stay outside.

    Attributes:
        center: Of the sphere.
        radius: Of the sphere.
        restitution, friction: As of a :class:`Plane`.
    """

    center: Metres = (0.0, 0.0, 0.0)
    radius: Radius
    restitution: Share = 0.5
    friction: Share = 0.0


class Bowl(Part, frozen=True, kw_only=True):
    """A hollow sphere: particles stay inside.

    Attributes:
        center: Of the sphere.
        radius: Of the sphere.
        restitution, friction: As of a :class:`Plane`.
    """

    center: Metres = (0.0, 0.0, 0.0)
    radius: Radius
    restitution: Share = 0.5
    friction: Share = 0.0


class DistanceField(Part, frozen=True, kw_only=True):
    """An obstacle of any shape: how far each place of a grid is from its surface, negative inside.

    ::

        y, x = np.indices((32, 32)) / 16 - 1
        ring = cb.DistanceField.of(
            np.abs(np.hypot(x, y) - 0.5)[None].repeat(2, 0) - 0.1, origin=(-1, -1, 0), spacing=1 / 16
        )

    What is beyond the grid is free, so the obstacle must end within it. Between its places distances are interpolated.

    Attributes:
        values: f32, in the order of ``[z, y, x]``; :meth:`of` makes them of an array.
        extents: Places along x, y, z, from 2 to 4096.
        origin: The first place.
        spacing: Between places.
        restitution, friction: As of a :class:`Plane`.

    Raises:
        ValueError: ``values`` has another number of items than ``extents`` say, or one that is not finite.
        ShapeError: What :meth:`of` gets is no array of three axes.
    """

    values: bytes
    extents: tuple[int, int, int]
    origin: Metres = (0.0, 0.0, 0.0)
    spacing: Annotated[float, Limits("m", above=0.0)]
    restitution: Share = 0.5
    friction: Share = 0.0

    @classmethod
    def of(cls, values: Any, **others: Any) -> "DistanceField":
        """Of an array ``[z, y, x]``; the other attributes by name."""
        refuse_masked(values, "values", "array.filled(value)")
        array = np.asarray(values)
        if array.ndim != 3 or array.dtype.kind not in "fiu":
            raise ShapeError(f"values is {array.dtype}{list(array.shape)}; pass numbers [z, y, x]")
        z, y, x = array.shape
        return cls(values=array.astype("<f4").tobytes(), extents=(x, y, z), **others)

    def __repr__(self) -> str:
        return f"<distances at {' x '.join(map(str, self.extents))} places, {self.spacing:g} m apart>"

    def __post_init__(self) -> None:
        super().__post_init__()
        for n, extent in enumerate(self.extents):
            count(f"DistanceField.extents[{n}]", extent, least=2, most=4096)
        if len(self.values) != 4 * math.prod(self.extents):
            raise ValueError(
                f"DistanceField.values has {len(self.values)} bytes; {list(self.extents)} places need "
                f"{4 * math.prod(self.extents)}"
            )
        if not np.isfinite(np.frombuffer(self.values, "<f4")).all():
            raise ValueError("DistanceField.values has numbers that are not finite")


Collider = Plane | Ball | Bowl | DistanceField
