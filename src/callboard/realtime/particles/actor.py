"""``ParticleSystemActor``: particles on a device."""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from callboard.actors.clock import Clock
from callboard.core.errors import ShapeError
from callboard.device.client.handle import Device
from callboard.realtime.base.checks import rows
from callboard.realtime.base.drawing import splatted
from callboard.realtime.base.history import Kept
from callboard.realtime.base.rule import HostArrays
from callboard.realtime.base.simulation import Simulation
from callboard.realtime.particles.config import ParticleConfig, check_method
from callboard.realtime.particles.rule import Force, Particles
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
        lives: Seconds to live of each; None: without end.
        config: Forces, obstacles, emitters.
        force: A further force: a function of the device and of positions and velocities, refs f32 ``[3, slots]``, which
            enqueues ops and returns accelerations of the same shape. It is called when a step is recorded, and must be
            given again to a simulation that loads a file.
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
        config: ParticleConfig | None = None,
        force: Force | None = None,
        dt: float = 1 / 60,
        snapshot_every: int = 60,
        clock: Clock | None = None,
    ) -> None:
        config = ParticleConfig() if config is None else config
        if not isinstance(config, ParticleConfig):
            raise TypeError(f"config is {config!r:.80}; pass a ParticleConfig")
        if force is not None:
            if not callable(force):
                raise TypeError(f"force is {force!r:.80}; pass a function of a device, positions and velocities")
            check_method(config.method, "force")
        self._force = force
        config, state = _placed(positions, velocities, lives, config)
        super().__init__(device, Particles(force), config, state, dt=dt, snapshot_every=snapshot_every, clock=clock)

    def _adapted(self, config: ParticleConfig) -> ParticleConfig:
        present = self.config
        if self._force is not None:
            check_method(config.method, "force")
        mortal = present.mortal or config.mortal or bool(config.emitters)
        return msgspec.structs.replace(config, capacity=config.capacity or present.capacity, mortal=mortal)

    def _state_of(self, state: Any) -> tuple[ParticleConfig, HostArrays]:
        return _placed(state, None, None, self.config)

    def _snapshot_of(self, kept: Kept[ParticleConfig]) -> ParticleSnapshot:
        life = kept.state["life"]
        slots = np.flatnonzero(life > 0)
        _, emitted, suppressed = kept.state["clock"]
        arrays = {
            "positions": kept.state["x"].T[slots],
            "velocities": kept.state["v"].T[slots],
            "lives": life[slots],
            "slots": slots,
        }
        for array in arrays.values():
            array.flags.writeable = False
        return ParticleSnapshot(
            steps=kept.steps, time=kept.time, emitted=int(emitted), suppressed=int(suppressed), **arrays
        )

    def _drawing(self, snapshot: ParticleSnapshot, width: int, height: int) -> NDArray[np.uint8]:
        speeds = np.sqrt((snapshot.velocities**2).sum(1))
        return splatted(snapshot.positions[:, :2], speeds, width, height, self.config.bounds)


def _placed(positions: Any, velocities: Any, lives: Any, config: ParticleConfig) -> tuple[ParticleConfig, HostArrays]:
    """The state of these particles in the first slots, and a configuration with room for them."""
    if isinstance(positions, ParticleSnapshot):
        positions, velocities, lives = positions.positions, positions.velocities, positions.lives
    x = rows("positions", positions if np.size(positions) else np.zeros((0, 3)), 3)
    n = len(x)
    v = np.zeros((n, 3), "f4") if velocities is None else rows("velocities", velocities, 3)
    life = np.full(n, np.inf, "f4") if lives is None else np.array(lives, "f4")
    if len(v) != n:
        raise ShapeError(f"velocities has {len(v)} rows for {n} positions; give one for each")
    if life.shape != (n,):
        raise ShapeError(f"lives has shape {list(life.shape)} for {n} positions; give one number for each")
    if not (life > 0).all():
        raise ValueError(f"lives has {life[~(life > 0)][0]} at {np.flatnonzero(~(life > 0))[0]}; it must be positive")
    if not n and not config.emitters and not config.capacity:
        raise ValueError("there are no particles, no emitters and no capacity; pass positions, or ParticleConfig(...)")
    if not config.capacity and config.emitters:
        needed = n + sum(one.rate * min(one.life, 60.0) * 1.1 + 1 for one in config.emitters)
        config = msgspec.structs.replace(config, capacity=int(min(needed, 1 << 24)))
    capacity = max(config.capacity, n, 1)
    mortal = bool(config.mortal or config.emitters or capacity > n or np.isfinite(life).any())
    config = msgspec.structs.replace(config, capacity=capacity, mortal=mortal)
    state = Particles().state(config)
    state["x"][:, :n], state["v"][:, :n], state["life"][:n] = x.T, v.T, life
    return config, state
