"""Embedding, top-k and their gradients, against PyTorch in f64 and NumPy: shapes, indices and strides are drawn."""

from typing import Any

import numpy as np
import pytest
from dnn_lab import FLOATS, SHARED, drawn, seeds, torch_of, wide
from dnn_views import differentiated, placed, views
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.kernel import dnn
from callboard.testing.tolerances import assert_close

dtypes = st.sampled_from(FLOATS)


@SHARED
@given(
    seed=seeds, width=st.sampled_from([16, 3, 1]), shape=st.sampled_from([(3, 5), (40,), (), (0,), (3000,)]),
    dtype=dtypes, view=views, index=st.sampled_from(["i4", "i8"]), padded=st.booleans(), counted=st.booleans(),
)  # fmt: skip
def test_embedding(
    session: Any, seed: int, width: int, shape: tuple[int, ...], dtype: str, view: str, index: str, padded: bool,
    counted: bool,
) -> None:  # fmt: skip
    """Rows that are looked up thousands of times, once, and never."""
    torch = torch_of()
    rows = 9
    table, dy = drawn(seed, (rows, width), dtype), drawn(seed + 1, (*shape, width), dtype)
    indices = np.random.default_rng(seed).geometric(0.5, shape).clip(1, rows - 1).astype(index)
    at = session.put(indices)
    got = session.submit(dnn.Embedding(table=placed(session, table, view), indices=at))
    np.testing.assert_array_equal(wide(session.get(got)), wide(table)[indices.astype("i8")])
    where = torch.tensor(indices.astype("i8"))
    settings: dict[str, Any] = {"padding_idx": 1 if padded else None, "scale_grad_by_freq": counted}
    want = differentiated(lambda t: torch.nn.functional.embedding(where, t, **settings), table, dy=dy)[1]
    back = dnn.EmbeddingBackward(
        dy=placed(session, dy, view), indices=at, rows=rows, padding=1 if padded else None, by_frequency=counted
    )
    found = session.get(session.submit(back))
    assert_close(found, want, dtype, terms=max(indices.size, 2), kind="sum", scale=np.abs(wide(dy)).max(initial=1) * 64)
    np.testing.assert_array_equal(session.get(session.submit(back)), found)  # equal calls, equal bits


def test_rows_that_are_not_there(session: Any) -> None:
    table, wrong = session.put(np.ones((4, 2), "f4")), session.put(np.array([0, 4, -1]))
    with pytest.raises(ShapeError, match=r"indices holds (4|-1); there are rows 0 to 3 \(2 of 3"):
        session.submit(dnn.Embedding(table=table, indices=wrong))
    with pytest.raises(ShapeError, match=r"indices holds (4|-1); there are rows 0 to 3 \(2 of 3"):
        session.submit(dnn.EmbeddingBackward(dy=session.put(np.ones((3, 2), "f4")), indices=wrong, rows=4))
    with pytest.raises(ShapeError, match="padding is 4; it must be one of the 4 rows"):
        session.submit(dnn.EmbeddingBackward(dy=table, indices=session.put(np.zeros(4, "i4")), rows=4, padding=4))


@SHARED
@given(
    seed=seeds, shape=st.sampled_from([(3, 100), (20, 3), (1, 700), (2, 3, 8), (4, 1)]), dtype=dtypes, view=views,
    axis=st.integers(0, 2), share=st.floats(0, 1), largest=st.booleans(), ties=st.booleans(),
)  # fmt: skip
def test_top_k(
    session: Any, seed: int, shape: tuple[int, ...], dtype: str, view: str, axis: int, share: float, largest: bool,
    ties: bool,
) -> None:  # fmt: skip
    axis %= len(shape)
    k = round(share * shape[axis])
    x = drawn(seed, shape, dtype)
    x = np.round(x) if ties else x
    x.flat[0], x.flat[x.size // 2] = np.nan, -0.0
    ranks = np.where(np.isnan(wide(x)), np.inf, wide(x)) * (-1 if largest else 1)
    order = np.argsort(ranks, axis=axis, kind="stable").take(range(k), axis)
    found = session.submit(dnn.TopK(x=placed(session, x, view), k=k, axis=axis, largest=largest))
    np.testing.assert_array_equal(session.get(found.indices), order)
    np.testing.assert_array_equal(wide(session.get(found.values)), wide(np.take_along_axis(x, order, axis)))
    dvalues = drawn(seed + 1, order.shape, dtype)
    back = session.submit(
        dnn.TopKBackward(dvalues=session.put(dvalues), indices=found.indices, extent=shape[axis], axis=axis)
    )
    want = np.zeros(shape)
    np.put_along_axis(want, order, wide(dvalues), axis)
    np.testing.assert_array_equal(wide(session.get(back)), want)


def test_top_k_of_more_than_a_block_sorts(session: Any) -> None:
    x = np.random.default_rng(2).permutation(9000).astype(DTYPES["f32"].np)
    found = session.submit(dnn.TopK(x=session.put(x), k=3000))
    np.testing.assert_array_equal(session.get(found.indices), np.argsort(-x)[:3000])
    with pytest.raises(ShapeError, match="k is 10; axis 0 of x"):
        session.submit(dnn.TopK(x=session.put(x[:9]), k=10))
