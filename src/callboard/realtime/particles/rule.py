"""``Particles``: the rule of a particle system."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.core.errors import ShapeError
from callboard.core.ref.handle import GpuRef
from callboard.device.client.handle import Device
from callboard.kernel.elementwise.calls import elementwise
from callboard.realtime.base.rule import Arrays, HostArrays, Rule
from callboard.realtime.particles.config import ParticleConfig
from callboard.realtime.particles.distances import fenced
from callboard.realtime.particles.forces import between, kick
from callboard.realtime.particles.kernels import advance, emit, tick
from callboard.realtime.particles.packing import METHODS, distance_fields, packed

__all__ = ["Force", "Particles"]

Force = Callable[[Device, Any, Any], Any]
"""A function of the device, positions and velocities, refs f32 ``[3, n]``, that gives accelerations f32 ``[3, n]``."""

_is_free = elementwise("i32(life <= 0)")


class Particles(Rule[ParticleConfig]):
    """Positions ``x`` and velocities ``v`` f32 ``[3, capacity]``, seconds to live ``life``, and the emitters' clock."""

    name = "particle system"
    finite = ("x", "v")

    def __init__(self, force: Force | None = None) -> None:
        self._force = force

    def state(self, config: ParticleConfig) -> HostArrays:
        n = max(1, config.capacity)
        return {
            "x": np.zeros((3, n), "f4"),
            "v": np.zeros((3, n), "f4"),
            "life": np.zeros(n, "f4"),
            "clock": np.zeros(3, "f8"),
        }

    def constants(self, config: ParticleConfig) -> HostArrays:
        found: HostArrays = dict(packed(config))
        found |= {name: values for name, (_, values) in distance_fields(config.colliders).items()}
        if config.contact is not None:
            n = max(1, config.capacity)
            found |= {"starts": np.zeros((1 << n.bit_length()) + 1, "i4"), "index": np.arange(n, dtype="i4")}
        return found

    def step(self, device: Device, arrays: Arrays, config: ParticleConfig) -> None:
        a: Any = arrays
        moved = a["x"], a["v"], a["life"]
        verlet = config.method == "verlet"
        self._kicked(device, a, config, 0.5 if verlet else 1.0)
        advance(*moved, a["dt"], a["world"], a["fields"], a["colliders"], METHODS[config.method], int(config.mortal))
        for name, (field, _) in distance_fields(config.colliders).items():
            fenced(a["x"], a["v"], field, a[name])
        if verlet:
            self._kicked(device, a, config, 0.5)
        if config.emitters:
            free = _is_free(a["life"])
            rank = device.cub.scan(free, exclusive=True, dtype="i32")
            emit(*moved, rank, a["clock"], a["dt"], a["emitters"], config.seed)
            tick(a["clock"], rank, free, a["dt"], a["emitters"])

    def _kicked(self, device: Device, a: Any, config: ParticleConfig, part: float) -> None:
        """Velocities after a part of a step under forces between particles and of the function."""
        if config.contact is not None:
            kick(a["v"], between(device, a, config.contact), a["dt"], part)
        if self._force is not None:
            found = self._force(device, a["x"], a["v"])
            if not isinstance(found, GpuRef):
                raise TypeError(f"force returned {found!r:.80}; return a ref, without await")
            if found.shape != a["x"].shape or found.dtype.name != "f32":
                raise ShapeError(f"force returned {found.layout}; return accelerations {a['x'].layout}")
            kick(a["v"], found, a["dt"], part)

    def check_finite(self, arrays: HostArrays) -> str:
        alive = arrays["life"] > 0
        return next((name for name in self.finite if not np.isfinite(arrays[name][:, alive]).all()), "")
