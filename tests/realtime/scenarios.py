"""Simulations with a moment in the middle, at which a test may lose the device: one function for each blueprint."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import numpy as np

import callboard as cb
from callboard.realtime.video import effects

Middle = Callable[[], Awaitable[None]]


class Outcome(NamedTuple):
    """What a scenario ends with.

    Attributes:
        arrays: To be equal, bit by bit, in an undisturbed run.
        stats: Of the simulation; None without a state.
        every: Its ``snapshot_every``.
    """

    arrays: dict[str, Any]
    stats: cb.SimulationStats | cb.HashMapStats | None
    every: int


async def particles(gpu: cb.Device, middle: Middle) -> Outcome:
    x = np.random.default_rng(3).uniform(-1, 1, (20, 3))
    config = cb.ParticleConfig(
        fields=(cb.Spring(strength=3.0),),
        colliders=(cb.Plane(offset=-0.5),),
        emitters=(cb.Emitter(rate=200, spread=1.0, life=0.1),),
    )
    async with cb.ParticleSystemActor(gpu, x, config=config, snapshot_every=8) as simulation:
        await simulation.step(0.01, 13)
        await simulation.update_config(gravity=(0, -1, 0))
        await simulation.step(0.02)
        running = asyncio.gather(simulation.step(0.01), simulation.update_config(drag=0.1))
        await middle()  # 14 steps are done, of which 8 are in a copy
        await running
        await asyncio.gather(*(simulation.step(0.01, 2) for _ in range(5)))
        found = await simulation.snapshot()
        arrays = {name: getattr(found, name) for name in ("positions", "velocities", "lives", "slots")}
        return Outcome({**arrays, "steps": found.steps}, simulation.stats(), 8)


async def cloth(gpu: cb.Device, middle: Middle) -> Outcome:
    config = cb.ClothConfig(width=3, height=3, pinned=(6, 8), thickness=0.05, tear=0.5, substeps=2)
    async with cb.ClothSimulationActor(gpu, config, snapshot_every=4) as simulation:
        await simulation.step(0.01, 5)
        await simulation.move([8], [(0.1, 0.2, 0.1)])
        steps = asyncio.gather(simulation.step(0.01), simulation.step(0.01))
        await middle()
        await steps
        await simulation.step(0.01, 2)
        found = await simulation.snapshot()
        arrays = {"positions": found.positions, "velocities": found.velocities}
        return Outcome({**arrays, "steps": found.steps}, simulation.stats(), 4)


async def hash_map(gpu: cb.Device, middle: Middle) -> Outcome:
    draw = np.random.default_rng(2)
    async with cb.GpuHashMapActor(gpu, key="i4", value="f4", capacity=16, snapshot_every=50) as table:
        for n in (30, 30, 20):  # a copy is due after the second
            await table.insert_and_add(draw.integers(-40, 40, n), draw.normal(size=n).astype("f4"))
        await table.erase(np.arange(-5, 5))
        more = asyncio.gather(table.insert([1, 2, 1000], 7.0), table.find([1, 1000]), table.erase([2]))
        await middle()
        added, (values, found), erased = await more
        keys, kept = await table.retrieve_all()
        stats = await table.stats()
        arrays = {"keys": keys, "kept": kept, "values": values, "found": found, "counts": [added, erased, stats.size]}
        return Outcome(arrays, stats, 50)


async def filters(gpu: cb.Device, middle: Middle) -> Outcome:
    """Without a state: what is lost is the frames in flight."""
    image = np.random.default_rng(6).integers(0, 256, (2, 20, 30, 3), dtype=np.uint8)
    pipe = cb.ImageFilterPipeline(gpu, [np.full((3, 3), 1 / 9), np.full((9, 9), 1 / 81)], border="wrap")
    frames = [await pipe.process(image)]
    several = asyncio.gather(*(pipe.process(image + n) for n in range(3)))
    await middle()
    frames += [*await several, await pipe.process(image)]
    return Outcome({"frames": np.array(frames)}, None, 0)


async def fluid(gpu: cb.Device, middle: Middle) -> Outcome:
    config = cb.FluidConfig(
        width=8, height=6, buoyancy=(2.0,), viscosity=0.1, vorticity=0.2, solids=(cb.Ball(center=(5, 4, 0), radius=1),)
    )
    async with cb.FluidSimulationActor(gpu, config, snapshot_every=4) as simulation:
        await simulation.add_density(2, 1, 2.0)
        await simulation.step(0.1, 5)
        await simulation.add_velocity(2, 2, 1.0, 3.0)
        steps = asyncio.gather(simulation.step(0.1), simulation.step(0.1))
        await middle()
        await steps
        await simulation.add_density(3, 1, 1.0)
        await simulation.step(0.1, 2)
        found = await simulation.snapshot()
        return Outcome({"density": found.density, "faces": found.faces, "steps": found.steps}, simulation.stats(), 4)


async def video(gpu: cb.Device, middle: Middle) -> Outcome:
    """What is lost is the frames in flight, and the past frames."""
    frames = np.random.default_rng(7).integers(0, 256, (7, 12, 16, 3), dtype=np.uint8)
    chain = {"soft": effects.blur(3), "trail": effects.trail(2), "mix": effects.blend("trail", "input", 0.3)}
    graph = cb.VideoEffectsGraph(gpu, {**chain, "again": effects.trail(1)}, measure_every=2)
    found = [await graph.process_frame(frame) for frame in frames[:3]]
    several = asyncio.gather(*(graph.process_frame(frame) for frame in frames[3:5]))
    await middle()
    found += await several
    graph.update_effects({"soft": effects.edge()})
    found += [await graph.process_frame(frame) for frame in frames[5:]]
    return Outcome({"frames": np.array(found)}, None, 0)


async def passes(gpu: cb.Device, middle: Middle) -> Outcome:
    """Without a state: what is lost is the frames in flight, and the recordings."""
    frame = np.random.default_rng(8).uniform(0, 256, (9, 11)).astype("f4")
    analysis = cb.MultiPassAnalysisActor(gpu, {"sum": lambda gpu, one: gpu.xp.sum(one, axis=0)})
    found = [(await analysis.analyze(frame))["sum"]]
    several = asyncio.gather(*(analysis.analyze(frame + n) for n in range(3)))
    await middle()
    found += [one["sum"] for one in (*await several, await analysis.analyze(frame))]
    return Outcome({"sums": np.array(found)}, None, 0)


SCENARIOS = [particles, cloth, filters, fluid, video, passes, hash_map]
