"""``ParticleConfig``: forces, obstacles and emitters of a particle system."""

import math
from typing import Any, Literal, get_args

import msgspec
import numpy as np

from callboard.core.errors import ShapeError
from callboard.realtime.base.checks import count, number, vector

__all__ = [
    "Attractor",
    "Ball",
    "Bowl",
    "Collider",
    "Contact",
    "DistanceField",
    "Emitter",
    "Field",
    "ParticleConfig",
    "ParticleMethod",
    "Plane",
    "Spring",
    "Vortex",
    "Wind",
    "check_method",
]

Vector = tuple[float, float, float]
ParticleMethod = Literal["symplectic", "verlet", "rk4"]
"""``"symplectic"``: semi-implicit Euler, first order; ``"verlet"``: velocity Verlet, second order; both keep energy
within bounds. ``"rk4"``: the classical Runge-Kutta method, fourth order."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    def __post_init__(self) -> None:
        kind = type(self).__name__
        for field in msgspec.structs.fields(self):
            name, value = field.name, getattr(self, field.name)
            if isinstance(field.default, tuple) or name in ("center", "normal", "velocity", "position", "axis"):
                vector(f"{kind}.{name}", value)
            else:
                least = {
                    "restitution": 0.0,
                    "friction": 0.0,
                    "rate": 0.0,
                    "radius": 0.0,
                    "spread": 0.0,
                    "softening": 0.0,
                }
                most = {"restitution": 1.0, "friction": 1.0}.get(name, math.inf)
                if name == "life" and value == math.inf:
                    continue
                number(f"{kind}.{name}", value, least=least.get(name, -math.inf), most=most)


class Attractor(_Part, frozen=True, kw_only=True):
    """A point that attracts by the inverse square of the distance: ``strength * d / (|d|^2 + softening^2)^1.5``."""

    center: Vector = (0.0, 0.0, 0.0)
    strength: float
    softening: float = 0.01


class Spring(_Part, frozen=True, kw_only=True):
    """A spring from each particle to a point: ``strength * d``."""

    center: Vector = (0.0, 0.0, 0.0)
    strength: float


class Vortex(_Part, frozen=True, kw_only=True):
    """A whirl about an axis: ``strength * axis x (x - center)``."""

    center: Vector = (0.0, 0.0, 0.0)
    axis: Vector = (0.0, 1.0, 0.0)
    strength: float


class Wind(_Part, frozen=True, kw_only=True):
    """Air that moves: ``strength * (velocity - v)``."""

    velocity: Vector
    strength: float


class Plane(_Part, frozen=True, kw_only=True):
    """A wall: particles stay where ``normal . x >= offset``."""

    normal: Vector = (0.0, 1.0, 0.0)
    offset: float = 0.0
    restitution: float = 0.5
    friction: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not any(self.normal):
            raise ValueError(f"Plane.normal is {self.normal}; it must have a direction")


class Ball(_Part, frozen=True, kw_only=True):
    """A sphere: particles stay outside."""

    center: Vector = (0.0, 0.0, 0.0)
    radius: float
    restitution: float = 0.5
    friction: float = 0.0


class Bowl(_Part, frozen=True, kw_only=True):
    """A hollow sphere: particles stay inside."""

    center: Vector = (0.0, 0.0, 0.0)
    radius: float
    restitution: float = 0.5
    friction: float = 0.0


class DistanceField(_Part, frozen=True, kw_only=True):
    """An obstacle of any shape: how far each place of a grid is from its surface, negative inside.

    ::

        y, x = np.indices((32, 32)) / 16 - 1
        ring = cb.DistanceField.of(
            np.abs(np.hypot(x, y) - 0.5)[None].repeat(2, 0) - 0.1, origin=(-1, -1, 0), spacing=1 / 16
        )

    What is beyond the grid is free, so the obstacle must end within it. Between its places distances are interpolated.

    Attributes:
        values: f32, in the order of ``[z, y, x]``.
        extents: Places along x, y, z, at least 2.
        origin: The first place.
        spacing: Metres between places.
        restitution, friction: As of other obstacles.
    """

    values: bytes
    extents: tuple[int, int, int]
    origin: Vector = (0.0, 0.0, 0.0)
    spacing: float
    restitution: float = 0.5
    friction: float = 0.0

    @classmethod
    def of(cls, values: Any, **others: Any) -> "DistanceField":
        """Of an array ``[z, y, x]``; the other attributes by name."""
        array = np.asarray(values)
        if array.ndim != 3 or array.dtype.kind not in "fiu":
            raise ShapeError(f"values is {array.dtype}{list(array.shape)}; pass numbers [z, y, x]")
        z, y, x = array.shape
        return cls(values=array.astype("<f4").tobytes(), extents=(x, y, z), **others)

    def __post_init__(self) -> None:
        for n, extent in enumerate(self.extents):
            count(f"DistanceField.extents[{n}]", extent, least=2, most=4096)
        if len(self.values) != 4 * math.prod(self.extents):
            raise ValueError(
                f"DistanceField.values has {len(self.values)} bytes; {list(self.extents)} places need "
                f"{4 * math.prod(self.extents)}"
            )
        if not np.isfinite(np.frombuffer(self.values, "<f4")).all():
            raise ValueError("DistanceField.values has numbers that are not finite")
        vector("DistanceField.origin", self.origin)
        number("DistanceField.spacing", self.spacing, above=0.0)
        for name in ("restitution", "friction"):
            number(f"DistanceField.{name}", getattr(self, name), least=0.0, most=1.0)


class Contact(_Part, frozen=True, kw_only=True):
    """Particles that push each other apart where they touch: a spring and a damper, along the line between them.

    Attributes:
        diameter: Of all particles.
        stiffness: Force for each metre by which two overlap.
        damping: Force for each metre a second at which they come closer. Two never pull at each other.
    """

    diameter: float
    stiffness: float
    damping: float = 0.0

    def __post_init__(self) -> None:
        number("Contact.diameter", self.diameter, above=0.0)
        number("Contact.stiffness", self.stiffness, least=0.0)
        number("Contact.damping", self.damping, least=0.0)


class Emitter(_Part, frozen=True, kw_only=True):
    """A source of particles, which take free slots in ascending order.

    Attributes:
        position, velocity: Of new particles.
        rate: Particles a second.
        radius: They begin within this distance.
        spread: Their velocities differ by up to this much.
        life: Seconds until a particle ends and its slot is free again.
    """

    position: Vector = (0.0, 0.0, 0.0)
    velocity: Vector = (0.0, 1.0, 0.0)
    rate: float
    radius: float = 0.0
    spread: float = 0.0
    life: float = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.life > 0:
            raise ValueError(f"Emitter.life is {self.life}; it must be positive")


Field = Attractor | Spring | Vortex | Wind
Collider = Plane | Ball | Bowl | DistanceField


class ParticleConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a particle system. All particles have the mass 1.

    Attributes:
        gravity: Acceleration of all particles.
        drag: Part of its velocity that a particle loses, a second: the force ``-drag * v``.
        bounds: Two corners of a box in which particles stay; None for none.
        bounce: Part of the velocity that is left after a collision with the box.
        method: See :data:`ParticleMethod`.
        fields: Further forces.
        contact: Forces between particles; None: they pass through each other.
        colliders: Obstacles.
        emitters: Sources of particles.
        capacity: Slots for particles; 0: as many as there are at the start.
        seed: Of the random numbers of emitters.
        mortal: Slots may be free; set where particles have lives, emitters, or more slots than there are.
    """

    gravity: Vector = (0.0, -9.8, 0.0)
    drag: float = 0.0
    bounds: tuple[Vector, Vector] | None = None
    bounce: float = 0.5
    method: ParticleMethod = "symplectic"
    fields: tuple[Field, ...] = ()
    contact: Contact | None = None
    colliders: tuple[Collider, ...] = ()
    emitters: tuple[Emitter, ...] = ()
    capacity: int = 0
    seed: int = 0
    mortal: bool = False

    def __post_init__(self) -> None:
        vector("gravity", self.gravity)
        number("drag", self.drag, least=0.0)
        number("bounce", self.bounce, least=0.0, most=1.0)
        count("capacity", self.capacity, least=0, most=1 << 30)
        count("seed", self.seed, least=0, most=(1 << 32) - 1)
        if self.method not in get_args(ParticleMethod):
            raise ValueError(f"method is {self.method!r}; use one of {', '.join(map(repr, get_args(ParticleMethod)))}")
        if self.contact is not None:
            if not isinstance(self.contact, Contact):
                raise TypeError(f"contact is {self.contact!r:.80}; pass a Contact, or None")
            check_method(self.method, "contact")
        if self.bounds is not None:
            low, high = (vector(f"bounds[{n}]", corner) for n, corner in enumerate(self.bounds))
            if not all(a < b for a, b in zip(low, high, strict=True)):
                raise ValueError(f"bounds is {self.bounds}; the first corner must be below the second on every axis")
        for name, kinds in (("fields", Field), ("colliders", Collider), ("emitters", Emitter)):
            for n, one in enumerate(getattr(self, name)):
                if not isinstance(one, kinds):
                    allowed = ", ".join(kind.__name__ for kind in get_args(kinds) or (Emitter,))
                    raise TypeError(f"{name}[{n}] is {one!r:.80}; pass objects of {allowed}")


def check_method(method: ParticleMethod, what: str) -> None:
    """Refuse forces that a method cannot take.

    Raises:
        ValueError: It finds forces at places that are no particles'.
    """
    if method == "rk4":
        raise ValueError(f"method is 'rk4', which takes no {what}; use 'symplectic' or 'verlet'")
