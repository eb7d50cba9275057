"""``MultiPassAnalysisActor``: against NumPy, and what the original did wrong."""

from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.core.ref.handle import GpuRef

HALF = cb.AnalysisPass(lambda gpu, frame: gpu.xp.multiply(frame, 0.5))


async def test_a_pass_that_several_take_is_computed_once_and_recorded_once() -> None:
    called: list[str] = []

    def half(gpu: cb.Device, frame: GpuRef) -> Any:
        called.append("half")
        return gpu.xp.multiply(frame, 0.5)

    passes = {
        "range": cb.AnalysisPass(lambda gpu, high, low: gpu.xp.subtract(high, low), ("high", "low")),
        "high": cb.AnalysisPass(lambda gpu, one: gpu.xp.max(one), ("half",)),
        "low": cb.AnalysisPass(lambda gpu, one: gpu.xp.min(one), ("half",)),
        "rows": cb.AnalysisPass(lambda gpu, one: gpu.xp.sum(one, axis=1), ("half",)),
        "half": half,
    }
    frame = np.random.default_rng(0).uniform(0, 9, (6, 5)).astype("f4")
    async with cb.device("cpu", isolation=None) as gpu:
        analysis = cb.MultiPassAnalysisActor(gpu, passes, results=("range", "rows"))
        for n in range(3):
            found = await analysis.analyze(frame + n)
            assert set(found) == {"range", "rows"}
            np.testing.assert_allclose(found["range"], np.ptp(frame) / 2, rtol=1e-5)
            np.testing.assert_allclose(found["rows"], (frame + n).sum(1) / 2, rtol=1e-5)
        assert called == ["half"]
        part = await analysis.analyze(gpu.put(frame), roi=(1, 4, 2, 5))
        np.testing.assert_allclose(part["rows"], frame[1:4, 2:5].sum(1) / 2, rtol=1e-5)
        tiles = await analysis.analyze(frame, tiles=(4, 2))
        for y, rows in enumerate((slice(0, 1), slice(1, 3), slice(3, 4), slice(4, 6))):
            np.testing.assert_allclose(tiles[y][1]["rows"], frame[rows, 2:].sum(1) / 2, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["u1", "u2", "i4", "f4", "f8"])
async def test_statistics_are_those_of_numpy(dtype: str) -> None:
    frame = np.random.default_rng(1).uniform(1, 120, (40, 2000)).astype(dtype)  # more than a part of a CPU's
    async with cb.device("cpu", isolation=None) as gpu:
        found = (await cb.MultiPassAnalysisActor(gpu, [cb.frame_statistics(bins=7, low=3, high=100)]).analyze(frame))[
            "0"
        ]
    wanted = frame.astype("f8")
    assert (found.min, found.max) == (wanted.min(), wanted.max())
    np.testing.assert_allclose(
        [found.sum, found.mean, found.std], [wanted.sum(), wanted.mean(), wanted.std()], rtol=1e-12
    )
    assert np.abs(found.histogram - np.histogram(wanted, found.edges)[0]).max() <= (2 if dtype == "f8" else 0)


async def test_a_number_that_is_none_is_in_the_moments_and_in_no_bin() -> None:
    async with cb.device("cpu", isolation=None) as gpu:
        analysis = cb.MultiPassAnalysisActor(gpu, [cb.frame_statistics(bins=2, high=2)])
        found = (await analysis.analyze([0.5, np.nan, 2.0, 7.0]))["0"]
        assert np.isnan([found.min, found.max, found.sum, found.mean, found.std]).all()
        assert found.histogram.tolist() == [1, 1]
        one = (await analysis.analyze(np.array([1e8 + 1, 1e8, 1e8 - 1])))["0"]
        assert one.std == pytest.approx(np.sqrt(2 / 3))


async def test_passes_that_make_no_graph_are_named() -> None:
    async with cb.device("cpu", isolation=None) as gpu:
        a, b, c = (cb.AnalysisPass(lambda gpu, one: one, (name,)) for name in ("c", "a", "b"))
        with pytest.raises(ValueError, match="passes take each other in a circle: 'a' <- 'c' <- 'b' <- 'a'"):
            cb.MultiPassAnalysisActor(gpu, {"a": a, "b": b, "c": c})
        with pytest.raises(ValueError, match="pass 'b' takes 'a', which does not exist; there are 'frame', 'b'"):
            cb.MultiPassAnalysisActor(gpu, {"b": b})
        with pytest.raises(ValueError, match="pass 'frame' has the name of an input"):
            cb.MultiPassAnalysisActor(gpu, {"frame": HALF})
        with pytest.raises(ValueError, match="passes is empty"):
            cb.MultiPassAnalysisActor(gpu, [])
        analysis = cb.MultiPassAnalysisActor(gpu, {"half": HALF, "none": lambda gpu, frame: 3})  # type: ignore[dict-item, return-value]
        with pytest.raises(TypeError, match="pass 'none' returned 3; return a ref"):
            await analysis.analyze(np.ones(3))
        for frame, message in ((np.ones((0, 2)), "at least one element"), (np.ones(3, complex), "real numbers")):
            with pytest.raises((TypeError, cb.ShapeError), match=message):
                await analysis.analyze(frame)
        with pytest.raises(cb.ShapeError, match=r"roi is .*inside the frame of 3 by 2"):
            await analysis.analyze(np.ones((3, 2)), roi=(0, 4, 0, 1))
        with pytest.raises(ValueError, match=r"tiles\[1\] is 3; it must be at least 1 and at most 2"):
            await analysis.analyze(np.ones((3, 2)), tiles=(1, 3))
