"""``ParticleSystemActor``: particles on a device."""

from collections.abc import Mapping, Sequence
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
from callboard.realtime.particles.forces import ForceFunction, checked_functions
from callboard.realtime.particles.rule import Particles
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
        config, state = _placed(positions, velocities, lives, masses, attributes, config)
        rule = Particles(self._forces)
        super().__init__(device, rule, config, state, dt=dt, snapshot_every=snapshot_every, clock=clock)

    def _adapted(self, config: ParticleConfig) -> ParticleConfig:
        present = self.config
        if self._forces:
            check_method(config.method, "forces")
        if [*config.attributes] != [*present.attributes]:
            raise ValueError(
                f"attributes is {config.attributes}; a system that exists keeps its names: {[*present.attributes]}"
            )
        mortal = present.mortal or config.mortal or bool(config.emitters)
        massive = present.massive or _massive(config)
        return msgspec.structs.replace(
            config, capacity=config.capacity or present.capacity, mortal=mortal, massive=massive
        )

    def _state_of(self, state: Any) -> tuple[ParticleConfig, HostArrays]:
        return _placed(state, None, None, None, None, self.config)

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


def _massive(config: ParticleConfig) -> bool:
    return config.massive or any(one.mass != 1 for one in config.emitters)


def _each(name: str, values: Any, n: int) -> NDArray[np.float32]:
    """A finite number for each particle."""
    given = np.asarray(values)
    if given.shape not in ((), (n,)):
        raise ShapeError(f"{name} has shape {list(given.shape)} for {n} positions; give one number for each")
    found: NDArray[np.float32] = rows(name, np.broadcast_to(given, n)[:, None], 1)[:, 0]
    return found


def _placed(
    positions: Any,
    velocities: Any,
    lives: Any,
    masses: Any,
    attributes: Mapping[str, Any] | None,
    config: ParticleConfig,
) -> tuple[ParticleConfig, HostArrays]:
    """The state of these particles in the first slots, and a configuration with room for them."""
    if isinstance(positions, ParticleSnapshot):
        given = positions
        positions, velocities, lives = given.positions, given.velocities, given.lives
        masses, attributes = given.masses, given.attributes
    x = rows("positions", positions if np.size(positions) else np.zeros((0, 3)), 3)
    n = len(x)
    v = np.zeros((n, 3), "f4") if velocities is None else rows("velocities", velocities, 3)
    life = np.full(n, np.inf, "f4") if lives is None else np.array(lives, "f4")
    mass = np.ones(n, "f4") if masses is None else _each("masses", masses, n)
    if len(v) != n:
        raise ShapeError(f"velocities has {len(v)} rows for {n} positions; give one for each")
    if life.shape != (n,):
        raise ShapeError(f"lives has shape {list(life.shape)} for {n} positions; give one number for each")
    for name, array in (("lives", life), ("masses", mass)):
        if not (array > 0).all():
            bad = int(np.flatnonzero(~(array > 0))[0])
            raise ValueError(f"{name} has {array[bad]} at {bad}; it must be positive")
    unknown = sorted((attributes or {}).keys() - config.attributes.keys())
    if unknown:
        raise ValueError(
            f"attributes has {unknown[0]!r}, which the configuration has not; write "
            f"ParticleConfig(attributes={{{unknown[0]!r}: 0.0}})"
        )
    if not n and not config.emitters and not config.capacity:
        raise ValueError("there are no particles, no emitters and no capacity; pass positions, or ParticleConfig(...)")
    if not config.capacity and config.emitters:
        needed = n + sum(one.rate * min(one.life, 60.0) * 1.1 + 1 for one in config.emitters)
        config = msgspec.structs.replace(config, capacity=int(min(needed, 1 << 24)))
    capacity = max(config.capacity, n, 1)
    mortal = bool(config.mortal or config.emitters or capacity > n or np.isfinite(life).any())
    massive = _massive(config) or bool((mass != 1).any())
    config = msgspec.structs.replace(config, capacity=capacity, mortal=mortal, massive=massive)
    state = Particles().state(config)
    state["x"][:, :n], state["v"][:, :n], state["life"][:n], state["mass"][:n] = x.T, v.T, life, mass
    for row, (name, value) in zip(state["attributes"], config.attributes.items(), strict=False):
        row[:] = value
        if attributes and name in attributes:
            row[:n] = _each(f"attributes[{name!r}]", attributes[name], n)
    return config, state
