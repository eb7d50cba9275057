"""``PLAYERS``: what ``callboard play`` shows, a row for each blueprint."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from callboard.device.client.handle import Device
from callboard.realtime.base.simulation import Simulation
from callboard.realtime.play.scenes import Scene, effects_scene, filters_scene, swarm_scene

__all__ = ["PLAYERS", "Player", "Slider"]

Values = Mapping[str, float]


class Slider(NamedTuple):
    """A parameter that viewers may change.

    Attributes:
        name: Shown, and the key of its value.
        low, high: Range.
        value: At the start.
    """

    name: str
    low: float
    high: float
    value: float


class Player(NamedTuple):
    """A simulation to look at.

    Attributes:
        about: One line.
        make: Makes the simulation or scene, with ``snapshot_every`` and so on as it likes.
        sliders: Its parameters.
        changes: Fields of the configuration that values of the sliders mean; of a scene, the values themselves.
        steps: Steps of a frame.
        dt: Seconds of a step.
    """

    about: str
    make: Callable[[Device], Simulation[Any, Any] | Scene]
    sliders: tuple[Slider, ...]
    changes: Callable[[Values], dict[str, Any]]
    steps: int = 1
    dt: float = 1 / 60


def _particles(device: Device) -> Simulation[Any, Any]:
    from callboard.realtime.particles.actor import ParticleSystemActor
    from callboard.realtime.particles.config import ParticleConfig

    config = ParticleConfig(
        bounds=((-1.33, -1, -0.5), (1.33, 1, 0.5)), capacity=4000, **_particle_changes({"gravity": 9.8, "drag": 0.2})
    )
    angles = np.linspace(0, 2 * np.pi, 400)
    ring = np.stack([0.5 * np.cos(angles), 0.5 * np.sin(angles), 0 * angles], 1)
    return ParticleSystemActor(device, ring, config=config)


def _particle_changes(values: Values) -> dict[str, Any]:
    from callboard.realtime.particles.config import Emitter, Vortex
    from callboard.realtime.particles.obstacles import Ball

    rate, speed = values.get("rate", 600.0), (0.0, values.get("speed", 5.5), 0.0)
    fountain = Emitter(position=(0.0, -0.9, 0.0), velocity=speed, rate=rate, spread=0.7, life=3.0)
    return {
        "gravity": (0.0, -values["gravity"], 0.0),
        "drag": values["drag"],
        "fields": (Vortex(strength=values.get("whirl", 0.0), axis=(0.0, 0.0, 1.0)),),
        "colliders": (Ball(center=(0.0, 0.1, 0.0), radius=0.25, restitution=0.7),),
        "emitters": (fountain,),
    }


def _cloth(device: Device) -> Simulation[Any, Any]:
    from callboard.realtime.cloth.actor import ClothSimulationActor
    from callboard.realtime.cloth.config import ClothConfig

    side = 24
    config = ClothConfig(width=side, height=side, spacing=0.05, pinned=(side * (side - 1), side * side - 1), substeps=4)
    return ClothSimulationActor(device, config)


def _cloth_changes(values: Values) -> dict[str, Any]:
    return {
        "gravity": (0.0, -values["gravity"], 0.0),
        "wind": (0.5 * values["wind"], 0.0, values["wind"]),
        "air": 0.5,
        "stretch": values["stretch"],
        "damping": values["damping"],
    }


def _fluid(device: Device) -> Simulation[Any, Any]:
    from callboard.realtime.fluid.actor import FluidSimulationActor
    from callboard.realtime.fluid.config import FluidConfig

    values = {"smoke": 1.5, "buoyancy": 3.0, "whirl": 0.2, "viscosity": 0.0, "ball": 0.16}
    return FluidSimulationActor(device, FluidConfig(width=96, height=72, spacing=1 / 72, **_fluid_changes(values)))


def _fluid_changes(values: Values) -> dict[str, Any]:
    from callboard.realtime.fluid.config import FluidSource
    from callboard.realtime.particles.obstacles import Ball

    smoke = FluidSource(center=(0.6, 0.08, 0.0), radius=0.08, density=values["smoke"], acceleration=(0.0, 2.0, 0.0))
    return {
        "buoyancy": (values["buoyancy"],),
        "vorticity": values["whirl"],
        "viscosity": values["viscosity"],
        "fading": 0.4,
        "sources": (smoke,),
        "solids": (Ball(center=(0.75, 0.55, 0.0), radius=values["ball"]),),
    }


PLAYERS: dict[str, Player] = {
    "cloth": Player(
        "a curtain in the wind",
        _cloth,
        (
            Slider("gravity", 0.0, 20.0, 9.8),
            Slider("wind", 0.0, 12.0, 4.0),
            Slider("stretch", 0.0, 0.02, 0.0),
            Slider("damping", 0.0, 3.0, 0.3),
        ),
        _cloth_changes,
    ),
    "effects": Player(
        "effects on a video, as a graph",
        effects_scene,
        (
            Slider("blur", 0.0, 5.0, 1.5),
            Slider("edges", 0.0, 1.0, 0.5),
            Slider("trail", 0.0, 1.0, 0.6),
        ),
        dict,
    ),
    "filters": Player(
        "a chain of two filters over a noisy picture",
        filters_scene,
        (
            Slider("noise", 0.0, 80.0, 25.0),
            Slider("blur", 0.0, 5.0, 1.2),
            Slider("sharpen", 0.0, 3.0, 0.5),
        ),
        dict,
    ),
    "fluid": Player(
        "smoke that rises around a ball",
        _fluid,
        (
            Slider("smoke", 0.0, 6.0, 1.5),
            Slider("buoyancy", 0.0, 12.0, 3.0),
            Slider("whirl", 0.0, 2.0, 0.2),
            Slider("viscosity", 0.0, 0.01, 0.0),
            Slider("ball", 0.02, 0.3, 0.16),
        ),
        _fluid_changes,
    ),
    "particles": Player(
        "a fountain over a ball, in a box",
        _particles,
        (
            Slider("gravity", 0.0, 20.0, 9.8),
            Slider("drag", 0.0, 3.0, 0.2),
            Slider("whirl", -8.0, 8.0, 0.0),
            Slider("speed", 1.0, 9.0, 5.5),
            Slider("rate", 0.0, 1200.0, 600.0),
        ),
        _particle_changes,
        steps=4,
        dt=1 / 240,
    ),
    "swarm": Player(
        "a swarm in a periodic box, by the neighbours of each",
        swarm_scene,
        (
            Slider("radius", 0.0, 0.4, 0.12),
            Slider("noise", 0.0, 2.0, 0.15),
            Slider("speed", 0.0, 4.0, 1.0),
        ),
        dict,
    ),
}
"""Players by the names of the command line."""
