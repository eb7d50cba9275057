"""``ParticleConfig``: forces, obstacles and emitters of a particle system."""

import math
from typing import Annotated, Any, Literal

import msgspec

from callboard.core.errors import ShapeError
from callboard.realtime.base.checks import vector
from callboard.realtime.base.fields import Limits, Part, Vector, check_fields
from callboard.realtime.particles.expressions import Force, check_force, check_numbers
from callboard.realtime.particles.obstacles import Collider

__all__ = [
    "Attractor",
    "Contact",
    "Emitter",
    "Field",
    "ParticleConfig",
    "ParticleMethod",
    "Spring",
    "Vortex",
    "Wind",
    "check_method",
]

Metres = Annotated[Vector, Limits("m")]
Speed = Annotated[Vector, Limits("m/s")]
ParticleMethod = Literal["symplectic", "verlet", "rk4"]
"""``"symplectic"``: semi-implicit Euler, first order; ``"verlet"``: velocity Verlet, second order (first, where
forces read velocities); both keep energy within bounds where they read none.
``"rk4"``: the classical Runge-Kutta method, fourth order."""


class Attractor(Part, frozen=True, kw_only=True):
    """A point that attracts by the inverse square of the distance: ``strength * d / (|d|^2 + softening^2)^1.5``.

    Attributes:
        center: The point.
        strength: Force at a distance of 1 m; negative: it pushes away.
        softening: Keeps the force finite near the point.
    """

    center: Metres = (0.0, 0.0, 0.0)
    strength: Annotated[float, Limits("N m^2")]
    softening: Annotated[float, Limits("m", least=0.0)] = 0.01


class Spring(Part, frozen=True, kw_only=True):
    """A spring from each particle to a point: the force ``strength * d``.

    Attributes:
        center: The point, at which the spring is at rest.
        strength: Stiffness. A particle of mass m swings ``sqrt(strength / m) / (2 pi)`` times a second.
    """

    center: Metres = (0.0, 0.0, 0.0)
    strength: Annotated[float, Limits("N/m")]


class Vortex(Part, frozen=True, kw_only=True):
    """A whirl about an axis: the force ``strength * axis x (x - center)``.

    Attributes:
        center: A point of the axis.
        axis: Its direction; its length counts as a factor.
        strength: Force at a distance of 1 m, counterclockwise seen from the end of the axis.
    """

    center: Metres = (0.0, 0.0, 0.0)
    axis: Vector = (0.0, 1.0, 0.0)
    strength: Annotated[float, Limits("N/m")]


class Wind(Part, frozen=True, kw_only=True):
    """Air that moves: the force ``strength * (velocity - v)``.

    Attributes:
        velocity: Of the air.
        strength: Force at a difference of 1 m/s.
    """

    velocity: Speed
    strength: Annotated[float, Limits("N s/m")]


class Contact(Part, frozen=True, kw_only=True):
    """Particles that push each other apart where they touch: a spring and a damper, along the line between them.

    Attributes:
        diameter: Of all particles.
        stiffness: Force for each metre by which two overlap.
        damping: Force for each metre a second at which they come closer. Two never pull at each other.
    """

    diameter: Annotated[float, Limits("m", above=0.0)]
    stiffness: Annotated[float, Limits("N/m", least=0.0)]
    damping: Annotated[float, Limits("N s/m", least=0.0)] = 0.0


class Emitter(Part, frozen=True, kw_only=True):
    """A source of particles, which take free slots in ascending order.

    Attributes:
        position: Of new particles.
        velocity: Of new particles.
        rate: Particles a second.
        radius: They begin within this distance along each axis.
        spread: Their velocities differ by up to this much along each axis.
        life: Seconds until a particle ends and its slot is free again.
        mass: Of new particles.
        attributes: Of new particles, by name; others have those of the configuration.
    """

    position: Metres = (0.0, 0.0, 0.0)
    velocity: Speed = (0.0, 1.0, 0.0)
    rate: Annotated[float, Limits("1/s", least=0.0)]
    radius: Annotated[float, Limits("m", least=0.0)] = 0.0
    spread: Annotated[float, Limits("m/s", least=0.0)] = 0.0
    life: Annotated[float, Limits("s", above=0.0, endless=True)] = math.inf
    mass: Annotated[float, Limits("kg", above=0.0)] = 1.0
    attributes: dict[str, float] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers("Emitter.attributes", self.attributes)
        msgspec.structs.force_setattr(self, "attributes", dict(self.attributes))


Field = Attractor | Spring | Vortex | Wind | Force


class ParticleConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a particle system. Forces are divided by the mass of a particle, which is 1 kg unless it is said.

    Attributes:
        gravity: Acceleration of all particles.
        drag: The force ``-drag * v``: the part of its velocity that a particle of 1 kg loses in a second.
        bounds: Two corners of a box in which particles stay; None for none.
        bounce: Part of the velocity that is left after a collision with the box.
        method: ``"symplectic"``: semi-implicit Euler, first order; ``"verlet"``: velocity Verlet, second order, first
            where forces read velocities; ``"rk4"``: Runge-Kutta, fourth order, which takes neither contacts, nor
            :class:`.Force`, nor functions.
        fields: Further forces: :class:`Attractor`, :class:`Spring`, :class:`Vortex`, :class:`Wind`, :class:`.Force`.
        parameters: Numbers that a :class:`.Force` reads by name, and functions as arrays; cheap to change.
        attributes: Further numbers of each particle, by name, and what they are for particles that are not given them.
        contact: Forces between particles; None: they pass through each other.
        colliders: Obstacles.
        emitters: Sources of particles.
        capacity: Slots for particles; 0: as many as there are at the start, and what emitters need.
        seed: Of the random numbers of emitters.
        mortal: Slots may be free; set where particles have lives, emitters, or more slots than there are.
        massive: Masses differ from 1; set where some do.

    Raises:
        ValueError: The corners of ``bounds`` are not in order; ``method`` does not take the forces; a :class:`.Force`
            reads a name that is not known, or an emitter has an attribute that particles have not.
        TypeError, ShapeError: A field is of another kind, or has another number of items.
    """

    gravity: Annotated[Vector, Limits("m/s^2")] = (0.0, -9.8, 0.0)
    drag: Annotated[float, Limits("N s/m", least=0.0)] = 0.0
    bounds: Annotated[tuple[Vector, Vector], Limits("m")] | None = None
    bounce: Annotated[float, Limits(least=0.0, most=1.0)] = 0.5
    method: ParticleMethod = "symplectic"
    fields: tuple[Field, ...] = ()
    parameters: dict[str, float] = msgspec.field(default_factory=dict)
    attributes: dict[str, float] = msgspec.field(default_factory=dict)
    contact: Contact | None = None
    colliders: tuple[Collider, ...] = ()
    emitters: tuple[Emitter, ...] = ()
    capacity: Annotated[int, Limits(least=0, most=1 << 30)] = 0
    seed: Annotated[int, Limits(least=0, most=(1 << 32) - 1)] = 0
    mortal: bool = False
    massive: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.contact is not None:
            check_method(self.method, "contact")
        if self.bounds is not None:
            bounds: Any = self.bounds
            if not isinstance(bounds, tuple | list) or len(bounds) != 2:
                raise ShapeError(f"bounds is {bounds!r:.80}; pass two corners, or None")
            low, high = (vector(f"bounds[{n}]", corner) for n, corner in enumerate(self.bounds))
            if not all(a < b for a, b in zip(low, high, strict=True)):
                raise ValueError(f"bounds is {self.bounds}; the first corner must be below the second on every axis")
        check_numbers("parameters", self.parameters)
        check_numbers("attributes", self.attributes, self.parameters)
        for name in ("parameters", "attributes"):  # what a caller does to its own mapping changes nothing here
            msgspec.structs.force_setattr(self, name, dict(getattr(self, name)))
        for force in self.forces:
            check_method(self.method, "Force")
            check_force(force, self.attributes, self.parameters)
        for n, emitter in enumerate(self.emitters):
            unknown = sorted(emitter.attributes.keys() - self.attributes.keys())
            if unknown:
                raise ValueError(
                    f"emitters[{n}] has the attribute {unknown[0]!r}, which the particles have not; write "
                    f"attributes={{{unknown[0]!r}: 0.0}} in the configuration"
                )

    @property
    def forces(self) -> tuple[Force, ...]:
        """The expressions among the fields."""
        return tuple(one for one in self.fields if isinstance(one, Force))


def check_method(method: ParticleMethod, what: str) -> None:
    """Refuse forces that a method cannot take.

    Raises:
        ValueError: It finds forces at places that are no particles'.
    """
    if method == "rk4":
        raise ValueError(f"method is 'rk4', which takes no {what}; use 'symplectic' or 'verlet'")
