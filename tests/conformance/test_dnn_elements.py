"""Activations, dropout, LRN and rope, both ways: against PyTorch in f64 or NumPy; strides and settings are drawn."""

from typing import Any, get_args

import numpy as np
import pytest
from dnn_lab import FLOATS, SHARED, drawn, seeds, torch_of, wide
from dnn_views import by_differences, differentiated, placed, views
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.kernel import dnn, rng
from callboard.kernel.dnn.activations import ActivationKind
from callboard.testing.tolerances import assert_close

Array = np.ndarray[Any, Any]
KINDS = get_args(ActivationKind)
dtypes = st.sampled_from(FLOATS)


def reference(kind: str) -> Any:
    torch = torch_of()
    functional = torch.nn.functional
    return {
        "relu": functional.relu,
        "leaky_relu": functional.leaky_relu,
        "elu": functional.elu,
        "gelu": functional.gelu,
        "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "swish": functional.silu,
        "softplus": lambda x: functional.softplus(x, threshold=100),
        "clipped_relu": functional.relu6,
        "identity": lambda x: x * 1,
    }[kind]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_activations(session: Any, kind: Any, dtype: str) -> None:
    x = np.concatenate([drawn(1, (91,), dtype) * DTYPES[dtype].np.type(4), np.zeros(1, DTYPES[dtype].np)])
    dy = drawn(2, x.shape, dtype)
    want = differentiated(reference(kind), x, dy=dy)
    given = session.put(x)
    factor = 64 if kind in ("gelu", "gelu_tanh") else 8  # of functions that a device computes to a few units
    for got, wanted in (
        (session.submit(dnn.Activation(x=given, kind=kind)), want[0]),
        (session.submit(dnn.ActivationBackward(dy=session.put(dy), x=given, kind=kind)), want[1]),
    ):
        assert_close(session.get(got), wanted, dtype, terms=factor, kind="sum", scale=4)


@SHARED
@given(seed=seeds, kind=st.sampled_from(["elu", "swish", "softplus", "leaky_relu"]), a=st.floats(0.25, 3), view=views)
def test_parameters_of_activations(session: Any, seed: int, kind: Any, a: float, view: str) -> None:
    x, dy = drawn(seed, (5, 6), "f64"), drawn(seed + 1, (5, 6), "f64")
    x += np.copysign(1e-5, x)  # a difference across 0 has no side of a bend

    def of(value: Array) -> Array:
        found: Array = session.get(session.submit(dnn.Activation(x=session.put(value), kind=kind, parameter=a)))
        return found

    torch = torch_of()
    with torch.no_grad():
        t = torch.tensor(x)
        want = {
            "elu": lambda: torch.nn.functional.elu(t, a), "swish": lambda: t * torch.sigmoid(a * t),
            "softplus": lambda: torch.nn.functional.softplus(t, a, 1e9),
            "leaky_relu": lambda: torch.nn.functional.leaky_relu(t, a),
        }[kind]()  # fmt: skip
    np.testing.assert_allclose(of(x), want.numpy(), rtol=1e-12, atol=1e-14)
    op = dnn.ActivationBackward(dy=placed(session, dy, view), x=placed(session, x, view), kind=kind, parameter=a)
    np.testing.assert_allclose(session.get(session.submit(op)), by_differences(of, x, dy), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_activations_of_large_and_broken_numbers(session: Any, kind: Any) -> None:
    """Halves at their limits overflow nowhere on the way; far from 0 the gradient is that of the line."""
    x = np.array([65504, -65504, np.nan, 0], "f2")
    given = session.put(x)
    want = differentiated(reference(kind), x)
    got = wide(session.get(session.submit(dnn.Activation(x=given, kind=kind))))
    np.testing.assert_allclose(got, want[0], rtol=2e-3)
    back = session.submit(dnn.ActivationBackward(dy=session.put(np.ones(4, "f2")), x=given, kind=kind))
    np.testing.assert_allclose(wide(session.get(back))[[0, 1, 3]], want[1][[0, 1, 3]], rtol=2e-3)


def test_an_activation_without_a_number_takes_none(session: Any) -> None:
    x = session.put(np.ones(3, "f4"))
    with pytest.raises(ShapeError, match=r"parameter is 2\.0, but relu has no parameter"):
        session.submit(dnn.Activation(x=x, kind="relu", parameter=2))
    with pytest.raises(ShapeError, match="that of softplus must be > 0"):
        session.submit(dnn.Activation(x=x, kind="softplus", parameter=0.0))


@SHARED
@given(
    seed=seeds, shape=st.sampled_from([(7, 9), (4096,), (), (3, 0)]), dtype=dtypes, view=views,
    offset=st.integers(0, 40), probability=st.sampled_from([0.0, 0.25, 0.9, 1.0]), on_device=st.booleans(),
)  # fmt: skip
def test_dropout(
    session: Any, seed: int, shape: tuple[int, ...], dtype: str, view: str, offset: int, probability: float,
    on_device: bool,
) -> None:  # fmt: skip
    """What is kept follows from the words of Philox at the places of the elements, and is the same in the gradient."""
    x = drawn(seed, shape, dtype)
    words = session.empty(max(x.size, 1), "u32")
    session.submit(rng.RngFillBits(out=words, seed=seed, position=offset))
    kept = session.get(words)[: x.size].reshape(shape).astype("u8") >= round(probability * 2**32)
    name: dict[str, Any] = {"probability": probability, "seed": seed, "offset": offset}
    if on_device:
        name |= {"seed": session.put(np.array(seed, "i8")), "offset": session.put(np.array(offset, "u8"))}
    got = session.submit(dnn.Dropout(x=placed(session, x, view), **name))
    want = np.where(kept, wide(x) * (1 / (1 - probability) if probability < 1 else 0), 0)
    assert_close(session.get(got), want, dtype)
    back = session.submit(dnn.DropoutBackward(dy=session.put(x), **name))
    np.testing.assert_array_equal(session.get(back), session.get(got))
    np.testing.assert_array_equal(session.get(session.submit(dnn.DropoutMask(shape=shape, **name))), kept)


def test_dropout_of_what_is_no_probability(session: Any) -> None:
    with pytest.raises(ShapeError, match=r"probability is 1\.5"):
        dnn.Dropout(x=session.put(np.ones(3, "f4")), probability=1.5)
    with pytest.raises(ShapeError, match=r"seed is f32\[\]"):
        session.submit(dnn.Dropout(x=session.put(np.ones(3, "f4")), seed=session.put(np.array(1, "f4"))))


@SHARED
@given(
    seed=seeds, shape=st.sampled_from([(3, 7, 5), (2, 4), (2, 9, 3, 2)]), dtype=dtypes, view=views,
    size=st.sampled_from([1, 2, 5, 20]), last=st.booleans(),
)  # fmt: skip
def test_lrn(session: Any, seed: int, shape: tuple[int, ...], dtype: str, view: str, size: int, last: bool) -> None:
    torch = torch_of()
    x, dy = drawn(seed, shape, dtype), drawn(seed + 1, shape, dtype)

    def channels_in_images(a: Any) -> Any:
        images = a.reshape(*a.shape, *[1] * max(0, 3 - a.ndim))
        return torch.nn.functional.local_response_norm(images, size, 0.3, 0.6, 1.5).reshape(a.shape)

    want = differentiated(channels_in_images, x, dy=dy)
    ordered = [np.ascontiguousarray(np.moveaxis(a, 1, -1)) if last else a for a in (x, dy)]
    given, grad = (placed(session, a, view) for a in ordered)
    settings: dict[str, Any] = {"size": size, "alpha": 0.3, "beta": 0.6, "k": 1.5, "axis": -1 if last else 1}
    for op, wanted in (
        (dnn.Lrn(x=given, **settings), want[0]),
        (dnn.LrnBackward(dy=grad, x=given, **settings), want[1]),
    ):
        got = session.get(session.submit(op))
        got = np.moveaxis(got, -1, 1) if last else got
        assert_close(got, wanted, dtype, terms=64, kind="sum", scale=np.abs(wide(x)).max() * np.abs(wide(dy)).max() + 1)


def turned(x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    """The definition, of tables that broadcast."""
    pairs, y = cos.shape[-1], x.copy()
    first = slice(0, 2 * pairs, 2) if interleaved else slice(0, pairs)
    second = slice(1, 2 * pairs, 2) if interleaved else slice(pairs, 2 * pairs)
    a, b = x[..., first], x[..., second]
    y[..., first], y[..., second] = a * cos - b * sin, a * sin + b * cos
    return y


@SHARED
@given(
    seed=seeds, dtype=dtypes, view=views, interleaved=st.booleans(), heads_last=st.booleans(), back=st.booleans(),
    width=st.sampled_from([(16, 8), (7, 2), (12, 4), (4, 0)]), placing=st.sampled_from([None, "line", "rows"]),
)  # fmt: skip
def test_rope(
    session: Any, seed: int, dtype: str, view: str, interleaved: bool, heads_last: bool, back: bool,
    width: tuple[int, int], placing: str | None,
) -> None:  # fmt: skip
    full, pairs = width
    shape = (2, 5, 3, full) if heads_last else (2, 3, 5, full)
    axis = -3 if heads_last else -2
    x, angles = drawn(seed, shape, dtype), drawn(seed + 1, (9, pairs), "f64")
    own = "f8" if dtype == "f64" else "f4"
    cos, sin = np.cos(angles).astype(own), np.sin(angles).astype(own)
    positions = np.random.default_rng(seed).integers(0, 9, (2, 5) if placing == "rows" else (5,))
    at = np.broadcast_to(positions if placing else np.arange(5), (2, 5))
    c, s = (wide(t)[at][:, :, None] if heads_last else wide(t)[at][:, None] for t in (cos, sin))
    want = turned(wide(x), c, -s if back else s, interleaved)
    given, tables = placed(session, x, view), (session.put(cos), session.put(sin))
    settings: dict[str, Any] = {"axis": axis, "interleaved": interleaved}
    settings["positions"] = session.put(positions) if placing else None
    op = (
        dnn.RopeBackward(dy=given, cos=tables[0], sin=tables[1], **settings)
        if back
        else dnn.Rope(x=given, cos=tables[0], sin=tables[1], **settings)
    )
    assert_close(session.get(session.submit(op)), want, dtype, scale=4, terms=4, kind="sum")


def test_rope_at_positions_without_a_row(session: Any) -> None:
    table, x = session.put(np.ones((4, 2), "f4")), session.put(np.ones((1, 3, 4), "f4"))
    with pytest.raises(ShapeError, match=r"positions holds 4; there are rows 0 to 3 \(1 of 3"):
        session.submit(dnn.Rope(x=x, cos=table, sin=table, positions=session.put(np.array([0, 4, 1]))))
    with pytest.raises(ShapeError, match="with rows for 4 positions; x has 5"):
        session.submit(dnn.Rope(x=session.put(np.ones((1, 5, 4), "f4")), cos=table, sin=table))
