"""``VideoEffectsGraph``: against NumPy, and what the original did wrong."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from tests.realtime.text_lab import run_text

import callboard as cb
from callboard.actors.clock import ManualClock
from callboard.realtime.base.cpu.recycled import Recycled
from callboard.realtime.video import effects, kernels
from callboard.realtime.video.streams import synced

pytestmark = pytest.mark.timeout(180)  # where Numba is installed, it compiles a blueprint once

RNG = np.random.default_rng(4)


@pytest_asyncio.fixture
async def gpu() -> AsyncIterator[cb.Device]:
    async with cb.device("cpu", isolation=None) as device:
        yield device


def frame_of(*shape: int) -> Any:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


async def test_a_graph_joins_branches(gpu: cb.Device) -> None:
    nodes = {
        "both": effects.blend("gray", "bright", 0.25),
        "gray": effects.grayscale("input"),
        "bright": effects.threshold(100, 255, "input"),
        "far": effects.merge("both", "input", "difference"),
    }
    graph = cb.VideoEffectsGraph(gpu, nodes, output=("both", "far"), measure_every=1)
    frame = frame_of(5, 6, 3)
    found = await graph.process_frame(frame)
    gray = np.rint(frame @ np.array([0.299, 0.587, 0.114]))[..., None]
    both = np.rint(0.25 * gray + 0.75 * (frame > 100) * 255)
    assert np.abs(found["both"] - both).max() <= 1
    assert np.abs(found["far"] - np.abs(found["both"] - frame.astype("f4"))).max() == 0
    stats = graph.stats()
    assert (stats.frames, stats.dropped, set(stats.milliseconds)) == (1, 0, set(nodes))


async def test_a_chain_takes_frames_of_other_shapes_and_dtypes(gpu: cb.Device) -> None:
    chain = cb.VideoEffectsGraph(gpu, [effects.blur(3), effects.edge()])
    ramp = np.tile(np.arange(8, dtype="f4") * 3, (6, 1))
    found = await chain.process_frame(ramp)
    np.testing.assert_allclose(found[1:-1, 2:-2], 24, rtol=1e-4)  # Sobel's kernels weigh 8 times the slope
    assert (await chain.process_frame(frame_of(4, 5, 4).astype("u2"))).dtype == np.uint16


async def test_past_frames_and_a_swap_that_keeps_them(gpu: cb.Device) -> None:
    def oldest(device: cb.Device, past: Any) -> Any:
        return device.copy(past[-1])

    twice = cb.Effect(lambda device, one: effects.kernels.combined(one.reshape(-1), one.reshape(-1), 1.0, 1.0, 0))
    graph = cb.VideoEffectsGraph(gpu, {"late": cb.Effect(oldest, (), 2), "double": twice})
    given = [np.full((1, 1), n, "u1") for n in range(8)]
    found = [int((await graph.process_frame(frame)).item()) for frame in given[:5]]
    assert found == [0, 0, 0, 2, 4]
    graph.update_effects({"double": effects.threshold(-1, 7)})
    assert (await graph.process_frame(given[5])).item() == 7
    graph.update_effects({"double": None})
    assert [int((await graph.process_frame(frame)).item()) for frame in given[6:]] == [4, 5]
    trail = cb.VideoEffectsGraph(gpu, [effects.trail(2, decay=0.5)])
    assert [float((await trail.process_frame(np.full((1, 1), v, "f4"))).item()) for v in (8, 0, 0, 0)] == [8, 4, 2, 0]


async def test_what_makes_no_graph_is_refused_and_changes_nothing(gpu: cb.Device) -> None:
    with pytest.raises(ValueError, match="effects take each other in a circle: 'a' <- 'b' <- 'a'; break it"):
        cb.VideoEffectsGraph(gpu, {"a": effects.edge("b"), "b": effects.edge("a")})
    with pytest.raises(ValueError, match="effect 'a' takes 'camera', which does not exist; there are 'input', 'a'"):
        cb.VideoEffectsGraph(gpu, {"a": effects.edge("camera")})
    with pytest.raises(ValueError, match="output 'z' is no effect; there are 'a'"):
        cb.VideoEffectsGraph(gpu, {"a": effects.edge()}, output="z")
    with pytest.raises(ValueError, match="effects is empty"):
        cb.VideoEffectsGraph(gpu, [])
    graph = cb.VideoEffectsGraph(gpu, {"a": effects.threshold(9)})
    with pytest.raises(TypeError, match="effect 'a' is 3; pass an Effect"):
        graph.update_effects({"a": 3})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="frame has 'left'; pass one for each of input"):
        await graph.process_frame({"left": frame_of(2, 2)})
    assert (await graph.process_frame(np.array([[9, 10]], "u1"))).tolist() == [[0, 255]]
    two = cb.VideoEffectsGraph(gpu, {"m": effects.merge("a", "b")}, inputs=("a", "b"))
    with pytest.raises(cb.ShapeError, match="blend and merge take frames of one shape and dtype"):
        await two.process_frame({"a": frame_of(2, 2), "b": frame_of(2, 3)})
    assert two.stats().frames == 0


async def test_frames_that_are_late_are_dropped(gpu: cb.Device) -> None:
    clock = ManualClock()

    def slow(device: cb.Device, frame: Any) -> Any:
        clock.advance(0.25)
        return device.copy(frame)

    graph = cb.VideoEffectsGraph(gpu, [cb.Effect(slow)], clock=clock)
    frames = [(n / 10, np.full((1, 1), n, "u1")) for n in range(8)]
    found = [(round(one.pts * 10), one.result.item(), one.dropped) async for one in graph.run(frames, fps=10)]
    assert found == [(0, 0, 0), (2, 2, 1), (4, 4, 1), (7, 7, 2)]
    assert (graph.stats().frames, graph.stats().dropped) == (4, 4)
    assert len([one async for one in graph.run(frames)]) == 8


async def test_several_streams_by_time(gpu: cb.Device) -> None:
    async def other() -> AsyncIterator[tuple[float, int]]:
        for pts in (0.15, 0.25, 0.3):
            yield pts, round(pts * 100)

    found = [item async for item in synced({"a": [(n / 10, n) for n in range(6)], "b": other()})]
    assert found == [(0.2, {"a": 2, "b": 15}), (n3 := 3 / 10, {"a": 3, "b": 30 if n3 >= 0.3 else 25})] + [
        (n / 10, {"a": n, "b": 30}) for n in (4, 5)
    ]


def test_the_texts_compute_what_numpy_does() -> None:
    a, b = frame_of(4, 5, 3), frame_of(4, 5, 3)
    calls: list[tuple[str, Any, tuple[Any, ...], tuple[Any, ...]]] = [
        *(("combined", kernels.combined, (a.reshape(-1), b.reshape(-1)), (0.4, 0.8, mode)) for mode in range(3)),
        ("limited", kernels.limited, (a.reshape(-1),), (99.0, 200.0)),
        ("gray", kernels.gray, (a.reshape(-1, 3),), ()),
        ("edges", kernels.edges, (a,), ()),
    ]
    for name, kernel, arrays, numbers in calls:
        wanted, found = (np.zeros_like(arrays[0]) for _ in range(2))
        kernel.body(*arrays, wanted, *numbers)
        extents = {"gray": (20, 3), "edges": (4, 5, 3)}.get(name, (60,))
        run_text(kernels.TEXT, f"{name}<unsigned char>", *arrays, found, *extents, *numbers, blocks=8, threads=8)
        np.testing.assert_allclose(found.astype("f4"), wanted.astype("f4"), atol=1, err_msg=name)


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("dtype", ["u1", "u2", "f4"])
@pytest.mark.few(9)
def test_numba_gives_what_numpy_gives(dtype: str, channels: int) -> None:
    pytest.importorskip("numba", reason="the extra realtime")
    from callboard.realtime.video import compiled, plain

    rng = np.random.default_rng(1)
    a, b = rng.uniform(0, 255, (2, 13, 11, channels)).astype(dtype)
    flat, numbers = (a.reshape(-1), b.reshape(-1)), (np.float32(0.4), np.float32(0.8))
    calls: list[tuple[str, tuple[Any, ...], tuple[Any, ...]]] = [
        *(("combined", flat, (*numbers, mode)) for mode in range(3)),
        ("limited", flat[:1], (np.float32(99), np.float32(200.5))),
        ("gray", (a.reshape(-1, channels),), ()),
        ("edges", (a,), ()),
    ]
    for name, arrays, more in calls:
        wanted, found = (np.zeros_like(arrays[0]) for _ in range(2))
        getattr(plain, name)(*arrays, wanted, *more)
        getattr(compiled, name)(*arrays, found, *more)
        np.testing.assert_allclose(found.astype("f8"), wanted.astype("f8"), rtol=1e-5, atol=1e-3, err_msg=name)


async def test_large_frames_are_the_callers_on_both_sides() -> None:
    nodes = {"low": effects.threshold(9, 100), "trail": effects.trail(1, "low", decay=0.5)}
    async with cb.device("cpu", isolation="thread") as gpu:
        graph = cb.VideoEffectsGraph(gpu, nodes, output=("low", "trail"))
        frame = np.full((600, 1000), 10, "u1")
        first = asyncio.ensure_future(graph.process_frame(frame))
        await asyncio.sleep(0)
        frame[:] = 0  # the next one, in the same memory
        second = asyncio.ensure_future(graph.process_frame(frame))
        one = await first
        low, trail = one["low"].copy(), one["trail"].copy()
        one["low"][:] = one["trail"][:] = 7
        two = await second
        assert low.min() == trail.min() == 100
        assert (two["low"].max(), two["trail"].min(), two["trail"].max()) == (0, 50, 50)
        assert (await graph.process_frame(frame))["trail"].max() == 0
        same = cb.VideoEffectsGraph(gpu, [cb.Effect(lambda device, shown: shown)])
        (await same.process_frame(frame))[:] = 3
        assert frame.max() == 0


def test_memory_of_copies_is_used_again() -> None:
    copies = Recycled()
    source = np.arange(1 << 18, dtype="f4")
    first = copies.copy(source)
    view, at = first[1:], first.ctypes.data
    del first
    second = copies.copy(source[::-1])
    assert second.ctypes.data != at
    np.testing.assert_array_equal(view, source[1:])
    np.testing.assert_array_equal(second, source[::-1])
    del view
    again = copies.copy(source + 1)
    assert again.ctypes.data == at
    np.testing.assert_array_equal(again, source + 1)
    assert copies.copy(source[:3]).tolist() == [0, 1, 2]
    assert copies.copy([[1, 2]]).tolist() == [[1, 2]]
