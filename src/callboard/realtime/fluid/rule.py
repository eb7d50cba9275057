"""``Fluid``: the rule of a fluid."""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from callboard.device.client.handle import Device
from callboard.realtime.base.rule import Arrays, HostArrays, Rule
from callboard.realtime.fluid import kernels
from callboard.realtime.fluid.config import FluidConfig, is_fluid

__all__ = ["Fluid", "open_faces"]

SMOOTHING = 2
"""Sweeps before and after each coarser level."""


class Fluid(Rule[FluidConfig]):
    """Velocities ``u`` f32 ``[axes, d, h, w]`` on faces, pressure ``p``, and ``dye`` f32 ``[channels, d, h, w]``."""

    name = "fluid"
    finite = ("u", "dye")

    def state(self, config: FluidConfig) -> HostArrays:
        return {
            "u": np.zeros((config.axes, *config.shape), "f4"),
            "p": np.zeros(config.shape, "f4"),
            "dye": np.zeros((config.channels, *config.shape), "f4"),
        }

    def constants(self, config: FluidConfig) -> HostArrays:
        fluid = is_fluid(config)
        sources = config.sources
        rows: list[Any] = [(*one.center, one.radius, one.density, one.channel, *one.acceleration) for one in sources]
        rows = rows or [(0.0,) * 9]
        found: HostArrays = {
            "fluid": fluid.astype("f4"),
            "buoyancy": np.array(config.buoyancy or (0.0,) * config.channels, "f4"),
            "sources": np.array(rows, "f4"),
            "force": np.zeros((config.axes, *config.shape), "f4"),
        }
        weights = open_faces(fluid, config)
        for level in range(_levels(config.shape)):
            found[f"open{level}"] = weights
            if level:
                found[f"b{level}"] = np.zeros(weights.shape[1:], "f4")
                found[f"p{level}"] = np.zeros(weights.shape[1:], "f4")
            weights = _coarser(weights)
        return found

    def recorded(self, config: FluidConfig) -> Any:
        """All but sources, obstacles and buoyancy, which are in arrays."""
        there = bool(config.sources), bool(config.solids or config.mask)
        return there, msgspec.structs.replace(config, sources=(), solids=(), mask=b"", buoyancy=())

    def step(self, device: Device, arrays: Arrays, config: FluidConfig) -> None:
        a: Any = arrays
        xp: Any = device.xp
        u, dye, open_, dt = a["u"], a["dye"], a["open0"], a["dt"]
        periodic = sum(one << axis for axis, one in enumerate(config.periodic))
        solid = int(bool(config.solids or config.mask))
        moved = []
        for field, stagger in ((u, 1), (dye, 0)):
            path = stagger, periodic, solid
            ahead = kernels.advect(u, a["fluid"], field, dt, 1 / config.spacing, *path)
            back = kernels.advect(u, a["fluid"], ahead, dt, -1 / config.spacing, *path)
            moved.append(kernels.correct(u, a["fluid"], field, ahead, back, dt, 1 / config.spacing, *path))
        flat = dye.reshape(config.channels, -1)
        fluid = a["fluid"].reshape(-1)
        before = xp.sum(flat, axis=1)
        device.copy(xp.multiply(moved[0], open_), out=u)  # a face may have been closed since
        device.copy(moved[1], out=dye)
        after = xp.sum(flat, axis=1)
        kernels.rescale(flat, before, after, fluid, dt, config.fading)
        if config.sources:
            kernels.source(u, open_, dye, a["fluid"], a["sources"], dt, config.spacing)
        force = a["force"]
        if config.vorticity:
            force = kernels.swirl(kernels.curl(u, open_), open_, config.vorticity)
        kernels.push(u, open_, dye, force, a["buoyancy"], dt)
        odd = _odd(config.shape, config.periodic)
        if config.viscosity:
            still = device.copy(u)
            for _ in range(config.sweeps):
                for colour in range(3 if odd else 2):
                    kernels.diffuse(u, still, open_, dt, config.viscosity / config.spacing**2, odd, colour)
        b = kernels.divergence(u)
        for _ in range(config.cycles):
            self._cycle(a, config, 0, a["p"], b)
        kernels.project(u, a["p"], open_)

    def _cycle(self, a: Any, config: FluidConfig, level: int, p: Any, b: Any) -> None:
        """One V-cycle from a level downwards."""
        weights, deeper = a[f"open{level}"], a.get(f"open{level + 1}")
        odd = _odd(p.shape, config.periodic)
        sweeps = SMOOTHING if deeper is not None else 2 * max(p.shape)

        def sweep(times: int, colours: range) -> None:
            for _ in range(times):
                for colour in colours:
                    kernels.smooth(p, b, weights, odd, colour)

        sweep(sweeps, range(3 if odd else 2))
        if deeper is not None:
            kernels.restricted(p, b, weights, a[f"b{level + 1}"], a[f"p{level + 1}"])
            self._cycle(a, config, level + 1, a[f"p{level + 1}"], a[f"b{level + 1}"])
            kernels.prolong(p, a[f"p{level + 1}"], deeper)
            sweep(sweeps, range(2 if odd else 1, -1, -1))


def open_faces(fluid: NDArray[np.bool_], config: FluidConfig) -> NDArray[np.float32]:
    """1 at lower faces through which fluid passes, ``[axes, d, h, w]``."""
    found = np.zeros((config.axes, *config.shape), "f4")
    for axis in range(config.axes):
        if fluid.shape[2 - axis] > 1:
            passes = fluid & np.roll(fluid, 1, 2 - axis)
            if not config.periodic[axis]:
                np.moveaxis(passes, 2 - axis, 0)[0] = False
            found[axis] = passes
    return found


def _levels(shape: tuple[int, ...]) -> int:
    """Grids, each of half the extents, down to 2 cells along each axis."""
    return 1 + max(0, (max(shape) - 1).bit_length() - 1)


def _coarser(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Weights of faces between cells of twice the extents: the area, over twice the distance."""
    found = []
    for axis, one in enumerate(weights):
        for along in range(3):
            if one.shape[2 - along] == 1:
                continue
            moved = np.moveaxis(one, 2 - along, 0)
            if along == axis:
                moved = moved[::2] * np.float32(0.5)
                if len(moved) == 1:
                    moved = moved * np.float32(0)  # its neighbour is itself
            else:
                moved = np.add.reduceat(moved, np.arange(0, len(moved), 2), axis=0)
            one = np.moveaxis(moved, 0, 2 - along)
        found.append(np.ascontiguousarray(one))
    return np.stack(found)


def _odd(shape: tuple[int, ...], periodic: tuple[bool, ...]) -> int:
    return sum(1 << axis for axis in range(3) if periodic[axis] and shape[2 - axis] > 1 and shape[2 - axis] % 2)
