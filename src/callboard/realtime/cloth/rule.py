"""``Cloth``: the rule of a cloth."""

from typing import Any

import numpy as np

from callboard.device.client.handle import Device
from callboard.realtime.base.rule import Arrays, HostArrays, Rule
from callboard.realtime.cloth import kernels
from callboard.realtime.cloth.config import ClothConfig
from callboard.realtime.particles.distances import held
from callboard.realtime.particles.packing import distance_fields, packed_colliders

__all__ = ["Cloth"]


class Cloth(Rule[ClothConfig]):
    """Particles ``x``, ``v`` f32 ``[3, n]``, and springs with their length ``rest``, negative in broken ones."""

    name = "cloth"
    finite = ("x", "v")

    def state(self, config: ClothConfig) -> HostArrays:
        n, m = config.particles, max(1, config.colours[-1])
        return {
            "x": np.zeros((3, n), "f4"),
            "v": np.zeros((3, n), "f4"),
            "home": np.zeros((3, n), "f4"),
            "w": np.ones(n, "f4"),
            "rest": np.zeros(m, "f4"),
            "load": np.zeros(m, "f4"),
            "springs": np.zeros((2, m), "i4"),
            "kinds": np.zeros(m, "u1"),
            "fan_starts": np.zeros(n + 1, "i4"),
            "fans": np.zeros((2, max(1, config.fans)), "i4"),
        }

    def constants(self, config: ClothConfig) -> HostArrays:
        free = np.ones(config.particles, "f4")
        free[list(config.pinned)] = 0
        found: HostArrays = {
            "open": free,
            "world": np.array([*config.gravity, config.damping, *config.wind, config.air], "f4"),
            "compliance": np.array([config.stretch, config.shear, config.bend], "f4"),
            "colliders": packed_colliders(config.colliders),
        }
        found |= {name: values for name, (_, values) in distance_fields(config.colliders).items()}
        if config.thickness:
            found["starts"] = np.zeros(_size(config) + 1, "i4")
            found["index"] = np.arange(config.particles, dtype="i4")
        return found

    def recorded(self, config: ClothConfig) -> Any:
        """All but numbers that are in arrays."""
        found = [one for one, _ in distance_fields(config.colliders).values()]
        fields = [(one.extents, one.origin, one.spacing, one.friction) for one in found]
        solver = config.substeps, config.iterations, config.colours, config.thickness, config.tear
        return solver, bool(config.colliders), fields

    def step(self, device: Device, arrays: Arrays, config: ClothConfig) -> None:
        a: Any = arrays
        parts = config.substeps
        springs = a["springs"], a["rest"], a["kinds"], a["w"], a["open"], a["compliance"], a["dt"]
        air = a["fan_starts"], a["fans"], a["dt"], a["world"]
        for _ in range(parts):
            _, q = kernels.predict(a["x"], a["v"], a["w"], a["open"], *air, parts)
            for again in range(config.iterations):
                for first, end in zip(config.colours, config.colours[1:], strict=False):
                    kernels.solve(q, a["load"], *springs, first, end - first, parts, again)
            if config.thickness:
                key = kernels.buckets(q, config.thickness, _size(config))
                keys, order = device.cub.sort_pairs(key, a["index"])
                kernels.begins(keys, a["starts"])
                q = kernels.apart(q, order, a["starts"], a["home"], a["w"], a["open"], config.thickness)
            if config.colliders:
                kernels.stop(q, a["x"], a["open"], a["colliders"], config.thickness / 2)
            for name, (field, _) in distance_fields(config.colliders).items():
                held(q, a["x"], a["open"], field, a[name], config.thickness / 2)
            kernels.finish(a["x"], a["v"], q, a["dt"], parts)
        if config.tear is not None:
            kernels.torn(a["rest"], a["load"], a["x"], a["springs"], 1.0 + config.tear)


def _size(config: ClothConfig) -> int:
    """Buckets: a power of 2, about twice the particles."""
    return 1 << config.particles.bit_length()
