"""``Fluid``: the rule of a fluid."""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from callboard.device.client.handle import Device
from callboard.realtime.base.rule import Arrays, HostArrays, Rule
from callboard.realtime.fluid import kernels, pressure
from callboard.realtime.fluid.config import FluidConfig, is_fluid

__all__ = ["Fluid", "open_faces"]


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
        weights, tail = open_faces(fluid, config), list[NDArray[np.float32]]()
        for level in range(pressure.level_count(config.shape)):
            cells = np.zeros(weights.shape[1:], "f4")
            if not tail:
                found[f"open{level}"] = weights
                found |= {f"q{level}": cells} if level == 0 else {f"{name}{level}": cells for name in "bpq"}
            if tail or cells.size <= pressure.TAIL:
                tail.append(weights.reshape(-1))
            weights = _coarser(weights)
        found["tail"] = np.concatenate(tail)
        return found

    def recorded(self, config: FluidConfig) -> Any:
        """All but sources, obstacles and buoyancy, which are in arrays."""
        there = bool(config.sources), bool(config.solids or config.mask)
        return there, msgspec.structs.replace(config, sources=(), solids=(), mask=b"", buoyancy=())

    def step(self, device: Device, arrays: Arrays, config: FluidConfig) -> None:
        a: Any = arrays
        xp: Any = device.xp
        u, dye, open_, dt = a["u"], a["dye"], a["open0"], a["dt"]
        periodic = _bits(config.periodic)
        path = periodic, int(bool(config.solids or config.mask))
        scale = 1 / config.spacing
        ahead = kernels.advect(u, a["fluid"], u, dye, dt, scale, *path)
        back = kernels.advect(u, a["fluid"], *ahead, dt, -scale, *path)
        moved = kernels.correct(u, a["fluid"], dye, *ahead, *back, dt, scale, *path)
        before, after = (xp.sum(one.reshape(config.channels, -1), axis=1) for one in (dye, moved[1]))
        rows = config.spacing, config.fading
        kernels.settle(*moved, before, after, open_, a["fluid"], a["sources"], u, dye, dt, *rows)
        force = a["force"]
        if config.vorticity:
            force = kernels.swirl(kernels.curl(u, open_), open_, config.vorticity)
        kernels.push(u, open_, dye, force, a["buoyancy"], dt)
        if config.viscosity:
            odd = pressure.odd_axes(config.shape, periodic)
            still = device.copy(u)
            for _ in range(config.sweeps):
                for colour in range(3 if odd else 2):
                    kernels.diffuse(u, still, open_, dt, config.viscosity / config.spacing**2, odd, colour)
        b = kernels.divergence(u)
        for _ in range(config.cycles):
            _cycle(a, periodic, 0, a["p"], b)
        kernels.project(u, a["p"], open_)


def _cycle(a: Any, periodic: int, level: int, p: Any, b: Any) -> None:
    """One V-cycle from a level downwards."""
    weights, deeper = a[f"open{level}"], a.get(f"open{level + 1}")
    if deeper is None:
        pressure.bottom(p, b, a["tail"], weights.shape[0], periodic)
        return
    odd, q = pressure.odd_axes(p.shape, periodic), a[f"q{level}"]
    coarse, start = a[f"b{level + 1}"], a[f"p{level + 1}"]
    if pressure.in_tiles(weights, odd):
        pressure.descend(p, b, weights, q, coarse, start)
        _cycle(a, periodic, level + 1, start, coarse)
        pressure.ascend(q, b, weights, start, deeper, p)
        return
    colours = range(3 if odd else 2)
    _swept(p, b, weights, odd, colours)
    pressure.restricted(p, b, weights, coarse, start)
    _cycle(a, periodic, level + 1, start, coarse)
    pressure.prolong(p, start, deeper)
    _swept(p, b, weights, odd, colours[::-1])


def _swept(p: Any, b: Any, weights: Any, odd: int, colours: range) -> None:
    for _ in range(pressure.SMOOTHING):
        for colour in colours:
            pressure.smooth(p, b, weights, odd, colour)


def _bits(periodic: tuple[bool, ...]) -> int:
    return sum(one << axis for axis, one in enumerate(periodic))


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
