"""Convolutions and their gradients against PyTorch in f64."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from dnn_lab import FLOATS, SHARED, Array, channels_first, drawn, in_layout, layouts, seeds, torch_of, wide
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.errors import ShapeError
from callboard.kernel.dnn import Conv, ConvBackwardData, ConvBackwardFilter, ConvTranspose
from callboard.testing.tolerances import assert_close

ACTIVATIONS = ("relu", "sigmoid", "tanh", "gelu", "gelu_tanh", "swish", "elu", "softplus")


class Case(NamedTuple):
    """A convolution, with arrays ``[n, c, ...]`` whatever the layout."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int
    layout: Any

    @property
    def settings(self) -> dict[str, Any]:
        names = ("stride", "padding", "dilation", "groups", "layout")
        return {name: getattr(self, name) for name in names}

    @property
    def terms(self) -> int:
        return int(np.prod(self.w[1:]))


@st.composite
def cases(draw: Any, symmetric: bool = False) -> Case:
    axes = draw(st.integers(1, 3))
    groups = draw(st.sampled_from([1, 1, 2, 4]))
    c, k = groups * draw(st.integers(1, 4)), groups * draw(st.integers(1, 4))
    window = tuple(draw(st.integers(1, 3)) for _ in range(axes))
    dilation = tuple(draw(st.sampled_from([1, 1, 2])) for _ in range(axes))
    stride = tuple(draw(st.integers(1, 2)) for _ in range(axes))
    before = [draw(st.integers(0, 2)) for _ in range(axes)]
    padding = tuple((b, b if symmetric else draw(st.integers(0, 2))) for b in before)
    spatial = tuple((n - 1) * d + 1 + draw(st.integers(0, 5)) for n, d in zip(window, dilation, strict=True))
    x = (draw(st.integers(1, 3)), c, *spatial)
    return Case(x, (k, c // groups, *window), stride, padding, dilation, groups, draw(layouts))


def reference(case: Case, x: Any, w: Any) -> Any:
    """PyTorch's convolution of f64 tensors."""
    torch = torch_of()
    padded = torch.nn.functional.pad(x, [n for pair in reversed(case.padding) for n in pair])
    convolve = getattr(torch.nn.functional, f"conv{len(case.stride)}d")
    return convolve(padded, w, None, case.stride, 0, case.dilation, case.groups)


def submitted(session: Any, op: Any) -> Array:
    """The result ``[n, c, ...]``; cuDNN has no engine for some shapes."""
    return channels_first(session.get(session.submit(op)), op.layout)


def magnitude(case: Case, x: Array, w: Array) -> float:
    """What sums of so many products reach."""
    return float(np.abs(wide(x)).max(initial=0) * np.abs(wide(w)).max(initial=0) * np.sqrt(case.terms))


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", FLOATS)
@SHARED
@given(case=cases(), seed=seeds)
def test_forward_and_gradients(session: Any, dtype: str, case: Case, seed: int) -> None:
    torch = torch_of()
    x, w = drawn(seed, case.x, dtype), drawn(seed + 1, case.w, dtype)
    tx, tw = (torch.from_numpy(wide(a)).requires_grad_() for a in (x, w))
    want = reference(case, tx, tw)
    dy = drawn(seed + 2, tuple(want.shape), dtype)
    want.backward(torch.from_numpy(wide(dy)))
    put = {name: session.put(in_layout(a, case.layout)) for name, a in (("x", x), ("w", w), ("dy", dy))}
    got = submitted(session, Conv(x=put["x"], w=put["w"], **case.settings))
    assert_close(got, want.detach().numpy(), dtype, case.terms, kind="sum", scale=magnitude(case, x, w))
    shape = put["x"].shape
    got = submitted(session, ConvBackwardData(dy=put["dy"], w=put["w"], shape=shape, **case.settings))
    terms = case.terms * case.w[0]
    assert_close(got, tx.grad.numpy(), dtype, terms, kind="sum", scale=magnitude(case, dy, w))
    shape = put["w"].shape
    got = submitted(session, ConvBackwardFilter(x=put["x"], dy=put["dy"], shape=shape, **case.settings))
    terms = int(np.prod(dy.shape) // dy.shape[1])
    scale = magnitude(case, x, dy) * np.sqrt(terms)
    assert_close(got, tw.grad.numpy(), dtype, terms, kind="sum", scale=scale)


@pytest.mark.parametrize("dtype", FLOATS)
@SHARED
@given(case=cases(), more=st.integers(0, 1), seed=seeds)
def test_transposed(session: Any, dtype: str, case: Case, more: int, seed: int) -> None:
    """Against PyTorch's, with what is cut off cut off afterwards."""
    torch = torch_of()
    given, filters = (case.x[0], case.w[0], *case.x[2:]), case.w
    output_padding = tuple(min(more, s - 1) for s in case.stride)
    padding = tuple((min(b, 1) * (n > 1), 0) for (b, _), n in zip(case.padding, case.w[2:], strict=True))
    x, w = drawn(seed, given, dtype), drawn(seed + 1, filters, dtype)
    convolve = getattr(torch.nn.functional, f"conv_transpose{len(case.stride)}d")
    whole = convolve(
        torch.from_numpy(wide(x)), torch.from_numpy(wide(w)), None, case.stride, 0, output_padding, case.groups,
        case.dilation,
    ).numpy()  # fmt: skip
    want = whole[(slice(None), slice(None), *(slice(b, None) for b, _ in padding))]
    op = ConvTranspose(
        x=session.put(in_layout(x, case.layout)), w=session.put(in_layout(w, case.layout)),
        output_padding=output_padding, **{**case.settings, "padding": padding},
    )  # fmt: skip
    terms = case.terms * case.w[0]
    assert_close(submitted(session, op), want, dtype, terms, kind="sum", scale=magnitude(case, x, w))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_epilogues(session: Any, dtype: str, activation: Any) -> None:
    torch = torch_of()
    functional = torch.nn.functional
    functions = {
        None: lambda t: t, "gelu_tanh": lambda t: functional.gelu(t, approximate="tanh"), "swish": functional.silu,
    }  # fmt: skip
    function = functions.get(activation) or getattr(functional, str(activation))
    for layout, residual in (("NHWC", True), ("NCHW", False)):
        case = Case((2, 16, 6, 5), (8, 16, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1, layout)
        x, w = drawn(5, case.x, dtype) / 4, drawn(6, case.w, dtype) / 4
        x, w = x.astype(drawn(0, (1,), dtype).dtype), w.astype(drawn(0, (1,), dtype).dtype)
        bias, r = drawn(7, (8,), dtype), drawn(8, (2, 8, 6, 5), dtype)
        sums = reference(case, torch.from_numpy(wide(x)), torch.from_numpy(wide(w)))
        sums = sums + torch.from_numpy(wide(bias)).reshape(-1, 1, 1) + (torch.from_numpy(wide(r)) if residual else 0)
        op = Conv(
            x=session.put(in_layout(x, layout)), w=session.put(in_layout(w, layout)), bias=session.put(bias),
            residual=session.put(in_layout(r, layout)) if residual else None, activation=activation, **case.settings,
        )  # fmt: skip
        got = submitted(session, op)
        want, between = function(sums).numpy(), np.abs(sums.numpy()).max()
        assert_close(got, want, dtype, case.terms, kind="sum", scale=8.0, between=between)


@pytest.mark.parametrize("result", ["i32", "f32", "i8"])
def test_integers(session: Any, result: Any) -> None:
    case = Case((2, 16, 5, 6), (32, 16, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1, "NHWC")
    rng = np.random.default_rng(3)
    x, w = rng.integers(-127, 128, case.x).astype(np.int8), rng.integers(-127, 128, case.w).astype(np.int8)
    torch = torch_of()
    sums = reference(case, torch.from_numpy(wide(x)), torch.from_numpy(wide(w))).numpy()
    more: dict[str, Any] = {}
    if result != "i32":
        bias = drawn(4, (32,), "f32")
        more = {"scale": 2.0**-14, "out_dtype": result, "bias": session.put(bias), "activation": "relu"}
        sums = np.maximum(sums.astype(np.float32) * np.float32(2.0**-14) + bias.reshape(-1, 1, 1), 0)
    got = submitted(
        session, Conv(x=session.put(in_layout(x, "NHWC")), w=session.put(in_layout(w, "NHWC")), **case.settings, **more)
    )
    assert got.dtype == {"i32": np.int32, "f32": np.float32, "i8": np.int8}[result]
    if result == "f32":
        assert_close(got, sums.astype(np.float64), "f32", 4)
    else:
        np.testing.assert_array_equal(got, np.rint(np.clip(sums, -128, 127)) if result == "i8" else sums)


@pytest.mark.slow
def test_a_large_convolution(session: Any) -> None:
    """Where the CPU takes PyTorch, if it is there: the same numbers as by NumPy, asymmetric padding included."""
    torch = torch_of()
    case = Case((2, 64, 60, 60), (128, 64, 3, 3), (1, 1), ((1, 0), (2, 1)), (1, 1), 1, "NCHW")
    x, w = drawn(1, case.x, "f32"), drawn(2, case.w, "f32")
    tx, tw = (torch.from_numpy(wide(a)).requires_grad_() for a in (x, w))
    want = reference(case, tx, tw)
    dy = drawn(3, tuple(want.shape), "f32")
    want.backward(torch.from_numpy(wide(dy)))
    px, pw, pdy = map(session.put, (x, w, dy))
    scale = magnitude(case, x, w)
    got = submitted(session, Conv(x=px, w=pw, **case.settings))
    assert_close(got, want.detach().numpy(), "f32", case.terms, scale=scale)
    got = submitted(session, ConvBackwardData(dy=pdy, w=pw, shape=px.shape, **case.settings))
    assert_close(got, tx.grad.numpy(), "f32", 2 * case.terms, scale=scale)
    got = submitted(session, ConvBackwardFilter(x=px, dy=pdy, shape=pw.shape, **case.settings))
    assert_close(got, tw.grad.numpy(), "f32", 7200, scale=scale * np.sqrt(7200 / case.terms))


def test_gradients_of_no_images(session: Any) -> None:
    """The last batch may be empty: the filter's gradient is 0, also in a given array with gaps."""
    x, dy = session.empty((0, 4, 6, 6), "f32"), session.empty((0, 8, 4, 4), "f32")
    got = session.get(session.submit(ConvBackwardFilter(x=x, dy=dy, shape=(8, 4, 3, 3))))
    np.testing.assert_array_equal(got, np.zeros((8, 4, 3, 3)))
    out = session.put(np.ones((8, 8, 3, 3), np.float32))
    session.submit(ConvBackwardFilter(x=x, dy=dy, shape=(8, 4, 3, 3), out=out[:, ::2]))
    np.testing.assert_array_equal(session.get(out)[:, :2, 0, 0], np.tile([0, 1], (8, 1)))


def test_equal_bits_where_asked(session: Any) -> None:
    x, w = session.put(drawn(1, (4, 32, 20, 20), "f32")), session.put(drawn(2, (32, 32, 3, 3), "f32"))
    dy = session.put(drawn(3, (4, 32, 20, 20), "f32"))
    op = ConvBackwardFilter(x=x, dy=dy, shape=w.shape, padding=1, deterministic=True)
    first = session.get(session.submit(op))
    for _ in range(3):
        np.testing.assert_array_equal(session.get(session.submit(op)), first)


def test_views_and_given_results(session: Any) -> None:
    torch = torch_of()
    case = Case((2, 8, 6, 6), (4, 8, 3, 3), (1, 1), ((0, 0), (0, 0)), (1, 1), 1, "NCHW")
    x, w = drawn(1, (2, 16, 6, 6), "f32"), drawn(2, case.w, "f32")
    out = session.empty((2, 4, 4, 4), "f32")
    got = session.submit(Conv(x=session.put(x)[:, 8:], w=session.put(w), out=out))
    want = reference(case, torch.from_numpy(wide(x[:, 8:])), torch.from_numpy(wide(w))).numpy()
    assert_close(session.get(got), want, "f32", case.terms, scale=magnitude(case, x, w))


def test_bad_operands(session: Any) -> None:
    x, w = session.put(drawn(1, (1, 4, 5, 5), "f32")), session.put(drawn(1, (6, 4, 3, 3), "f32"))
    for more, text in (
        ({"groups": 2}, "the filter is for 4 channels a group, and the image has 4 in groups = 2"),
        ({"groups": 3}, "groups is 3; it must divide c = 4 and k = 6"),
        ({"stride": 0}, "stride is 0; it must be at least 1"),
        ({"dilation": 3}, "the filter covers 7 elements of spatial axis 0, which has 5"),
        ({"bias": x}, "bias is f32.1, 4, 5, 5.; it must have shape .6,."),
        ({"scale": 2.0}, "scale and out_dtype are for i8"),
    ):
        with pytest.raises(ShapeError, match=text):
            session.submit(Conv(x=x, w=w, **more))
    with pytest.raises(ShapeError, match=r"dy is f32.1, 4, 5, 5.; it must have shape .1, 6, 3, 3."):
        session.submit(ConvBackwardFilter(x=x, dy=x, shape=(6, 4, 3, 3)))


@pytest.mark.parametrize("dtype", ["bf16", "f32", "f64"])
@pytest.mark.parametrize("follows", [{}, {"activation": "relu"}], ids=["alone", "followed"])
def test_calls_that_come_again_give_equal_bits(session: Any, dtype: str, follows: dict[str, Any]) -> None:
    """A GPU records them; what is given is looked at each time."""
    settings: dict[str, Any] = {"padding": 1, "layout": "NHWC", "deterministic": True}
    x, w, dy = (drawn(i, s, dtype) for i, s in enumerate([(2, 6, 5, 8), (16, 3, 3, 8), (2, 6, 5, 16)]))
    given = {"x": session.put(x), "w": session.put(w), "dy": session.put(dy)}
    other = {name: session.put(np.zeros_like(array)) for name, array in (("x", x), ("w", w), ("dy", dy))}
    outs = {name: session.put(np.zeros_like(array)) for name, array in (("x", x), ("w", w), ("dy", dy))}
    calls = (
        (Conv, {"x": given["x"]} | settings | follows, "w", "dy"),
        (ConvBackwardData, {"w": given["w"], "shape": x.shape} | settings, "dy", "x"),
        (ConvBackwardFilter, {"x": given["x"], "shape": w.shape} | settings, "dy", "w"),
    )
    for message, operands, changes, made in calls:
        out = outs[made]
        first = None
        for _ in range(7):
            op: Any = message(**operands, **{changes: other[changes]}, out=out)
            session.submit(op)
            assert not session.get(out).any()
            session.submit(message(**operands, **{changes: given[changes]}, out=out))
            found = session.get(out)
            first = found if first is None else first
            np.testing.assert_array_equal(found, first)
            assert found.any()
