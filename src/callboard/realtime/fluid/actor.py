"""``FluidSimulationActor``: an incompressible fluid with dye on a device."""

from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from callboard.actors.clock import Clock
from callboard.core.errors import ShapeError
from callboard.device.client.handle import Device
from callboard.realtime.base.checks import count, number
from callboard.realtime.base.drawing import coloured
from callboard.realtime.base.history import Kept
from callboard.realtime.base.live import Live
from callboard.realtime.base.rule import HostArrays
from callboard.realtime.base.simulation import Simulation
from callboard.realtime.fluid import kernels, messages
from callboard.realtime.fluid.config import FluidConfig, is_fluid
from callboard.realtime.fluid.rule import Fluid, open_faces
from callboard.realtime.fluid.snapshot import FluidSnapshot

__all__ = ["FluidSimulationActor"]


class FluidSimulationActor(Simulation[FluidConfig, FluidSnapshot]):
    """Flow of an incompressible fluid, in a plane or in space, which carries dye.

    ::

        config = cb.FluidConfig(width=64, height=64, buoyancy=(5.0,))
        async with cb.FluidSimulationActor(gpu, config) as fluid:
            await fluid.add_density(32, 8, 1.0)
            await fluid.step(1 / 60, steps=30)
            print((await fluid.snapshot_density()).max())

    Velocities are at the faces of cells. A step moves velocities and dye (MacCormack), adds forces and viscosity, and
    makes the flow free of divergence by multigrid. The total of each dye is kept. Where there are solids, a step moves
    nothing by more than 8 cells. Equal calls give equal bits on the same device. See :class:`.Simulation` for steps,
    snapshots and losses.

    Args:
        device: Open.
        config: Grid, boundaries, forces, solver.
        solid: Cells without fluid, bool ``[h, w]`` or ``[d, h, w]``; None: those of ``config`` alone.
        density: Dye at the start, ``[channels, d, h, w]``; None: none.
        faces: Velocities at the lower faces of cells at the start, ``[axes, d, h, w]``: along x, y, and z if there are
            several layers; None: at rest. The first step makes them free of divergence.
        dt: Seconds of a step without its own.
        snapshot_every: Steps between two copies to the host.
        clock: Tells the time of ``run``; for tests.

    Class attributes:
        AddDensity, AddVelocity, SnapshotDensity: The messages that :meth:`ask` takes besides those of all simulations.

    Raises:
        ShapeError, TypeError, ValueError: An argument does not fit.
    """

    AddDensity: ClassVar = messages.AddDensity
    AddVelocity: ClassVar = messages.AddVelocity
    SnapshotDensity: ClassVar = messages.SnapshotDensity

    def __init__(
        self,
        device: Device,
        config: FluidConfig | None = None,
        *,
        solid: Any = None,
        density: Any = None,
        faces: Any = None,
        dt: float = 1 / 60,
        snapshot_every: int = 60,
        clock: Clock | None = None,
    ) -> None:
        config = FluidConfig() if config is None else config
        if not isinstance(config, FluidConfig):
            raise TypeError(f"config is {config!r:.80}; pass a FluidConfig")
        if solid is not None:
            mask = np.asarray(solid)
            shape = config.shape if mask.ndim == 3 else config.shape[1:]
            if mask.shape != shape or mask.dtype != bool or (mask.ndim == 2 and config.depth > 1):
                raise ShapeError(f"solid is {mask.dtype}{list(mask.shape)}; pass bools of shape {list(config.shape)}")
            config = msgspec.structs.replace(config, mask=np.packbits(mask.reshape(-1)).tobytes())
        state = Fluid().state(config)
        for name, key, given in (("density", "dye", density), ("faces", "u", faces)):
            if given is not None:
                state[key] = _field(name, given, state[key].shape)
        super().__init__(device, Fluid(), config, state, dt=dt, snapshot_every=snapshot_every, clock=clock)

    async def add_density(self, x: int, y: int, amount: float, z: int = 0, *, channel: int = 0) -> None:
        """Add dye to a cell.

        Args:
            x, y, z: The cell; the first is 0.
            amount: Negative takes away.
            channel: Of the dye.

        Raises:
            ValueError: There is no such cell or channel, or it is solid.
        """
        cell = self._cell(x, y, z)
        at = count("channel", channel, least=0, most=self.config.channels - 1) * is_fluid(self.config).size + cell
        await self._add("dye", [at], [number("amount", amount)])

    async def add_velocity(self, x: int, y: int, vx: float, vy: float, z: int = 0, vz: float = 0.0) -> None:
        """Add to the velocity of a cell, at all its faces that are open.

        Args:
            x, y, z: The cell; the first is 0.
            vx, vy, vz: Metres a second.

        Raises:
            ValueError: There is no such cell, or it is solid.
        """
        self._cell(x, y, z)
        config, where = self.config, (z, y, x)
        speeds = number("vx", vx), number("vy", vy), number("vz", vz)
        if config.depth == 1 and vz:
            raise ValueError(f"vz is {vz}; a fluid of depth 1 flows along x and y only")
        open_ = open_faces(is_fluid(config), config)
        at, amounts = [], []
        for axis in range(config.axes):
            for one in (0, 1):
                place = list(where)
                place[2 - axis] = (place[2 - axis] + one) % config.shape[2 - axis]
                index = int(np.ravel_multi_index((axis, *place), open_.shape))
                if index not in at:
                    at.append(index)
                    amounts.append(speeds[axis] * float(open_.flat[index]))
        await self._add("u", at, amounts)

    async def snapshot_density(self, channel: int = 0) -> NDArray[np.float32]:
        """Dye as it is after all that was called before, f32 ``[h, w]``, or ``[d, h, w]`` with several layers."""
        of = count("channel", channel, least=0, most=self.config.channels - 1)
        found: NDArray[np.float32] = (await self.snapshot()).density[of]
        return found[0] if len(found) == 1 else found

    def _cell(self, x: int, y: int, z: int) -> int:
        config = self.config
        for name, value, extent in (("x", x, config.width), ("y", y, config.height), ("z", z, config.depth)):
            count(name, value, least=0, most=extent - 1)
        fluid = is_fluid(config)
        if not fluid[z, y, x]:
            raise ValueError(f"cell ({x}, {y}, {z}) is solid; choose one with fluid")
        return int(np.ravel_multi_index((z, y, x), fluid.shape))

    async def _add(self, name: str, at: list[int], amounts: list[float]) -> None:
        where, what = np.array(at, "i4"), np.array(amounts, "f4")

        async def put(live: Live[FluidConfig]) -> None:
            await kernels.added(live.arrays[name].reshape(-1), live.device.put(where), live.device.put(what))

        await self.call(put)

    @messages.AddDensity.handles
    async def _on_density(self, m: messages.AddDensity) -> None:
        await self.add_density(m.x, m.y, m.amount, m.z, channel=m.channel)

    @messages.AddVelocity.handles
    async def _on_velocity(self, m: messages.AddVelocity) -> None:
        await self.add_velocity(m.x, m.y, m.vx, m.vy, m.z, m.vz)

    @messages.SnapshotDensity.handles
    async def _on_snapshot_density(self, m: messages.SnapshotDensity) -> Any:
        return await self.snapshot_density(m.channel)

    def _adapted(self, config: FluidConfig) -> FluidConfig:
        for name in ("width", "height", "depth", "channels", "spacing"):
            if getattr(config, name) != getattr(self.config, name):
                raise ValueError(f"{name} cannot be changed in a fluid that exists; make another one")
        return config

    def _state_of(self, state: Any) -> tuple[FluidConfig, HostArrays]:
        """A snapshot of such a fluid."""
        if not isinstance(state, FluidSnapshot):
            raise TypeError(f"state is {state!r:.80}; pass a FluidSnapshot")
        return self.config, {"u": state.faces.copy(), "p": state.pressure.copy(), "dye": state.density.copy()}

    def _snapshot_of(self, kept: Kept[FluidConfig]) -> FluidSnapshot:
        u, dye = kept.state["u"], kept.state["dye"]
        upper = np.stack([np.roll(one, -1, 2 - axis) for axis, one in enumerate(u)])
        fastest = float(np.abs(u).max())
        arrays = {
            "density": dye.copy(),
            "velocities": (u + upper) / np.float32(2),
            "faces": u.copy(),
            "pressure": kept.state["p"].copy(),
            "solid": ~is_fluid(kept.config),
            "masses": dye.sum((1, 2, 3), dtype="f8"),
        }
        for array in arrays.values():
            array.flags.writeable = False
        apart = float(np.abs((upper - u).sum(0)).max()) / fastest if fastest else 0.0
        return FluidSnapshot(steps=kept.steps, time=kept.time, divergence=apart, **arrays)

    def _drawing(self, snapshot: FluidSnapshot, width: int, height: int) -> NDArray[np.uint8]:
        """The dye of all channels, summed along z, y upwards."""
        field = snapshot.density.sum((0, 1))
        rows = (height - 1 - np.arange(height)) * len(field) // height
        columns = np.arange(width) * field.shape[1] // width
        picture = coloured(field[np.ix_(rows, columns)], 0.0, max(1.0, float(np.quantile(field, 0.99))))
        picture[snapshot.solid.all(0)[np.ix_(rows, columns)]] = 90
        return picture


def _field(name: str, value: Any, shape: tuple[int, ...]) -> NDArray[np.float32]:
    array = np.asarray(value)
    if array.dtype.kind not in "fiu" or array.shape != shape:
        raise ShapeError(f"{name} is {array.dtype}{list(array.shape)}; pass numbers of shape {list(shape)}")
    found = array.astype("f4")
    if not np.isfinite(found).all():
        raise ValueError(f"{name} has numbers that are not finite")
    return found
