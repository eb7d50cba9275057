"""Softmax, cross-entropy and squared errors, both ways, against PyTorch in f64: shapes, axes and strides are drawn."""

from typing import Any

import numpy as np
import pytest
from dnn_lab import FLOATS, SHARED, drawn, seeds, torch_of, wide
from dnn_views import by_differences, differentiated, placed, views
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.kernel import dnn
from callboard.testing.tolerances import assert_close

Array = np.ndarray[Any, Any]

dtypes = st.sampled_from(FLOATS)
reductions = st.sampled_from(["mean", "sum", "none"])


def near(got: Any, want: Any, dtype: str, terms: int, least: float = 1.0) -> None:
    scale = np.abs(np.nan_to_num(np.asarray(want), posinf=0, neginf=0)).max(initial=least)
    assert_close(got, want, dtype, max(terms, 2), kind="sum", scale=scale)


@SHARED
@given(
    seed=seeds, shape=st.sampled_from([(5, 24), (3, 2, 40), (2, 6, 5), (1, 1), (2, 3000), (3, 1000), (0, 3)]),
    dtype=dtypes, view=views, axis=st.integers(0, 2), log=st.booleans(),
)  # fmt: skip
def test_softmax(session: Any, seed: int, shape: tuple[int, ...], dtype: str, view: str, axis: int, log: bool) -> None:
    torch = torch_of()
    axis %= len(shape)
    if shape[axis] == 0:
        return
    x, dy = drawn(seed, shape, dtype) * DTYPES[dtype].np.type(4), drawn(seed + 1, shape, dtype)
    function = torch.log_softmax if log else torch.softmax
    forward, backward = (dnn.LogSoftmax, dnn.LogSoftmaxBackward) if log else (dnn.Softmax, dnn.SoftmaxBackward)
    want, _ = differentiated(lambda a: function(a, axis), x, dy=dy)
    y = session.submit(forward(x=placed(session, x, view), axis=axis))
    near(session.get(y), want, dtype, shape[axis], 8)
    kept = session.get(y)  # the gradient by the result as it was rounded
    own = wide(kept)
    total = wide(dy).sum(axis, keepdims=True) if log else (wide(dy) * own).sum(axis, keepdims=True)
    want = wide(dy) - np.exp(own) * total if log else own * (wide(dy) - total)
    got = session.submit(backward(dy=placed(session, dy, view), y=placed(session, kept, view), axis=axis))
    near(session.get(got), want, dtype, shape[axis], np.abs(total).max(initial=4) * 4)


@pytest.mark.parametrize("length", [7, 20_000])
@pytest.mark.parametrize("log", [False, True])
def test_softmax_of_infinite_and_broken_lines(session: Any, length: int, log: bool) -> None:
    x = np.zeros((5, length), "f2")
    x[0, : length // 2], x[1], x[2, 3], x[3, 3], x[4] = -np.inf, -np.inf, np.inf, np.nan, 60000
    torch = torch_of()
    want = (torch.log_softmax if log else torch.softmax)(torch.tensor(wide(x)), -1).numpy()
    for ref in (session.put(x), session.put(np.ascontiguousarray(x.T)).T):
        got = session.get(session.submit((dnn.LogSoftmax if log else dnn.Softmax)(x=ref)))
        np.testing.assert_allclose(wide(got), want, rtol=2e-3, atol=1e-6)


@SHARED
@given(
    seed=seeds, shape=st.sampled_from([(6, 8), (2, 5, 3), (3, 300), (1, 2)]), dtype=dtypes, view=views,
    soft=st.booleans(), reduction=reductions, smoothing=st.sampled_from([0.0, 0.2]), weighted=st.booleans(),
    index=st.sampled_from(["i4", "i8"]),
)  # fmt: skip
def test_cross_entropy(
    session: Any, seed: int, shape: tuple[int, ...], dtype: str, view: str, soft: bool, reduction: Any,
    smoothing: float, weighted: bool, index: str,
) -> None:  # fmt: skip
    torch = torch_of()
    rng = np.random.default_rng(seed)
    items = (shape[0], *shape[2:])
    x = drawn(seed, shape, dtype) * DTYPES[dtype].np.type(3)
    weight = rng.random(shape[1]).astype(DTYPES[dtype].np) if weighted else None
    target: Array
    if soft:
        target = rng.random(shape).astype(DTYPES[dtype].np)
        goal = torch.tensor(wide(target))
    else:
        target = rng.integers(0, shape[1], items).astype(index)
        target.flat[0] = 1  # counts
        if target.size > 1:
            target.flat[-1] = -100
        goal = torch.tensor(target.astype("i8"))
    dloss = drawn(seed + 1, items if reduction == "none" else (), dtype)
    weights = None if weight is None else torch.tensor(wide(weight))
    want = differentiated(
        lambda a: torch.nn.functional.cross_entropy(a, goal, weights, reduction=reduction, label_smoothing=smoothing),
        x, dy=dloss,
    )  # fmt: skip
    settings: dict[str, Any] = {"reduction": reduction, "label_smoothing": smoothing}
    settings["weight"] = None if weight is None else session.put(weight)
    given, at = placed(session, x, view), placed(session, target, view if soft else "whole")
    found = session.submit(dnn.CrossEntropy(x=given, target=at, **settings))
    terms = shape[1] * x.size // shape[1]
    near(session.get(found.loss), want[0], dtype, terms, 16 * shape[1] if soft else 16)
    got = session.submit(
        dnn.CrossEntropyBackward(dloss=session.put(dloss), x=given, target=at, log_sum=found.log_sum, **settings)
    )
    # Two numbers are subtracted that may be as large as the item's weights, whatever is left of them.
    own = np.ones(shape[1]) if weight is None else wide(weight)
    among = 1.0 if reduction != "mean" else np.prod(items) if soft else own[target[target >= 0]].sum()
    mass = own.max() * (wide(target).sum(1).max() if soft else 1) * np.abs(wide(dloss)).max() / among
    near(session.get(got), want[1], dtype, shape[1], max(np.abs(want[1]).max(), mass) * 4)


def test_cross_entropy_that_counts_nothing_or_too_much(session: Any) -> None:
    x = session.put(drawn(1, (4, 5), "f32"))
    ignored = session.put(np.full(4, -100))
    found = session.submit(dnn.CrossEntropy(x=x, target=ignored))
    assert np.isnan(session.get(found.loss))
    each = session.submit(dnn.CrossEntropy(x=x, target=ignored, reduction="none"))
    np.testing.assert_array_equal(session.get(each.loss), 0)
    ones = session.put(np.ones(4, "f4"))
    back = session.submit(
        dnn.CrossEntropyBackward(dloss=ones, x=x, target=ignored, log_sum=found.log_sum, reduction="none")
    )
    np.testing.assert_array_equal(session.get(back), 0)
    wrong = session.put(np.array([0, 5, 1, -1]))
    with pytest.raises(ShapeError, match=r"target holds (5|-1); there are classes 0 to 4 \(2 of 4"):
        session.submit(dnn.CrossEntropy(x=x, target=wrong))
    with pytest.raises(ShapeError, match=r"classes must have the shape of the items, \(4,\)"):
        session.submit(dnn.CrossEntropy(x=x, target=session.put(np.zeros(3, "i8"))))


def test_cross_entropy_against_finite_differences(session: Any) -> None:
    x, target = drawn(3, (3, 4), "f64"), np.array([1, -100, 3])
    weight = session.put(np.array([1.0, 2, 3, 0.5]))
    settings: dict[str, Any] = {"target": session.put(target), "weight": weight, "label_smoothing": 0.3}

    def loss(a: Array) -> Array:
        found: Array = session.get(session.submit(dnn.CrossEntropy(x=session.put(a), **settings)).loss)
        return found

    kept = session.submit(dnn.CrossEntropy(x=session.put(x), **settings))
    got = session.submit(
        dnn.CrossEntropyBackward(dloss=session.put(np.array(1.0)), x=session.put(x), log_sum=kept.log_sum, **settings)
    )
    np.testing.assert_allclose(session.get(got), by_differences(loss, x, np.ones(())), rtol=1e-5, atol=1e-7)


@SHARED
@given(seed=seeds, shape=st.sampled_from([(40, 9), (5,), (), (2, 0)]), dtype=dtypes, view=views, reduction=reductions)
def test_squared_errors(session: Any, seed: int, shape: tuple[int, ...], dtype: str, view: str, reduction: Any) -> None:
    torch = torch_of()
    x, target = drawn(seed, shape, dtype), drawn(seed + 1, shape, dtype)
    dloss = drawn(seed + 2, shape if reduction == "none" else (), dtype)
    goal = torch.tensor(wide(target))
    want = differentiated(lambda a: torch.nn.functional.mse_loss(a, goal, reduction=reduction), x, dy=dloss)
    given, at = placed(session, x, view), session.put(target)
    loss = session.submit(dnn.Mse(x=given, target=at, reduction=reduction))
    near(session.get(loss), want[0], dtype, x.size, 8)
    got = session.submit(dnn.MseBackward(dloss=session.put(dloss), x=given, target=at, reduction=reduction))
    assert_close(session.get(got), want[1], dtype, kind="elementwise", scale=8)


def test_softmax_of_all_of_an_image(session: Any) -> None:
    """What other libraries call the mode "instance"."""
    x = drawn(3, (2, 3, 4, 5), "f32")
    flat = session.submit(dnn.Softmax(x=session.put(x).reshape(2, 60)))
    got = session.get(flat.reshape(2, 3, 4, 5)).astype(np.float64)
    exact = np.exp(x.astype(np.float64))
    assert_close(got, exact / exact.sum(axis=(1, 2, 3), keepdims=True), "f32", 60)
