"""Particles that a caller gives, checked, and the state that a system of them begins with."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from callboard.core.errors import ShapeError
from callboard.core.ref.hostarrays import refuse_masked
from callboard.realtime.base.checks import rows
from callboard.realtime.base.rule import HostArrays
from callboard.realtime.particles.config import ParticleConfig
from callboard.realtime.particles.rule import Particles
from callboard.realtime.particles.snapshot import ParticleSnapshot

__all__ = ["Given", "given", "is_massive", "placed"]

Floats = NDArray[np.float32]


class Given(NamedTuple):
    """Particles.

    Attributes:
        x, v: f32 ``[n, 3]``.
        life, mass: f32 ``[n]``.
        attributes: f32 ``[k, n]``, in the order of the configuration's.
    """

    x: Floats
    v: Floats
    life: Floats
    mass: Floats
    attributes: Floats

    def columns(self) -> Floats:
        """All of it, f32 ``[8 + k, n]``."""
        return np.ascontiguousarray(np.vstack([self.x.T, self.v.T, self.life, self.mass, self.attributes]))


def given(
    positions: Any,
    velocities: Any,
    lives: Any,
    masses: Any,
    attributes: Mapping[str, Any] | None,
    config: ParticleConfig,
) -> Given:
    """Particles, as the arguments of :class:`.ParticleSystemActor` say.

    Raises:
        ShapeError, TypeError, ValueError: An argument does not fit.
    """
    if isinstance(positions, ParticleSnapshot):
        of = positions
        positions, velocities, lives = of.positions, of.velocities, of.lives
        masses, attributes = of.masses, of.attributes
    x = rows("positions", positions if np.size(positions) else np.zeros((0, 3)), 3)
    n = len(x)
    v = np.zeros((n, 3), "f4") if velocities is None else rows("velocities", velocities, 3)
    if len(v) != n:
        raise ShapeError(f"velocities has {len(v)} rows for {n} positions; give one for each")
    life = _each("lives", np.inf if lives is None else lives, n)
    mass = _each("masses", 1.0 if masses is None else masses, n)
    for name, array in (("lives", life), ("masses", mass)):
        bad = np.flatnonzero(~(array > 0) | (np.isinf(array) & (name == "masses")))
        if bad.size:
            raise ValueError(f"{name} has {array[bad[0]]} at {bad[0]}; it must be positive")
    unknown = sorted((attributes or {}).keys() - config.attributes.keys())
    if unknown:
        raise ValueError(
            f"attributes has {unknown[0]!r}, which the configuration has not; write "
            f"ParticleConfig(attributes={{{unknown[0]!r}: 0.0}})"
        )
    whole = {**config.attributes, **(attributes or {})}
    others = np.array([_finite(f"attributes[{name!r}]", whole[name], n) for name in config.attributes], "f4")
    return Given(x, v, life, mass, others.reshape(len(config.attributes), n))


def placed(particles: Given, config: ParticleConfig) -> tuple[ParticleConfig, HostArrays]:
    """The state with these particles in the first slots, and a configuration with room for them.

    Raises:
        ValueError: There is room for none.
    """
    x, v, life, mass, attributes = particles
    n = len(x)
    if not n and not config.emitters and not config.capacity:
        raise ValueError("there are no particles, no emitters and no capacity; pass positions, or ParticleConfig(...)")
    if not config.capacity and config.emitters:
        needed = n + sum(one.rate * min(one.life, 60.0) * 1.1 + 1 for one in config.emitters)
        config = msgspec.structs.replace(config, capacity=int(min(needed, 1 << 24)))
    capacity = max(config.capacity, n, 1)
    mortal = bool(config.mortal or config.emitters or capacity > n or np.isfinite(life).any())
    massive = is_massive(config) or bool((mass != 1).any())
    config = msgspec.structs.replace(config, capacity=capacity, mortal=mortal, massive=massive)
    state = Particles().state(config)
    state["x"][:, :n], state["v"][:, :n], state["life"][:n], state["mass"][:n] = x.T, v.T, life, mass
    if config.attributes:
        state["attributes"][:, :n] = attributes
    return config, state


def is_massive(config: ParticleConfig) -> bool:
    """Whether there are masses other than 1."""
    return config.massive or any(one.mass != 1 for one in config.emitters)


def _each(name: str, values: Any, n: int) -> Floats:
    """A number for each particle."""
    refuse_masked(values, name, "array.filled(value)")
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} has dtype {array.dtype}; pass real numbers")
    if array.shape not in ((), (n,)):
        raise ShapeError(f"{name} has shape {list(array.shape)} for {n} positions; give one number for each")
    return np.array(np.broadcast_to(array, n), "f4")


def _finite(name: str, values: Any, n: int) -> Floats:
    array = _each(name, values, n)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has {array[~np.isfinite(array)][0]}; pass finite numbers")
    return array
