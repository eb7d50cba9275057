"""The kernels of pooling, compiled for the host: the same results as the CPU's, over layouts, windows and views."""

from typing import Any

import numpy as np
import pytest

from callboard.core.dtype import DTYPES
from callboard.kernel.dnn import AvgPool, AvgPoolBackward, MaxPool, MaxPoolBackward, MaxPoolIndices
from callboard.testing.session import LibrarySession

SETTINGS: list[dict[str, Any]] = [
    {"window": (3, 2), "stride": (2, 1), "padding": ((1, 0), (1, 1))},
    {"window": (2, 2), "layout": "NHWC"},
    {"window": (2, 3), "stride": (3, 1), "padding": 1, "layout": "NHWC"},
]


def pooled(session: Any, dtype: str, settings: dict[str, Any]) -> list[Any]:
    """All results, of the same numbers."""
    rng = np.random.default_rng(4)
    x = session.put(np.rint(rng.standard_normal((2, 5, 6, 7)) * 4).astype(DTYPES[dtype].np))
    found = [session.submit(AvgPool(x=x, **settings, count_include_pad=pad)) for pad in (True, False)]
    best = session.submit(MaxPoolIndices(x=x, **settings))
    dy = session.put(np.rint(rng.standard_normal(best.out.shape) * 4).astype(DTYPES[dtype].np))
    found += [session.submit(AvgPoolBackward(dy=dy, shape=x.shape, **settings, count_include_pad=False)), *best]
    found.append(session.submit(MaxPoolBackward(dy=dy, indices=best.indices, shape=x.shape, **settings)))
    found.append(session.submit(MaxPool(x=x[:, :, ::-1], **settings, dilation=1)))
    return [session.get(one) for one in found]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.few(1)
def test_pooling(host: Any, dtype: str, settings: dict[str, Any]) -> None:
    with LibrarySession("cpu") as cpu:
        for got, want in zip(pooled(host, dtype, settings), pooled(cpu, dtype, settings), strict=True):
            np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=1e-6, atol=1e-6)
