"""``Particles``: the rule of a particle system."""

from typing import Any

import numpy as np

from callboard.device.client.handle import Device
from callboard.kernel.elementwise.calls import elementwise
from callboard.realtime.base.rule import Arrays, HostArrays, Rule
from callboard.realtime.particles.config import ParticleConfig
from callboard.realtime.particles.kernels import advance, emit, tick
from callboard.realtime.particles.packing import METHODS, packed

__all__ = ["Particles"]

_is_free = elementwise("i32(life <= 0)")


class Particles(Rule[ParticleConfig]):
    """Positions ``x`` and velocities ``v`` f32 ``[3, capacity]``, seconds to live ``life``, and the emitters' clock."""

    name = "particle system"
    finite = ("x", "v")

    def state(self, config: ParticleConfig) -> HostArrays:
        n = max(1, config.capacity)
        return {
            "x": np.zeros((3, n), "f4"),
            "v": np.zeros((3, n), "f4"),
            "life": np.zeros(n, "f4"),
            "clock": np.zeros(3, "f8"),
        }

    def constants(self, config: ParticleConfig) -> HostArrays:
        return dict(packed(config))

    def step(self, device: Device, arrays: Arrays, config: ParticleConfig) -> None:
        a: Any = arrays
        moved = a["x"], a["v"], a["life"]
        advance(*moved, a["dt"], a["world"], a["fields"], a["colliders"], METHODS[config.method], int(config.mortal))
        if config.emitters:
            free = _is_free(a["life"])
            rank = device.cub.scan(free, exclusive=True, dtype="i32")
            emit(*moved, rank, a["clock"], a["dt"], a["emitters"], config.seed)
            tick(a["clock"], rank, free, a["dt"], a["emitters"])

    def check_finite(self, arrays: HostArrays) -> str:
        alive = arrays["life"] > 0
        return next((name for name in self.finite if not np.isfinite(arrays[name][:, alive]).all()), "")
