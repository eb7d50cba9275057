"""``Particles``: the rule of a particle system."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from callboard.device.client.handle import Device
from callboard.kernel.elementwise.calls import elementwise
from callboard.realtime.base.rule import Arrays, HostArrays, Rule
from callboard.realtime.particles.config import ParticleConfig
from callboard.realtime.particles.distances import fenced
from callboard.realtime.particles.forces import ForceFunction, between, kicked_by, kicked_by_function
from callboard.realtime.particles.kernels import advance, emit, kick, place, tick
from callboard.realtime.particles.packing import METHODS, distance_fields, packed

__all__ = ["Particles", "filled"]

_is_free = elementwise("i32(life <= 0)")


class Particles(Rule[ParticleConfig]):
    """Positions ``x`` and velocities ``v`` f32 ``[3, capacity]``, seconds to live ``life``, mass, attributes, clock.

    Args:
        forces: Functions, called when a step is recorded.
    """

    name = "particle system"
    finite = ("x", "v")

    def __init__(self, forces: Sequence[ForceFunction] = ()) -> None:
        self._forces = tuple(forces)

    def state(self, config: ParticleConfig) -> HostArrays:
        n = max(1, config.capacity)
        return {
            "x": np.zeros((3, n), "f4"),
            "v": np.zeros((3, n), "f4"),
            "life": np.zeros(n, "f4"),
            "mass": np.ones(n, "f4"),
            "attributes": np.zeros((len(config.attributes), n) if config.attributes else (1, 1), "f4"),
            "clock": np.zeros(3, "f8"),
        }

    def constants(self, config: ParticleConfig) -> HostArrays:
        found: HostArrays = dict(packed(config))
        found |= {name: values for name, (_, values) in distance_fields(config.colliders).items()}
        if config.contact is not None:
            n = max(1, config.capacity)
            found |= {"starts": np.zeros((1 << n.bit_length()) + 1, "i4"), "index": np.arange(n, dtype="i4")}
        return found

    def recorded(self, config: ParticleConfig) -> Any:
        """All but numbers that are in arrays."""
        found = [one for one, _ in distance_fields(config.colliders).values()]
        fields = [(one.extents, one.origin, one.spacing, one.restitution, one.friction) for one in found]
        names = tuple(config.parameters), tuple(config.attributes)
        flags = config.method, config.mortal, config.massive, config.capacity, config.seed, bool(config.emitters)
        return config.forces, config.contact, fields, names, flags

    def step(self, device: Device, arrays: Arrays, config: ParticleConfig) -> None:
        a: Any = arrays
        state, verlet, emits = (a["x"], a["v"], a["life"]), config.method == "verlet", bool(config.emitters)
        self._kicked(device, a, config, 0.5 if verlet else 1.0, 0.0)
        numbers = METHODS[config.method], int(config.mortal), int(config.massive), int(not emits)
        advance(*state, a["clock"], a["mass"], a["dt"], a["world"], a["fields"], a["colliders"], *numbers)
        for name, (field, _) in distance_fields(config.colliders).items():
            fenced(a["x"], a["v"], field, a[name])
        if verlet:
            self._kicked(device, a, config, 0.5, float(emits))  # without emitters, the clock has moved
        if emits:
            free = _is_free(a["life"])
            rank = device.cub.scan(free, exclusive=True, dtype="i32")
            made = *state, a["mass"], a["attributes"]
            emit(*made, rank, a["clock"], a["dt"], a["emitters"], a["born"], config.seed)
            tick(a["clock"], rank, free, a["dt"], a["emitters"])

    def _kicked(self, device: Device, a: Any, config: ParticleConfig, part: float, late: float) -> None:
        """Velocities after a part of a step under forces between particles, of expressions and of functions."""
        if config.contact is not None:
            kick(a["v"], between(device, a, config.contact), a["mass"], a["dt"], part)
        for force in config.forces:
            kicked_by(force, a, config, part, late)
        for n, function in enumerate(self._forces):
            kicked_by_function(function, f"forces[{n}]", device, a, config, part, late)

    def check_finite(self, arrays: HostArrays) -> str:
        alive = arrays["life"] > 0
        return next((name for name in self.finite if not np.isfinite(arrays[name][:, alive]).all()), "")


def filled(device: Device, arrays: Arrays, columns: Any) -> Any:
    """Make particles in free slots, of an array on the device; an awaitable of the number of free slots before."""
    a: Any = arrays
    free = _is_free(a["life"])
    rank = device.cub.scan(free, exclusive=True, dtype="i32")
    there = device.xp.sum(free).get()
    place(a["x"], a["v"], a["life"], a["mass"], a["attributes"], rank, columns)
    return there
