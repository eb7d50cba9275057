"""``ReductionAnalysisActor``: against NumPy, and what the original did wrong."""

from typing import Any, get_args

import numpy as np
import pytest

import callboard as cb
from callboard.realtime.reductions.actor import NAMES, ReductionKind


@pytest.mark.parametrize("dtype", ["u1", "i4", "f4", "f8"])
async def test_reductions_are_those_of_numpy(dtype: str) -> None:
    data: Any = np.random.default_rng(0).integers(0, 200, (4, 6)).astype(dtype)
    kinds = list(get_args(ReductionKind))
    async with cb.device("cpu", isolation=None) as gpu:
        analysis = cb.ReductionAnalysisActor(gpu)
        whole = await analysis.several(kinds, data)
        parts = [await analysis.reduce_channels(kind, gpu.put(data), 3) for kind in kinds]
    for kind, one, part in zip(kinds, whole, parts, strict=True):
        reduce = getattr(np, NAMES.get(kind, kind))
        np.testing.assert_allclose(one, reduce(data), rtol=1e-6)
        np.testing.assert_allclose(part, reduce(data.reshape(-1, 3), axis=0), rtol=1e-6)
        assert isinstance(one, np.integer) or not kind.startswith("arg")


async def test_an_index_beyond_what_an_f32_holds_is_exact() -> None:
    data = np.zeros((1 << 24) + 3, "u1")
    data[-1] = 1
    async with cb.device("cpu", isolation=None) as gpu:
        assert await cb.ReductionAnalysisActor(gpu).reduce("arg_max", data) == (1 << 24) + 2


async def test_what_cannot_be_reduced_is_named() -> None:
    async with cb.device("cpu", isolation=None) as gpu:
        analysis = cb.ReductionAnalysisActor(gpu)
        with pytest.raises(cb.ShapeError, match=r"data has shape \[0\]; pass at least one element"):
            await analysis.reduce("sum", [])
        with pytest.raises(cb.ShapeError, match="data has 4 elements, which 3 channels do not divide"):
            await analysis.reduce_channels("sum", np.ones(4), 3)
        with pytest.raises(ValueError, match="channels is 0; it must be at least 1"):
            await analysis.reduce_channels("sum", np.ones(4), 0)
        with pytest.raises(ValueError, match="kind is 'median'; use one of 'sum', 'mean'"):
            await analysis.reduce("median", np.ones(4))  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="data has dtype complex128; pass real numbers"):
            await analysis.reduce("sum", np.ones(4, complex))
