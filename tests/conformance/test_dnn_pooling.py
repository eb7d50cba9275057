"""Pooling and its gradients against PyTorch in f64."""

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest
from dnn_lab import FLOATS, SHARED, Array, channels_first, drawn, in_layout, layouts, seeds, torch_of, wide
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.errors import ShapeError
from callboard.kernel.dnn import AvgPool, AvgPoolBackward, MaxPool, MaxPoolBackward, MaxPoolIndices
from callboard.testing.tolerances import assert_close


class Case(NamedTuple):
    """What is pooled, ``[n, c, ...]`` whatever the layout."""

    x: tuple[int, ...]
    window: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    layout: Any

    @property
    def settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("window", "stride", "padding", "layout")}


@st.composite
def cases(draw: Any, *, symmetric: bool = False, dilated: bool = False) -> Case:
    window = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    dilation = tuple(draw(st.integers(1, 2)) if dilated else 1 for _ in window)
    stride = tuple(draw(st.integers(1, 3)) for _ in window)
    before = [draw(st.integers(0, n // 2)) for n in window]
    padding = tuple((b, b if symmetric else draw(st.integers(0, n // 2))) for b, n in zip(before, window, strict=True))
    spatial = tuple((n - 1) * d + 1 + draw(st.integers(0, 4)) for n, d in zip(window, dilation, strict=True))
    x = (draw(st.integers(1, 3)), draw(st.integers(1, 5)), *spatial)
    return Case(x, window, stride, padding, dilation, draw(layouts))


def unfolded(case: Case, x: Array, fill: float) -> tuple[Array, Array]:
    """``[n, c, *counts, elements of a window]``, and the places of the elements, -1 for the padding."""
    padded = np.pad(x, [(0, 0), (0, 0), *case.padding], constant_values=fill)
    plane = np.arange(int(np.prod(x.shape[2:]))).reshape(x.shape[2:])
    places = np.broadcast_to(np.pad(plane, case.padding, constant_values=-1), padded.shape)
    parts, counts = [], []
    for n, (before, after), window, stride, dilation in zip(
        x.shape[2:], case.padding, case.window, case.stride, case.dilation, strict=True
    ):
        counts.append((n + before + after - (window - 1) * dilation - 1) // stride + 1)
    for place in itertools.product(*map(range, case.window)):
        zipped = zip(place, case.dilation, case.stride, counts, strict=True)
        parts.append((..., *(slice(q * d, q * d + (m - 1) * s + 1, s) for q, d, s, m in zipped)))
    return np.stack([padded[p] for p in parts], -1), np.stack([places[p] for p in parts], -1)


@pytest.mark.parametrize("dtype", FLOATS)
@SHARED
@given(case=cases(symmetric=True), include=st.booleans(), seed=seeds)
def test_averages(session: Any, dtype: str, case: Case, include: bool, seed: int) -> None:
    torch = torch_of()
    x = drawn(seed, case.x, dtype)
    tx = torch.from_numpy(wide(x)).requires_grad_()
    pool = getattr(torch.nn.functional, f"avg_pool{len(case.window)}d")
    want = pool(tx, case.window, case.stride, tuple(b for b, _ in case.padding), count_include_pad=include)
    more: dict[str, Any] = {**case.settings, "count_include_pad": include}
    put = session.put(in_layout(x, case.layout))
    got = channels_first(session.get(session.submit(AvgPool(x=put, **more))), case.layout)
    terms = int(np.prod(case.window))
    assert_close(got, want.detach().numpy(), dtype, terms, kind="sum", scale=4.0)
    dy = drawn(seed + 1, tuple(want.shape), dtype)
    want.backward(torch.from_numpy(wide(dy)))
    op = AvgPoolBackward(dy=session.put(in_layout(dy, case.layout)), shape=put.shape, **more)
    got = channels_first(session.get(session.submit(op)), case.layout)
    assert_close(got, tx.grad.numpy(), dtype, terms, kind="sum", scale=4.0)


@SHARED
@given(case=cases(), include=st.booleans(), seed=seeds)
def test_averages_with_padding_on_one_side(session: Any, case: Case, include: bool, seed: int) -> None:
    x = drawn(seed, case.x, "f64")
    values, places = unfolded(case, x, 0.0)
    by = np.float64(values.shape[-1]) if include else (places >= 0).sum(-1)
    op = AvgPool(x=session.put(in_layout(x, case.layout)), **case.settings, count_include_pad=include)
    got = channels_first(session.get(session.submit(op)), case.layout)
    assert_close(got, values.sum(-1) / by, "f64", values.shape[-1], kind="sum", scale=4.0)


@pytest.mark.parametrize("dtype", FLOATS)
@SHARED
@given(case=cases(dilated=True), ties=st.booleans(), seed=seeds)
def test_largest(session: Any, dtype: str, case: Case, ties: bool, seed: int) -> None:
    """Also where many elements are equal, and the gradient where windows overlap."""
    x = drawn(seed, case.x, dtype)
    if ties:
        x = np.rint(x.astype(np.float32)).astype(x.dtype)
    values, places = unfolded(case, wide(x), -np.inf)
    at = values.argmax(-1)
    want, indices = values.max(-1), np.take_along_axis(places, at[..., None], -1)[..., 0]
    more = {**case.settings, "dilation": case.dilation}
    put = session.put(in_layout(x, case.layout))
    alone = session.get(session.submit(MaxPool(x=put, **more)))
    got = session.submit(MaxPoolIndices(x=put, **more))
    np.testing.assert_array_equal(channels_first(alone, case.layout).astype(np.float64), want)
    np.testing.assert_array_equal(session.get(got.out), alone)
    np.testing.assert_array_equal(channels_first(session.get(got.indices), case.layout), indices)
    dy = drawn(seed + 1, want.shape, dtype)
    gradient = np.zeros((*case.x[:2], int(np.prod(case.x[2:]))))
    for n, c in np.ndindex(*case.x[:2]):
        np.add.at(gradient[n, c], indices[n, c].ravel(), wide(dy[n, c]).ravel())
    op = MaxPoolBackward(dy=session.put(in_layout(dy, case.layout)), indices=got.indices, shape=put.shape, **more)
    found = channels_first(session.get(session.submit(op)), case.layout)
    assert_close(found, gradient.reshape(case.x), dtype, int(np.prod(case.window)), kind="sum", scale=4.0)


def test_nan_is_the_largest(session: Any) -> None:
    x = np.array([[[1, np.nan, 3, -np.inf, -np.inf, -np.inf]]], np.float32)
    got = session.submit(MaxPoolIndices(x=session.put(x), window=3))
    np.testing.assert_array_equal(session.get(got.out), [[[np.nan, -np.inf]]])
    np.testing.assert_array_equal(session.get(got.indices), [[[1, 3]]])


def test_views_and_nothing(session: Any) -> None:
    x = drawn(1, (2, 6, 8, 8), "f32")
    put = session.put(x)
    got = session.get(session.submit(MaxPool(x=put[:, ::2, ::-1], window=2)))
    want = x[:, ::2, ::-1].reshape(2, 3, 4, 2, 4, 2).max((3, 5))
    np.testing.assert_array_equal(got, want)
    assert session.get(session.submit(AvgPool(x=session.empty((0, 3, 4, 4)), window=2))).shape == (0, 3, 2, 2)


def test_bad_settings(session: Any) -> None:
    x = session.put(drawn(1, (1, 2, 5, 5), "f32"))
    for settings, text in (
        ({"window": (2, 2, 2)}, "window is .2, 2, 2.; it must be one number or 2"),
        ({"window": 7}, "a window covers 7 elements of spatial axis 0, which has 5"),
        ({"window": 2, "padding": 2}, "a window would contain padding only"),
        ({"window": 0}, "must be at least 1"),
        ({"window": 3, "padding": -1}, "slice the array"),
        ({"window": 2, "dilation": 7, "padding": 6}, "a window of spatial axis 0 contains padding only"),
    ):
        with pytest.raises(ShapeError, match=text):
            session.submit(MaxPool(x=x, **settings))
    with pytest.raises(ShapeError, match="1 to 3 spatial axes"):
        session.submit(AvgPool(x=x[0, 0], window=2))
    with pytest.raises(ShapeError, match=r"dy is f32.1, 2, 5, 5.; it must have shape .1, 2, 2, 2."):
        session.submit(AvgPoolBackward(dy=x, shape=(1, 2, 4, 4), window=2))
