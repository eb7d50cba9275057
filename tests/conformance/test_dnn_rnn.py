"""Recurrent networks and their gradients: against PyTorch in f64, and against finite differences."""

from typing import Any

import hypothesis
import numpy as np
import pytest
from dnn_lab import FLOATS, SHARED, Array, drawn, seeds, torch_of, wide
from hypothesis import given
from hypothesis import strategies as st

from callboard.backends.cpu.rng.philox import philox_words
from callboard.core.dtype import DTYPES
from callboard.core.errors import NumericalError, ShapeError, UnsupportedOp
from callboard.core.op import Op
from callboard.kernel.dnn.rnn import (
    RnnBackward,
    RnnForward,
    RnnForwardTraining,
    RnnParams,
)
from callboard.kernel.memory import Copy
from callboard.testing.tolerances import assert_close

MODES = ("rnn_relu", "rnn_tanh", "lstm", "gru")
STEPS, BATCH, INPUT, HIDDEN = 5, 4, 8, 16
LENGTHS = (2, 5, 1, 4)


def submit(session: Any, op: Op[Any, Any]) -> Any:
    """Execute; on CUDA cuDNN may have no such network, which it says when the plan is made."""
    try:
        return session.submit(op)
    except UnsupportedOp:
        if session.backend.name != "cuda":
            raise
        hypothesis.reject()


def module(params: RnnParams) -> Any:
    """PyTorch's network with the same weights as ``initial_weights``, in f64."""
    torch = torch_of()
    cls = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(params.mode, torch.nn.RNN)
    options: dict[str, Any] = {"nonlinearity": params.mode[4:]} if params.mode.startswith("rnn") else {}
    if params.proj_size:
        options["proj_size"] = params.proj_size
    return cls(
        params.input_size,
        params.hidden_size,
        params.num_layers,
        bias=params.bias,
        bidirectional=params.directions == 2,
        **options,
    ).double()


def laid_out(array: Array, layout: str, lengths: Any, fill: float = np.nan) -> Array:
    """``[steps, batch, n]`` in a layout; ``fill`` behind the end of a sequence."""
    array = array.copy()
    for at, length in enumerate(lengths or ()):
        array[length:, at] = fill
    if layout == "packed":
        return np.concatenate([array[t, : sum(n > t for n in lengths)] for t in range(len(array))])
    return np.ascontiguousarray(array.swapaxes(0, 1)) if layout == "batch_major" else array


def near(got: Any, want: Any, dtype: str, terms: int) -> None:
    """States are rounded at every step, and what is rounded is summed again."""
    scale = max(1.0, float(np.abs(want).max(initial=0)))
    assert_close(got, want, dtype, terms, kind="sum", scale=scale, between=scale)


def coarse_weights(params: RnnParams, seed: int, dtype: str) -> Array:
    """Weights by which states of ReLU networks have few bits, from inputs and first states of -1, 0 and 1.

    With others, rounding to 16 bits decides on which side of zero a few units are, and so whether a gradient passes:
    two right answers are then far apart.
    """
    rng = np.random.default_rng(seed)
    found = {}
    for name, array in params.unpack(params.initial_weights(0)).items():
        weight = found[name] = np.zeros_like(array)
        if "bias" in name:
            weight[:] = rng.choice([-0.25, 0.25], array.shape) * ("ih" in name)
        else:
            rows = np.arange(len(array))
            weight[rows, rng.integers(array.shape[1], size=len(array))] = rng.choice([-1, 1], len(array))
            weight /= 1 + ("hh" in name)
    return params.pack(found, dtype)


def has_ties(params: RnnParams, weights: Array, x: Array, hx: Array, lengths: Any) -> bool:
    """Whether the sum before some ReLU is exactly 0, where PyTorch's gradient is 0 and cuDNN's, in 16 bits, is 1."""
    w = {name: wide(array) for name, array in params.unpack(weights).items()}
    ends = lengths or (len(x),) * x.shape[1]
    below, first = wide(x), iter(wide(hx))
    for layer in range(params.num_layers):
        above = []
        for suffix in (f"_l{layer}", f"_l{layer}_reverse")[: params.directions]:
            states, made = next(first).copy(), np.zeros((*below.shape[:2], params.hidden_size))
            bias = sum(w[f"bias_{kind}{suffix}"] for kind in ("ih", "hh")) if params.bias else 0.0
            for i, end in enumerate(ends):
                for t in range(end)[:: -1 if "reverse" in suffix else 1]:
                    sums = w[f"weight_ih{suffix}"] @ below[t, i] + w[f"weight_hh{suffix}"] @ states[i] + bias
                    if not sums.all():
                        return True
                    states[i] = made[t, i] = np.maximum(sums, 0)
            above.append(made)
        below = np.concatenate(above, axis=-1)
    return False


networks = st.builds(
    lambda mode, layers, both, projected, bias: RnnParams(
        mode,
        INPUT,
        HIDDEN,
        layers,
        "bidirectional" if both else "unidirectional",
        8 * (projected and mode == "lstm"),
        bias,
    ),
    st.sampled_from(MODES),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", FLOATS)
@SHARED
@given(
    params=networks,
    layout=st.sampled_from(["seq_major", "batch_major", "packed"]),
    lengths=st.sampled_from([None, LENGTHS]),
    given_states=st.booleans(),
    seed=seeds,
)
def test_like_pytorch(
    session: Any, dtype: str, params: RnnParams, layout: Any, lengths: Any, given_states: bool, seed: int
) -> None:
    torch = torch_of()
    if layout == "packed":
        lengths = tuple(sorted(lengths or LENGTHS, reverse=True))
    is_lstm, cells = params.mode == "lstm", params.num_layers * params.directions
    coarse = params.mode == "rnn_relu" and dtype in ("f16", "bf16")
    weights = coarse_weights(params, seed, dtype) if coarse else params.initial_weights(seed, dtype)
    network = module(params)
    network.load_state_dict({n: torch.from_numpy(wide(a)) for n, a in params.unpack(weights).items()})
    shapes = [(STEPS, BATCH, INPUT), (cells, BATCH, params.state_size), (cells, BATCH, params.hidden_size)]
    x, hx, cx = (drawn(seed + i, shape, dtype) for i, shape in enumerate(shapes))
    if coarse:
        x, hx = np.sign(x), np.sign(hx)
    if not given_states:
        hx, cx = np.zeros_like(hx), np.zeros_like(cx)
    tx, th, tc = (torch.from_numpy(wide(a)).requires_grad_() for a in (x, hx, cx))
    fed = tx
    if lengths:
        fed = torch.nn.utils.rnn.pack_padded_sequence(tx, torch.tensor(lengths), enforce_sorted=False)
    said, last = network(fed, (th, tc) if is_lstm else th)
    if lengths:
        said = torch.nn.utils.rnn.pad_packed_sequence(said, total_length=STEPS)[0]
    states = last if is_lstm else (last,)
    dy, *d_states = (drawn(seed + 7 + i, tuple(a.shape), dtype) for i, a in enumerate((said, *states)))
    pairs = zip((said, *states), (dy, *d_states), strict=True)
    sum((a * torch.from_numpy(wide(b))).sum() for a, b in pairs).backward()

    common: dict[str, Any] = {
        "x": session.put(laid_out(x, layout, lengths)),
        "weights": session.put(weights),
        "params": params,
        "layout": layout,
        "lengths": lengths,
    }
    if given_states:
        common |= {"hx": session.put(hx)} | ({"cx": session.put(cx)} if is_lstm else {})
    inferred = submit(session, RnnForward(**common))
    trained = submit(session, RnnForwardTraining(**common))
    gradients = submit(
        session,
        RnnBackward(
            **common,
            y=trained.y,
            reserve=trained.reserve,
            dy=session.put(laid_out(dy, layout, lengths)),
            dh_n=session.put(d_states[0]),
            dc_n=session.put(d_states[1]) if is_lstm else None,
        ),
    )
    terms = (INPUT + 3 * HIDDEN) * STEPS * params.num_layers
    wanted = [said.detach(), *(s.detach() for s in states)]
    for answer in (inferred, trained):
        near(session.get(answer.y), laid_out(wanted[0].numpy(), layout, lengths, 0.0), dtype, terms)
        near(session.get(answer.h_n), wanted[1].numpy(), dtype, terms)
        assert (answer.c_n is not None) == is_lstm
        if is_lstm:
            near(session.get(answer.c_n), wanted[2].numpy(), dtype, terms)
    if coarse and has_ties(params, weights, x, hx, lengths):
        return
    near(session.get(gradients.dx), laid_out(tx.grad.numpy(), layout, lengths, 0.0), dtype, terms)
    near(session.get(gradients.dhx), th.grad.numpy(), dtype, terms)
    if is_lstm:
        near(session.get(gradients.dcx), tc.grad.numpy(), dtype, terms)
    by_name = params.unpack(session.get(gradients.dweights))
    for name, weight in network.named_parameters():
        near(by_name[name], weight.grad.numpy(), dtype, terms * BATCH)


@pytest.mark.parametrize("layout", ["seq_major", "batch_major"])
@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_dropout_between_layers_is_named_by_its_place(session: Any, mode: Any, layout: Any) -> None:
    torch = torch_of()
    params = RnnParams(mode, INPUT, HIDDEN, 3, "bidirectional")
    weights, share, seed, offset = params.initial_weights(1), 0.4, 11, 1000
    tensors = {n: torch.from_numpy(a.astype("f8")).requires_grad_() for n, a in params.unpack(weights).items()}
    x = drawn(2, (STEPS, BATCH, INPUT), "f32")
    at = below = torch.from_numpy(x.astype("f8")).requires_grad_()
    for layer in range(3):
        width = HIDDEN * 2 if layer else INPUT
        one = module(RnnParams(mode, width, HIDDEN, 1, "bidirectional"))
        own = {n.replace(f"_l{layer}", "_l0"): t for n, t in tensors.items() if f"_l{layer}" in n}
        at, _ = torch.func.functional_call(one, own, (at,))
        if layer < 2:
            words = philox_words(seed, offset + layer * at.numel(), at.numel())
            order = (BATCH, STEPS) if layout == "batch_major" else (STEPS, BATCH)
            kept = (words >= round(share * 2**32)).reshape(*order, 2 * HIDDEN)
            kept = kept.swapaxes(0, 1) if layout == "batch_major" else kept
            at = at * torch.from_numpy(kept / (1 - share))
    dy = drawn(3, tuple(at.shape), "f32")
    (at * torch.from_numpy(dy.astype("f8"))).sum().backward()

    common: dict[str, Any] = {
        "x": session.put(laid_out(x, layout, None)),
        "weights": session.put(weights),
        "params": params,
        "layout": layout,
        "dropout": share,
    }
    first, again, other = (
        session.submit(RnnForwardTraining(**common, seed=s, offset=offset)) for s in (seed, seed, seed + 1)
    )
    np.testing.assert_array_equal(session.get(first.y), session.get(again.y))
    assert not np.array_equal(session.get(first.y), session.get(other.y))
    near(session.get(first.y), laid_out(at.detach().numpy(), layout, None), "f32", 500)
    found = session.submit(
        RnnBackward(**common, y=first.y, reserve=first.reserve, dy=session.put(laid_out(dy, layout, None)))
    )
    near(session.get(found.dx), laid_out(below.grad.numpy(), layout, None), "f32", 1000)
    for name, gradient in params.unpack(session.get(found.dweights)).items():
        near(gradient, tensors[name].grad.numpy(), "f32", 1000)


@pytest.mark.parametrize("mode", MODES)
def test_gradients_are_finite_differences(session: Any, mode: Any) -> None:
    params = RnnParams(mode, INPUT, HIDDEN, 2, "bidirectional", 8 if mode == "lstm" else 0)
    x, weights = drawn(1, (STEPS, BATCH, INPUT), "f64"), params.initial_weights(2, "f64")
    dy = drawn(3, (STEPS, BATCH, params.output_size), "f64")
    along_x, along_w = drawn(4, x.shape, "f64"), drawn(5, weights.shape, "f64")

    def value(step: float) -> float:
        op = RnnForward(
            x=session.put(x + step * along_x),
            weights=session.put(weights + step * along_w),
            params=params,
            lengths=LENGTHS,
        )
        return float((session.get(submit_or_skip(session, op).y) * dy).sum())

    common: dict[str, Any] = {
        "x": session.put(x),
        "weights": session.put(weights),
        "params": params,
        "lengths": LENGTHS,
    }
    trained = submit_or_skip(session, RnnForwardTraining(**common))
    found = session.submit(RnnBackward(**common, y=trained.y, reserve=trained.reserve, dy=session.put(dy)))
    slope = (value(1e-5) - value(-1e-5)) / 2e-5
    got = (session.get(found.dx) * along_x).sum() + (session.get(found.dweights) * along_w).sum()
    np.testing.assert_allclose(got, slope, rtol=1e-6, atol=1e-6)


def submit_or_skip(session: Any, op: Op[Any, Any]) -> Any:
    try:
        return session.submit(op)
    except UnsupportedOp as e:
        assert session.backend.name != "cpu"
        pytest.skip(str(e))


def test_a_reserve_serves_one_backward_pass(session: Any) -> None:
    params = RnnParams("gru", INPUT, HIDDEN)
    common: dict[str, Any] = {
        "x": session.put(drawn(1, (STEPS, BATCH, INPUT), "f32")),
        "weights": session.put(params.initial_weights()),
        "params": params,
    }
    trained = session.submit(RnnForwardTraining(**common))
    copy = session.submit(Copy(src=trained.reserve))
    dh_n = session.put(drawn(2, (1, BATCH, HIDDEN), "f32"))  # without a gradient by y
    rest: dict[str, Any] = {**common, "y": trained.y, "dh_n": dh_n}
    first = session.get(session.submit(RnnBackward(**rest, reserve=trained.reserve)).dweights)
    with pytest.raises(NumericalError, match="used up by another backward pass"):
        session.get(session.submit(RnnBackward(**rest, reserve=trained.reserve)).dweights)
    second = session.get(session.submit(RnnBackward(**rest, reserve=copy)).dweights)
    np.testing.assert_array_equal(first, second)
    assert np.abs(first).max() > 0
    with pytest.raises(NumericalError, match="holds no training pass"):
        session.get(session.submit(RnnBackward(**rest, reserve=session.empty(copy.shape, "u8"))).dweights)


def test_bad_input_is_named(session: Any) -> None:
    params, gru = RnnParams("lstm", INPUT, HIDDEN), RnnParams("gru", INPUT, HIDDEN)
    x, weights = session.put(drawn(1, (STEPS, BATCH, INPUT), "f32")), session.put(params.initial_weights())
    for settings, text in (
        ({"lengths": (6, 1, 1, 1)}, r"lengths\[0\] is 6; it must lie between 1 and 5"),
        ({"lengths": (1, 1, 0, 1)}, r"lengths\[2\] is 0"),
        ({"lengths": (1, 1)}, "there are 2 lengths"),
        ({"lengths": ()}, "lengths is empty"),
        ({"layout": "packed"}, r"x is f32\[5, 4, 8\]; it must be \[steps of all, 8\]"),
        ({"x": x.reshape(20, INPUT), "layout": "packed"}, "packed sequences have lengths"),
        ({"x": x.reshape(20, INPUT), "layout": "packed", "lengths": (5, 6)}, "the longest first"),
        ({"x": x.reshape(20, INPUT), "layout": "packed", "lengths": (6, 5)}, "lengths are 11 steps together"),
        ({"weights": weights[1:]}, f"it must have shape .{params.weight_size},."),
        ({"weights": session.put(params.initial_weights(0, "f64"))}, "both must have one dtype"),
        ({"hx": x}, "a state for each layer, direction and sequence"),
        (
            {"params": gru, "weights": session.put(gru.initial_weights()), "cx": x},
            "only an LSTM has cell states",
        ),
    ):
        with pytest.raises(ShapeError, match=text):
            session.submit(RnnForward(**({"x": x, "weights": weights, "params": params} | settings)))
    with pytest.raises(ShapeError, match=r"dropout is 1.0"):
        session.submit(RnnForwardTraining(x=x, weights=weights, params=params, dropout=1.0))


def test_packing_round_trips_a_state_dict() -> None:
    for params in (RnnParams("lstm", 3, 6, 2, "bidirectional", 2), RnnParams("rnn_relu", 3, 6, bias=False)):
        network = module(params)
        state = network.state_dict()
        packed = params.pack({f"rnn.{n}": t for n, t in state.items()} | {"head": 1}, prefix="rnn.")
        found = params.unpack(packed)
        assert list(found) == list(state)
        for name, weight in state.items():
            np.testing.assert_array_equal(found[name], weight.numpy())
        network.load_state_dict({n: torch_of().from_numpy(a) for n, a in found.items()})
        with pytest.raises(KeyError, match="weight_hh_l0"):
            params.pack({n: t for n, t in state.items() if n != "weight_hh_l0"})
        with pytest.raises(KeyError, match=r"and .* has no such weight"):
            params.pack({**state, "weight_ih_l9": state["weight_ih_l0"]})
        with pytest.raises(ShapeError, match=r"weight_ih_l0 has shape \[2, 2\]"):
            params.pack({**state, "weight_ih_l0": np.zeros((2, 2))})
    assert params.pack(network.bfloat16().state_dict(), "bf16").dtype == DTYPES["bf16"].np


@pytest.mark.parametrize(
    "given, error, text",
    [
        ({"mode": "rnn"}, TypeError, "mode = 'rnn': use one of 'rnn_relu', 'rnn_tanh', 'lstm', 'gru'"),
        ({"hidden_size": "16"}, TypeError, "hidden_size = '16'"),
        ({"num_layers": 0}, ShapeError, "num_layers is 0; it must be positive"),
        ({"proj_size": 16}, ShapeError, "proj_size is 16; it must be less than hidden_size, 16"),
        ({"mode": "gru", "proj_size": 2}, ShapeError, "only an LSTM has projections, not gru"),
    ],
)
def test_a_network_that_there_is_not(given: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        RnnParams(**({"mode": "lstm", "input_size": INPUT, "hidden_size": HIDDEN} | given))
