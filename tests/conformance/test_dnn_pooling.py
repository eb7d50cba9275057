"""Pooling against PyTorch in f64."""

from typing import Any

import pytest
from dnn_lab import FLOATS, SHARED, channels_first, drawn, in_layout, layouts, seeds, torch_of, wide
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.errors import ShapeError
from callboard.kernel.dnn import AvgPool
from callboard.testing.tolerances import assert_close

AVERAGES = {1: "avg_pool1d", 2: "avg_pool2d", 3: "avg_pool3d"}


@pytest.mark.parametrize("dtype", FLOATS)
@SHARED
@given(axes=st.integers(1, 3), layout=layouts, data=st.data(), include=st.booleans(), seed=seeds)
def test_averages(
    session: Any, dtype: str, axes: int, layout: Any, data: st.DataObject, include: bool, seed: int
) -> None:
    torch = torch_of()
    window = tuple(data.draw(st.integers(1, 4)) for _ in range(axes))
    padding = tuple(data.draw(st.integers(0, n // 2)) for n in window)
    stride = tuple(data.draw(st.integers(1, 3)) for _ in window)
    spatial = tuple(data.draw(st.integers(n, 7)) for n in window)
    x = drawn(seed, (data.draw(st.integers(1, 3)), data.draw(st.integers(1, 5)), *spatial), dtype)
    op = AvgPool(
        x=session.put(in_layout(x, layout)), window=window, stride=stride, padding=padding, count_include_pad=include,
        layout=layout,
    )  # fmt: skip
    got = channels_first(session.get(session.submit(op)), layout)
    pool = getattr(torch.nn.functional, AVERAGES[axes])
    want = pool(torch.from_numpy(wide(x)), window, stride, padding, count_include_pad=include).numpy()
    terms = 1
    for n in window:
        terms *= n
    assert_close(got, want, dtype, terms, kind="sum", scale=4.0)


def test_bad_settings(session: Any) -> None:
    x = session.put(drawn(1, (1, 2, 5, 5), "f32"))
    for settings, text in (
        ({"window": (2, 2, 2)}, "window is .2, 2, 2.; it must be one number or 2"),
        ({"window": 7}, "a window covers 7 elements of spatial axis 0, which has 5"),
        ({"window": 2, "padding": 2}, "a window would lie in padding only"),
        ({"window": 0}, "must be at least 1"),
        ({"window": 3, "padding": -1}, "slice the array"),
    ):
        with pytest.raises(ShapeError, match=text):
            session.submit(AvgPool(x=x, **settings))
    with pytest.raises(ShapeError, match="1 to 3 spatial axes"):
        session.submit(AvgPool(x=x[0, 0], window=2))
