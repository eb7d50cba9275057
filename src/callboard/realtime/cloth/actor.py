"""``ClothSimulationActor``: a cloth on a device."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from callboard.actors.clock import Clock
from callboard.core.errors import ShapeError
from callboard.device.client.handle import Device
from callboard.realtime.base.checks import count, rows
from callboard.realtime.base.drawing import splatted
from callboard.realtime.base.history import Kept
from callboard.realtime.base.live import Live
from callboard.realtime.base.rule import HostArrays
from callboard.realtime.base.simulation import Simulation
from callboard.realtime.cloth import kernels
from callboard.realtime.cloth.config import ClothConfig
from callboard.realtime.cloth.mesh import BEND, Mesh, grid, of_triangles
from callboard.realtime.cloth.rule import Cloth
from callboard.realtime.cloth.snapshot import ClothSnapshot

__all__ = ["ClothSimulationActor"]


class ClothSimulationActor(Simulation[ClothConfig, ClothSnapshot]):
    """Cloth by extended position-based dynamics: ``dt`` and iterations do not decide how stiff it is.

    ::

        config = cb.ClothConfig(width=32, height=32, pinned=(0, 31))
        async with cb.ClothSimulationActor(gpu, config) as cloth:
            await cloth.step(1 / 60, steps=60)
            print((await cloth.snapshot()).positions[-1])

    Equal calls give equal bits on the same device. See :class:`.Simulation` for steps, snapshots and losses.

    Args:
        device: Open.
        config: Material, surroundings, solver; without a mesh, also the size.
        positions: Of a mesh at rest, ``[particles, 3]``, in metres; :func:`callboard.read_obj` reads one from a file.
        triangles: Its triangles, integers ``[triangles, 3]``.
        dt: Seconds of a step without its own.
        snapshot_every: Steps between two copies to the host.
        clock: Tells the time of ``run``; for tests.

    Raises:
        ShapeError, TypeError, ValueError: An argument does not fit.
    """

    def __init__(
        self,
        device: Device,
        config: ClothConfig | None = None,
        *,
        positions: Any = None,
        triangles: Any = None,
        dt: float = 1 / 60,
        snapshot_every: int = 60,
        clock: Clock | None = None,
    ) -> None:
        config = ClothConfig() if config is None else config
        if not isinstance(config, ClothConfig):
            raise TypeError(f"config is {config!r:.80}; pass a ClothConfig")
        if (positions is None) != (triangles is None):
            raise TypeError("positions and triangles belong together; pass both, or neither")
        if positions is None:
            mesh = grid(config.width, config.height, config.spacing)
        else:
            mesh = of_triangles(positions, triangles)
        self._mesh = mesh
        starts, fans = mesh.fans()
        config = msgspec.structs.replace(
            config, particles=len(mesh.positions), colours=mesh.colours, fans=fans.shape[1]
        )
        state = _at_rest(mesh, config, starts, fans)
        super().__init__(device, Cloth(), config, state, dt=dt, snapshot_every=snapshot_every, clock=clock)

    async def move(self, particles: Sequence[int], positions: Any) -> None:
        """Put pinned particles elsewhere; the others follow in the next steps.

        Args:
            particles: Indices; each is among the configuration's ``pinned``.
            positions: ``[particles, 3]``.

        Raises:
            ShapeError: There is not one position for each.
            ValueError: A particle is not pinned.
        """
        if np.ndim(particles) != 1:
            raise ShapeError(f"particles is {particles!r:.80}; pass a sequence of indices")
        which = [count(f"particles[{n}]", one, least=0) for n, one in enumerate(particles)]
        to = rows("positions", positions, 3)
        if len(which) != len(to) or not which:
            raise ShapeError(f"positions has {len(to)} rows for {len(which)} particles; give one for each")
        loose = sorted(set(which) - set(self.config.pinned))
        if loose:
            raise ValueError(f"particle {loose[0]} is not pinned; pin it with update_config(pinned=...) before")
        if len(set(which)) < len(which):
            raise ValueError(f"particles has {max(which, key=which.count)} twice")
        indices, target = np.array(which, "i4"), np.ascontiguousarray(to.T)

        async def put(live: Live[ClothConfig]) -> None:
            await kernels.move(live.arrays["x"], live.device.put(indices), live.device.put(target))

        await self.call(put)

    def _adapted(self, config: ClothConfig) -> ClothConfig:
        present = self.config
        for name in ("width", "height", "spacing", "density"):
            if getattr(config, name) != getattr(present, name):
                raise ValueError(f"{name} cannot be changed in a cloth that exists; make another one")
        return msgspec.structs.replace(config, particles=present.particles, colours=present.colours, fans=present.fans)

    def _state_of(self, state: Any) -> tuple[ClothConfig, HostArrays]:
        """Positions, or a snapshot of this cloth."""
        velocities = None
        if isinstance(state, ClothSnapshot):
            state, velocities = state.positions, state.velocities
        x = rows("state", state, 3)
        if len(x) != self.config.particles:
            raise ShapeError(f"state has {len(x)} positions; this cloth has {self.config.particles} particles")
        arrays = {name: array.copy() for name, array in self._first.items()}
        arrays["x"] = np.ascontiguousarray(x.T)
        if velocities is not None:
            arrays["v"] = np.array(velocities.T, order="C")
        return self.config, arrays

    def _snapshot_of(self, kept: Kept[ClothConfig]) -> ClothSnapshot:
        state = kept.state
        n = kept.config.colours[-1]
        springs, rest = state["springs"][:, :n].T, state["rest"][:n]
        positions = np.ascontiguousarray(state["x"].T)
        length = np.sqrt(((positions[springs[:, 0]] - positions[springs[:, 1]]) ** 2).sum(1))
        arrays = {
            "positions": positions,
            "velocities": np.ascontiguousarray(state["v"].T),
            "triangles": self._mesh.triangles.copy(),
            "springs": np.ascontiguousarray(springs),
            "stretch": np.where(rest > 0, length / np.abs(rest), np.float32(np.nan)),
        }
        for array in arrays.values():
            array.flags.writeable = False
        return ClothSnapshot(steps=kept.steps, time=kept.time, broken=int((rest < 0).sum()), **arrays)

    def _drawing(self, snapshot: ClothSnapshot, width: int, height: int) -> NDArray[np.uint8]:
        """Its springs that are whole, without those that bend, brighter where the cloth faces the viewer."""
        seen = ~np.isnan(snapshot.stretch) & (self._mesh.kinds != BEND)
        ends = snapshot.springs[seen]
        values = np.stack([snapshot.positions[..., 0], snapshot.positions[..., 1], _facing(snapshot)], axis=1)
        part = np.linspace(0, 1, 12, dtype="f4")[:, None, None]
        points = (values[ends[:, 0]] * (1 - part) + values[ends[:, 1]] * part).reshape(-1, 3)
        first = self._mesh.positions
        reach = float(np.ptp(first, axis=0).max()) * 0.8
        middle = (first.max(0) + first.min(0)) / 2
        bounds = middle[:2] - reach, middle[:2] + reach
        return splatted(points[:, :2], points[:, 2], width, height, bounds)


def _facing(snapshot: ClothSnapshot) -> NDArray[np.float32]:
    """How much each particle's triangles face along z, from 0 to 1."""
    corners = snapshot.positions[snapshot.triangles]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    size = len(snapshot.positions)
    owner = snapshot.triangles.reshape(-1)
    summed = np.stack([np.bincount(owner, np.repeat(normals[:, axis], 3), size) for axis in range(3)], axis=1)
    facing: NDArray[np.float32] = np.abs(summed[:, 2]) / np.maximum(np.linalg.norm(summed, axis=1), 1e-12)
    return facing.astype("f4")


def _at_rest(mesh: Mesh, config: ClothConfig, starts: Any, fans: Any) -> HostArrays:
    areas = mesh.areas()
    areas[areas == 0] = config.spacing**2
    state = Cloth().state(config)
    state["x"][...] = state["home"][...] = mesh.positions.T
    state["w"][:] = 1 / (config.density * areas)
    n = len(mesh.springs)
    state["springs"][:, :n], state["kinds"][:n] = mesh.springs.T, mesh.kinds
    ends = mesh.positions[mesh.springs].astype("f8")
    state["rest"][:n] = np.linalg.norm(ends[:, 0] - ends[:, 1], axis=1)
    state["fan_starts"][:], state["fans"][...] = starts, fans
    return state
