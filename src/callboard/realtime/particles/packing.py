"""A configuration as rows of numbers, which kernels read: 12 for each field, collider and emitter."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from callboard.realtime.particles.config import Attractor, Emitter, ParticleConfig, Spring, Vortex, Wind
from callboard.realtime.particles.distances import values_of
from callboard.realtime.particles.expressions import Force
from callboard.realtime.particles.obstacles import Ball, Bowl, Collider, DistanceField, Plane

__all__ = [
    "ATTRACTOR",
    "BALL",
    "BOWL",
    "BOX",
    "METHODS",
    "NOTHING",
    "PLANE",
    "SPRING",
    "VORTEX",
    "WIDTH",
    "WIND",
    "distance_fields",
    "packed",
    "packed_colliders",
]

WIDTH = 12
NOTHING = 0
ATTRACTOR, SPRING, VORTEX, WIND = 1, 2, 3, 4
PLANE, BALL, BOWL, BOX = 1, 2, 3, 4
METHODS = {"symplectic": 0, "verlet": 1, "rk4": 2}

Floats = NDArray[np.float32]


def packed(config: ParticleConfig) -> dict[str, Floats]:
    """The arrays of a configuration. Where there are no rows, there is one of :data:`NOTHING`."""
    colliders = _plain(config.colliders)
    if config.bounds is not None:
        colliders.append([BOX, *config.bounds[0], *config.bounds[1], config.bounce, 0.0])
    return {
        "world": np.array([*config.gravity, config.drag], "f4"),
        "fields": _rows([_field(one) for one in config.fields if not isinstance(one, Force)]),
        "colliders": _rows(colliders),
        "emitters": _rows([_emitter(one) for one in config.emitters]),
        "born": _born(config),
        "parameters": np.array([*config.parameters.values(), 0], "f4"),
    }


def _born(config: ParticleConfig) -> Floats:
    """Attributes of new particles: a row for each emitter."""
    names = [*config.attributes] or [""]
    rows = [[{**config.attributes, **one.attributes}.get(name, 0.0) for name in names] for one in config.emitters]
    return np.array(rows or [[0.0] * len(names)], "f4")


def packed_colliders(colliders: Iterable[Collider]) -> Floats:
    """Obstacles alone, without distance fields."""
    return _rows(_plain(colliders))


def distance_fields(colliders: Iterable[Collider]) -> dict[str, tuple[DistanceField, Floats]]:
    """Those among obstacles that are fields, and their numbers, by the name of an array."""
    found = [one for one in colliders if isinstance(one, DistanceField)]
    return {f"distances{n}": (one, values_of(one)) for n, one in enumerate(found)}


def _plain(colliders: Iterable[Collider]) -> list[list[float]]:
    return [_collider(one) for one in colliders if not isinstance(one, DistanceField)]


def _rows(rows: list[list[float]]) -> Floats:
    found = np.zeros((max(1, len(rows)), WIDTH), "f4")
    for n, row in enumerate(rows):
        found[n, : len(row)] = row
    return found


def _field(field: Attractor | Spring | Vortex | Wind) -> list[float]:
    """Kind, center (3), axis or velocity (3), strength, softening."""
    match field:
        case Attractor():
            return [ATTRACTOR, *field.center, 0, 0, 0, field.strength, field.softening]
        case Spring():
            return [SPRING, *field.center, 0, 0, 0, field.strength]
        case Vortex():
            return [VORTEX, *field.center, *field.axis, field.strength]
        case Wind():
            return [WIND, 0, 0, 0, *field.velocity, field.strength]


def _collider(collider: Plane | Ball | Bowl) -> list[float]:
    """Kind, three numbers, three more, restitution, friction."""
    match collider:
        case Plane():
            length = float(np.linalg.norm(collider.normal))
            where = [*(part / length for part in collider.normal), collider.offset / length]
            kind = PLANE
        case Ball():
            where, kind = [*collider.center, collider.radius], BALL
        case Bowl():
            where, kind = [*collider.center, collider.radius], BOWL
    return [kind, *where, 0, 0, collider.restitution, collider.friction]


def _emitter(emitter: Emitter) -> list[float]:
    """1, position, velocity, rate, radius, spread, life, mass."""
    one = emitter
    return [1, *one.position, *one.velocity, one.rate, one.radius, one.spread, one.life, one.mass]
