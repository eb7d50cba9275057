"""``ParticleSystemActor``: particles on a device."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from callboard.actors.clock import Clock
from callboard.core.ref.suggestions import unknown_name
from callboard.device.client.handle import Device
from callboard.realtime.base.drawing import splatted
from callboard.realtime.base.history import Kept
from callboard.realtime.base.live import Live
from callboard.realtime.base.rule import HostArrays
from callboard.realtime.base.simulation import Simulation
from callboard.realtime.particles.config import ParticleConfig, check_method
from callboard.realtime.particles.expressions import Force
from callboard.realtime.particles.forces import ForceFunction, checked_functions
from callboard.realtime.particles.placing import given, is_massive, placed
from callboard.realtime.particles.rule import Particles, filled
from callboard.realtime.particles.snapshot import ParticleSnapshot

__all__ = ["ParticleSystemActor"]


class ParticleSystemActor(Simulation[ParticleConfig, ParticleSnapshot]):
    """Particles under forces, with obstacles and emitters. A lost device costs ``snapshot_every`` steps at most.

    ::

        async with cb.ParticleSystemActor(gpu, positions, config=cb.ParticleConfig(drag=0.1)) as particles:
            await particles.step(0.01, steps=100)
            print((await particles.snapshot()).positions)

    Equal calls give equal bits on the same device. See :class:`.Simulation` for steps, snapshots and losses.

    Args:
        device: Open.
        positions: ``[particles, 3]``, or a :class:`.ParticleSnapshot`; may be empty where emitters make particles.
        velocities: ``[particles, 3]``; None: at rest.
        lives: Seconds to live of each, ``[particles]`` or one number; None: without end.
        masses: Kilograms of each, ``[particles]`` or one number; None: 1.
        attributes: Further numbers of each, by name, ``[particles]`` or one number. The configuration has these names
            in its ``attributes``, with the value of particles that are not given one.
        config: Forces, obstacles, emitters. A :class:`.Force` among its ``fields`` is an expression.
        forces: Functions of a :class:`.ParticleArrays`, which enqueue ops and return forces, f32 ``[3, slots]``. They
            are called when a step is recorded, first when the simulation is started, and must be given again to a
            simulation that loads a file.
        dt: Seconds of a step without its own.
        snapshot_every: Steps between two copies to the host.
        clock: Tells the time of ``run``; for tests.

    Raises:
        ShapeError, TypeError, ValueError: An argument does not fit.
    """

    def __init__(
        self,
        device: Device,
        positions: Any = (),
        velocities: Any = None,
        lives: Any = None,
        *,
        masses: Any = None,
        attributes: Mapping[str, Any] | None = None,
        config: ParticleConfig | None = None,
        forces: Sequence[ForceFunction] = (),
        dt: float = 1 / 60,
        snapshot_every: int = 60,
        clock: Clock | None = None,
    ) -> None:
        config = ParticleConfig() if config is None else config
        if not isinstance(config, ParticleConfig):
            raise TypeError(f"config is {config!r:.80}; pass a ParticleConfig")
        self._forces = checked_functions(forces)
        if self._forces:
            check_method(config.method, "forces")
        config, state = placed(given(positions, velocities, lives, masses, attributes, config), config)
        rule = Particles(self._forces)
        super().__init__(device, rule, config, state, dt=dt, snapshot_every=snapshot_every, clock=clock)

    async def spawn(
        self,
        positions: Any,
        velocities: Any = None,
        lives: Any = None,
        *,
        masses: Any = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> int:
        """Make further particles now, in free slots, which they take in ascending order; returns how many were made.

        Args:
            positions, velocities, lives, masses, attributes: As of the actor. The last ones are not made if there is no
                slot for them; :attr:`.ParticleSnapshot.suppressed` does not count these.

        Raises:
            ShapeError, TypeError, ValueError: An argument does not fit, or the system never has a free slot.
        """
        found = given(positions, velocities, lives, masses, attributes, self.config)
        if not self.config.mortal:
            raise ValueError("there are no slots for further particles; write ParticleConfig(capacity=...)")
        if not len(found.x):
            return 0
        if not self.config.massive and (found.mass != 1).any():
            await self.update_config(massive=True)
        columns = found.columns()

        async def put(live: Live[ParticleConfig]) -> int:
            return int(min(await filled(live.device, live.arrays, live.device.put(columns)), len(found.x)))

        return await self.call(put)

    async def update_config(self, config: ParticleConfig | None = None, **changes: Any) -> None:
        """Go on with another configuration, from the next step; see :meth:`.Simulation.update_config`.

        Args:
            config: The new one; None: the present one.
            changes: Fields of it to replace. Of ``parameters`` and ``attributes``, only the given names change:
                ``parameters={"k": 0.5}``. A new parameter comes with the ``fields`` that read it.
        """
        await super().update_config(config, **changes)

    def _merged(self, config: ParticleConfig, changes: dict[str, Any]) -> dict[str, Any]:
        read = {name for force in changes.get("fields", ()) if isinstance(force, Force) for name in force.inputs}
        found = {}
        for field, more in (("parameters", read), ("attributes", set[str]())):
            given, present = changes.get(field), getattr(config, field)
            if isinstance(given, Mapping):
                for name in given:
                    if name not in present and name not in more:
                        told = f"{field} has no {name!r}; there are {', '.join(present) or 'none'}"
                        raise ValueError(str(unknown_name(told, str(name), present)))
                found[field] = {**present, **given}
        return {**changes, **found}

    def _adapted(self, config: ParticleConfig) -> ParticleConfig:
        present = self.config
        if self._forces:
            check_method(config.method, "forces")
        if [*config.attributes] != [*present.attributes]:
            raise ValueError(
                f"attributes is {config.attributes}; a system that exists keeps its names: {[*present.attributes]}"
            )
        if config.capacity not in (0, present.capacity):
            raise ValueError(f"capacity is {config.capacity}; a system that exists keeps its slots: {present.capacity}")
        mortal = present.mortal or config.mortal or bool(config.emitters)
        massive = present.massive or is_massive(config)
        return msgspec.structs.replace(
            config, capacity=config.capacity or present.capacity, mortal=mortal, massive=massive
        )

    def _state_of(self, state: Any) -> tuple[ParticleConfig, HostArrays]:
        return placed(given(state, None, None, None, None, self.config), self.config)

    def _snapshot_of(self, kept: Kept[ParticleConfig]) -> ParticleSnapshot:
        life = kept.state["life"]
        slots = np.flatnonzero(life > 0)
        _, emitted, suppressed = kept.state["clock"]
        arrays: dict[str, Any] = {
            "positions": kept.state["x"].T[slots],
            "velocities": kept.state["v"].T[slots],
            "lives": life[slots],
            "masses": kept.state["mass"][slots],
            "slots": slots,
        }
        rows = kept.state["attributes"]
        attributes = {name: rows[n, slots] for n, name in enumerate(kept.config.attributes)}
        for array in (*arrays.values(), *attributes.values()):
            array.flags.writeable = False
        arrays |= {"attributes": attributes, "emitted": int(emitted), "suppressed": int(suppressed)}
        return ParticleSnapshot(steps=kept.steps, time=kept.time, **arrays)

    def _drawing(self, snapshot: ParticleSnapshot, width: int, height: int) -> NDArray[np.uint8]:
        speeds = np.sqrt((snapshot.velocities**2).sum(1))
        return splatted(snapshot.positions[:, :2], speeds, width, height, self.config.bounds)
