"""``Scene``: what is drawn from blueprints that take frames or points, not steps; and the scenes."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from callboard.actors.clock import Clock, LoopClock
from callboard.device.client.handle import Device
from callboard.realtime.base.drawing import splatted
from callboard.realtime.base.pace import Pace
from callboard.realtime.base.simulation import Frame, sleep

__all__ = ["Scene", "effects_scene", "filters_scene", "swarm_scene"]

Picture = NDArray[np.uint8]
Values = Mapping[str, float]
Draw = Callable[[float, Values, int, int], Awaitable[Picture]]


class Scene:
    """A picture for each time, with the methods of :class:`.Simulation` that showing it takes.

    Args:
        draw: Called with the time in seconds, the values of the sliders, width and height.
        values: At the start.
        clock: Tells the time of :meth:`run`; for tests.
    """

    def __init__(self, draw: Draw, values: Values, *, clock: Clock | None = None) -> None:
        self._draw, self._values, self._clock = draw, dict(values), clock or LoopClock()
        self._time, self._steps = 0.0, 0

    async def start(self) -> Self:
        """Nothing to start."""
        return self

    async def stop(self) -> None:
        """Nothing to stop."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def update_config(self, **changes: Any) -> None:
        """Move sliders."""
        self._values |= changes

    async def step(self, dt: float, steps: int = 1) -> int:
        """Let time pass."""
        self._time += dt * steps
        self._steps += steps
        return self._steps

    async def run(self, fps: float, *, steps_per_frame: int = 1, dt: float = 1 / 60) -> AsyncGenerator[Frame, None]:
        """Frames at a fixed rate; see :meth:`.Simulation.run`."""
        pace, number = Pace(fps, "skip", self._clock.time()), 0
        while True:
            turn = pace.next(self._clock.time())
            if turn.wait > 0:
                await sleep(self._clock, turn.wait)
            began = self._clock.time()
            steps = await self.step(dt, turn.frames * steps_per_frame)
            yield Frame(number, steps, self._time, turn.frames - 1, turn.dropped)
            number += 1
            pace.took(self._clock.time() - began)

    async def picture(self, width: int = 320, height: int = 240) -> Picture:
        """What there is to see now."""
        return await self._draw(self._time, self._values, width, height)


def filters_scene(device: Device) -> Scene:
    """A chain of two filters over rings with noise."""
    from callboard.realtime.images.pipeline import ImageFilterPipeline

    pipe = ImageFilterPipeline(device, [np.ones((1, 1)), np.ones((1, 1))], border="mirror")
    present: dict[str, float] = {}

    async def draw(time: float, values: Values, width: int, height: int) -> Picture:
        if present != {name: values[name] for name in ("blur", "sharpen")}:
            present.update(blur=values["blur"], sharpen=values["sharpen"])
            line = np.exp(-(np.arange(-7, 8) ** 2) / (2 * max(values["blur"], 0.05) ** 2))
            pipe.update_kernel(np.outer(line, line) / line.sum() ** 2, 0)
            part = values["sharpen"]
            pipe.update_kernel([[0, -part, 0], [-part, 1 + 4 * part, -part], [0, -part, 0]], 1)
        return np.asarray(await pipe.process(_rings(time, values["noise"], width, height)), np.uint8)

    return Scene(draw, {})


def effects_scene(device: Device) -> Scene:
    """A graph of effects over rings: edges over a blurred picture, with a trail."""
    from callboard.realtime.video import effects
    from callboard.realtime.video.graph import VideoEffectsGraph

    def nodes(values: Values) -> dict[str, Any]:
        return {
            "soft": effects.blur(9, "input", sigma=max(values["blur"], 0.05)),
            "lines": effects.edge("input"),
            "both": effects.blend("lines", "soft", values["edges"]),
            "trail": effects.trail(4, "both", decay=values["trail"]),
        }

    made: dict[tuple[int, int], VideoEffectsGraph] = {}
    present: dict[str, float] = {}

    async def draw(time: float, values: Values, width: int, height: int) -> Picture:
        if (width, height) not in made:
            made[width, height] = VideoEffectsGraph(device, nodes(values))
        elif present != values:
            made[width, height].update_effects(nodes(values))
        present.update(values)
        return np.asarray(await made[width, height].process_frame(_rings(time, 0.0, width, height)), np.uint8)

    return Scene(draw, {})


def swarm_scene(device: Device) -> Scene:
    """A swarm in a periodic box, whose members fly as those do that are near them."""
    from callboard.realtime.spatial.actor import SpatialIndexActor

    rng, many = np.random.default_rng(1), 600
    index = SpatialIndexActor(device, dims=2, box=2.0)
    state = [rng.uniform(0, 2, (many, 2)), rng.uniform(-np.pi, np.pi, (many, 1))]
    index.rebuild(state[0])

    async def draw(time: float, values: Values, width: int, height: int) -> Picture:
        places, angles = state
        offsets, ids, _ = await index.within(places, values["radius"])
        heading = np.concatenate([np.cos(angles), np.sin(angles)], 1)
        mean = np.add.reduceat(heading[ids], offsets[:-1])
        state[1] = np.arctan2(mean[:, 1], mean[:, 0])[:, None] + rng.normal(0, values["noise"] + 1e-9, (many, 1))
        state[0] = (places + 0.02 * values["speed"] * heading) % 2.0
        index.move(np.arange(many), state[0])
        return splatted(state[0] - 1, np.diff(offsets), width, height)

    return Scene(draw, {})


def _rings(time: float, noise: float, width: int, height: int) -> Picture:
    y, x = np.mgrid[:height, :width] / height
    middle = 0.5 * width / height + 0.3 * np.sin(time), 0.5 + 0.2 * np.cos(1.3 * time)
    rings = 127 + 100 * np.sin(60 * np.hypot(x - middle[0], y - middle[1]) - 3 * time)
    picture = rings[..., None] * (1.0, 0.8, 0.5)
    if noise:
        picture = picture + np.random.default_rng(int(time * 1e3)).normal(0, noise, picture.shape)
    return np.asarray(np.clip(picture, 0, 255), np.uint8)
