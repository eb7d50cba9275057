"""``Matmul``, ``MatmulAux`` and ``MatmulBgrad`` on floats: every epilogue, against products in f64."""

from typing import Any

import numpy as np
import pytest
from blas_lab import SHARED, execute, poisoned, values
from blas_lt_lab import (
    AUX,
    EPILOGUES,
    FLOATS,
    answer,
    aux_for,
    check,
    draw_case,
    expected,
    gelu,
    gelu_slope,
    message,
    unpacked,
    wide,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError, UnsupportedOp
from callboard.kernel.blas_lt import Matmul, MatmulAux, MatmulBgrad
from callboard.testing.tolerances import ACTIVATION, ROUNDOFF, assert_close

F32, BF16 = DTYPES["f32"], DTYPES["bf16"]
PAIRS = [
    pytest.param(DTYPES[name], DTYPES[stored], id=f"{name}-{stored}")
    for name, kinds in FLOATS.items()
    for stored in kinds
]
EVERY = [pytest.param(DTYPES[name], id=name) for name in FLOATS]
small = st.integers(0, 9)
ALIGNED = {"m": 40, "n": 48, "k": 64}
"""Extents that every fused kernel takes."""


@pytest.mark.parametrize("epilogue", EPILOGUES)
@settings(SHARED, max_examples=40)
@given(data=st.data())
def test_any_layout(session: Any, epilogue: str, data: st.DataObject) -> None:
    """All dtypes, shapes, flags, given outputs and addends; nothing but the outputs is written."""
    dtype, stored = (p for p in data.draw(st.sampled_from(PAIRS), "dtypes").values)
    case = draw_case(session, data, epilogue, dtype, stored, small, batched=False)  # type: ignore[arg-type]
    check(epilogue, answer(session, case.op), case.want, dtype, stored, case.k)  # type: ignore[arg-type]
    if case.out is not None:
        case.out.check_surroundings(session)
    for name, (placed, before) in case.inputs.items():
        np.testing.assert_array_equal(session.get(placed.ref), before, err_msg=f"{name} was written")


@pytest.mark.parametrize("epilogue", EPILOGUES)
@settings(SHARED, max_examples=20)
@given(data=st.data())
def test_batches(session: Any, epilogue: str, data: st.DataObject) -> None:
    """One matrix may serve all; a bias, an aux and a gradient belong to each."""
    dtype, stored = (p for p in data.draw(st.sampled_from(PAIRS), "dtypes").values)
    case = draw_case(session, data, epilogue, dtype, stored, small, batched=True)  # type: ignore[arg-type]
    check(epilogue, answer(session, case.op), case.want, dtype, stored, case.k)  # type: ignore[arg-type]


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("dtype, stored", PAIRS)
def test_sizes_that_fused_kernels_take(session: Any, dtype: DType, stored: DType, epilogue: str) -> None:
    """Aligned extents, with and without an addend that is not ``out``."""
    m, n, k = ALIGNED.values()
    a, b, c = values(dtype, (m, k), 1), values(dtype, (k, n), 2), values(stored, (m, n), 3)
    operands: dict[str, Any] = {}
    bias = aux = None
    if "bias" in epilogue:
        bias = values(stored, (n,), 4)
        operands["bias"] = session.put(bias)
    if epilogue.startswith("d"):
        kept, aux = aux_for(epilogue, (m, n), stored, 5)
        operands["aux"] = session.put(kept)
    for beta in (0.0, -0.5):
        op = message(epilogue)(
            a=session.put(a),
            b=session.put(b),
            c=session.put(c) if beta else None,
            beta=beta,
            epilogue=epilogue,
            out_dtype=stored.name,
            **operands,
        )
        want = expected(
            epilogue, wide(a), wide(b), c=wide(c), beta=beta, bias=None if bias is None else wide(bias), aux=aux
        )
        check(epilogue, answer(session, op), want, dtype, stored, k)


@pytest.mark.parametrize("dtype", EVERY)
def test_a_layer_forward_and_backward_has_the_gradients_of_its_loss(session: Any, dtype: DType) -> None:
    """Two layers with GELU between them: every gradient against the analytic one of the same f64 network."""
    batch, inputs, hidden, outputs = 24, 16, 32, 8
    x, w1, w2 = (values(dtype, s, i) for i, s in enumerate([(batch, inputs), (inputs, hidden), (hidden, outputs)]))
    b1, target = values(dtype, (hidden,), 3), values(dtype, (batch, outputs), 4)
    X, W1, W2, B1 = (session.put(v) for v in (x, w1, w2, b1))
    y, aux = execute(session, MatmulAux(a=X, b=W1, bias=B1, epilogue="gelu_aux_bias"))
    error = execute(session, Matmul(a=y, b=W2, c=session.put(target), beta=-1.0))
    d1, db1 = execute(session, MatmulBgrad(a=error, b=W2, transpose_b=True, aux=aux, epilogue="dgelu_bgrad"))
    dw2, db2 = execute(session, MatmulBgrad(a=y, b=error, transpose_a=True, epilogue="bgrad_b"))
    dw1 = execute(session, Matmul(a=X, b=d1, transpose_a=True))
    h = wide(x) @ wide(w1) + wide(b1)
    e = gelu(h) @ wide(w2) - wide(target)
    g = e @ wide(w2).T * gelu_slope(h)
    for name, ref, want in (
        ("dw2", dw2, gelu(h).T @ e),
        ("db2", db2, e.sum(0)),
        ("db1", db1, g.sum(0)),
        ("dw1", dw1, wide(x).T @ g),
    ):
        got = wide(session.get(ref))
        # Every step rounds its result to dtype, and the errors of the steps before are carried along.
        unit = {"f16": 2**-11, "bf16": 2**-8, "f32": 2**-24, "f64": 2**-53}[dtype.name]
        worst = np.abs(got - want).max() / np.abs(want).max()
        limit = 32 * unit + (0 if dtype.name == "f64" else 8 * ACTIVATION)
        assert worst < limit, f"{name}: {worst:.2e} of the largest"


@pytest.mark.parametrize("dtype", EVERY)
def test_the_gradient_of_gelu_is_that_of_finite_differences(session: Any, dtype: DType) -> None:
    points = np.linspace(-4, 4, 64).reshape(8, 8).astype(dtype.np)
    one = session.put(np.eye(8).astype(dtype.np))
    slope = session.get(
        execute(
            session, Matmul(a=one, b=session.put(np.ones((8, 8), dtype.np)), aux=session.put(points), epilogue="dgelu")
        )
    )
    h = 1e-6
    want = (gelu(wide(points) + h) - gelu(wide(points) - h)) / (2 * h)
    held = "f32" if dtype.name == "f64" else dtype.name  # h leaves 1e-10
    assert_close(slope, want, held, 8, scale=1.2, between=ACTIVATION / ROUNDOFF[held].unit)


@pytest.mark.parametrize("n", [1, 7, 8, 127, 128, 129, 300])
@pytest.mark.parametrize("dtype", EVERY)
def test_the_mask_of_relu_has_one_form_everywhere(session: Any, dtype: DType, n: int) -> None:
    pre = values(dtype, (5, n), 1)
    pre[0], pre[1, ::2] = 0, -0.0
    identity = np.eye(5).astype(dtype.np)
    op = MatmulAux(a=session.put(identity), b=session.put(pre), epilogue="relu_aux")
    out, aux = execute(session, op)
    mask = session.get(aux)
    assert mask.shape == (5, -(-n // 128) * 16)
    assert mask.dtype == np.uint8
    want = np.zeros(mask.shape, np.uint8)
    for i, j in zip(*np.nonzero(pre >= 0), strict=True):
        want[i, j // 8] |= 1 << j % 8
    inside = np.zeros(mask.shape, np.uint8)
    for j in range(n):
        inside[:, j // 8] |= 1 << j % 8
    np.testing.assert_array_equal(mask & inside, want)
    np.testing.assert_array_equal(wide(session.get(out)), np.maximum(wide(pre), 0))
    ones = session.put(np.ones((5, n), dtype.np))
    back = execute(session, Matmul(a=session.put(identity), b=ones, aux=aux, epilogue="drelu"))
    np.testing.assert_array_equal(wide(session.get(back)), pre >= 0)


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("shape", [(0, 8, 8), (8, 0, 8), (8, 8, 0), (0, 0, 0)], ids=str)
def test_empty_extents(session: Any, epilogue: str, shape: tuple[int, int, int]) -> None:
    """An empty sum is 0, and what is added to it stays."""
    m, n, k = shape
    a, b, c = values(F32, (m, k), 1), values(F32, (k, n), 2), values(F32, (m, n), 3)
    operands: dict[str, Any] = {}
    bias = aux = None
    if "bias" in epilogue:
        bias = values(F32, (n,), 4)
        operands["bias"] = session.put(bias)
    if epilogue.startswith("d"):
        kept, aux = aux_for(epilogue, (m, n), F32, 5)
        operands["aux"] = session.put(kept)
    op = message(epilogue)(
        a=session.put(a), b=session.put(b), c=session.put(c), beta=2.0, epilogue=epilogue, **operands
    )
    want = expected(epilogue, wide(a), wide(b), c=wide(c), beta=2.0, bias=None if bias is None else wide(bias), aux=aux)
    check(epilogue, answer(session, op), want, F32, F32, k)


@pytest.mark.parametrize("epilogue", ["none", *AUX])
@pytest.mark.parametrize("dtype", EVERY)
def test_out_may_be_c(session: Any, dtype: DType, epilogue: str) -> None:
    a, b, c = values(dtype, (16, 24), 1), values(dtype, (24, 32), 2), values(dtype, (16, 32), 3)
    bias = values(dtype, (32,), 4) if "bias" in epilogue else None
    at_c = session.put(c)
    op = message(epilogue)(
        a=session.put(a),
        b=session.put(b),
        c=at_c,
        out=at_c,
        beta=0.5,
        bias=None if bias is None else session.put(bias),
        epilogue=epilogue,
    )
    want = expected(epilogue, wide(a), wide(b), c=wide(c), beta=0.5, bias=None if bias is None else wide(bias))
    check(epilogue, answer(session, op), want, dtype, dtype, 24)
    check(epilogue, {"out": session.get(at_c)}, want, dtype, dtype, 24)


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("dtype", EVERY)
def test_what_is_multiplied_by_0_is_not_read(session: Any, dtype: DType, on_device: bool) -> None:
    a, b = values(dtype, (16, 16), 1), values(dtype, (16, 16), 2)
    zero: Any = session.put(np.zeros((), "f8" if dtype.name == "f64" else "f4")) if on_device else 0.0
    out = session.put(poisoned(dtype, (16, 16)))
    op = Matmul(a=session.put(a), b=session.put(b), c=session.put(poisoned(dtype, (16, 16))), out=out, beta=zero)
    check("none", answer(session, op), expected("none", wide(a), wide(b)), dtype, dtype, 16)


@pytest.mark.parametrize("epilogue", ["none", "bias", "gelu", "gelu_bias"])
@pytest.mark.parametrize("dtype", EVERY)
def test_nan_goes_where_it_belongs(session: Any, dtype: DType, epilogue: str) -> None:
    a, b, bias = values(dtype, (16, 16), 1), values(dtype, (16, 16), 2), values(dtype, (16,), 3)
    a[3, 4] = np.nan
    bias[5] = np.nan
    more = {"bias": session.put(bias)} if "bias" in epilogue else {}
    op = Matmul(a=session.put(a), b=session.put(b), epilogue=epilogue, **more)  # type: ignore[arg-type]
    got = session.get(execute(session, op))
    want = np.zeros((16, 16), bool)
    want[3] = True
    if more:
        want[:, 5] = True
    np.testing.assert_array_equal(np.isnan(got), want)


@pytest.mark.parametrize("tf32", [None, False, True])
def test_tf32_is_a_choice(session: Any, tf32: bool | None) -> None:
    a, b, bias = values(F32, (64, 128), 1), values(F32, (128, 64), 2), values(F32, (64,), 3)
    op = Matmul(a=session.put(a), b=session.put(b), bias=session.put(bias), epilogue="gelu_bias", tf32=tf32)
    want = expected("gelu_bias", wide(a), wide(b), bias=wide(bias))
    assert_close(session.get(execute(session, op)), want.out, "tf32" if tf32 else F32, 130, scale=want.scale)


@pytest.mark.parametrize(
    "settings_",
    [{"deterministic": True}, {"autotune": 4}, {"workspace_size": 0}, {"workspace_size": 48 << 20}],
    ids=str,
)
def test_settings_change_how_not_what(session: Any, settings_: dict[str, Any]) -> None:
    a, b, bias = values(BF16, (64, 256), 1), values(BF16, (256, 64), 2), values(BF16, (64,), 3)
    A, B, Z = (session.put(v) for v in (a, b, bias))
    want = expected("gelu_bias", wide(a), wide(b), bias=wide(bias))
    first = session.get(execute(session, Matmul(a=A, b=B, bias=Z, epilogue="gelu_bias", **settings_)))
    check("gelu_bias", {"out": first}, want, BF16, BF16, 256)
    again = session.get(execute(session, Matmul(a=A, b=B, bias=Z, epilogue="gelu_bias", **settings_)))
    np.testing.assert_array_equal(first, again)  # one choice, kept


def test_an_output_must_not_share_memory_with_what_is_read(session: Any) -> None:
    if not hasattr(session, "device") or not hasattr(session.device, "ask"):
        pytest.skip("overlaps are refused by a device, and this session has none")
    x = session.put(np.ones((16, 16), "f4"))
    for op in (
        Matmul(a=x, b=x, out=x),
        MatmulAux(a=x, b=session.put(np.ones((16, 16), "f4")), aux=x),
        Matmul(a=session.put(np.ones((16, 16), "f4")), b=x[:, :8], c=x[:, :8], out=x[:, 1:9], beta=1.0),
    ):
        with pytest.raises(ShapeError, match=r"shares memory with [abc] "):
            session.submit(op)


def test_masks_go_from_one_backend_to_another(session: Any) -> None:
    """What is kept here can be read there: it is the bytes that the CPU would have kept."""
    a, b = values(F32, (16, 64), 1), values(F32, (64, 200), 2)
    _, aux = execute(session, MatmulAux(a=session.put(a), b=session.put(b), epilogue="relu_aux"))
    pre = wide(a) @ wide(b)
    clear = abs(pre) > 1e-3
    np.testing.assert_array_equal(unpacked(session.get(aux), 200)[clear], (pre >= 0)[clear])


def test_calls_in_flight_keep_their_own_operands(session: Any) -> None:
    """One plan, with other addresses and numbers each time, called far ahead of the device."""
    a, b = values(F32, (16, 32), 1), values(F32, (32, 24), 2)
    A, B = session.put(a), session.put(b)
    biases = [values(F32, (24,), 10 + i) for i in range(40)]
    held = [session.put(bias) for bias in biases]
    calls = [Matmul(a=A, b=B, bias=z, alpha=1 + i / 8, epilogue="relu_bias") for i, z in enumerate(held)]
    ask = getattr(session.device, "ask", None) or session.submit
    for i, (ref, bias) in enumerate(zip([ask(op) for op in calls], biases, strict=True)):
        want = expected("relu_bias", wide(a), wide(b), alpha=1 + i / 8, bias=wide(bias))
        check("relu_bias", {"out": session.get(ref)}, want, F32, F32, 32)


@pytest.mark.parametrize("shift", [1, 3])
@pytest.mark.parametrize("epilogue", [e for e in EPILOGUES if "bias" in e or "aux" in e or e.startswith(("d", "b"))])
@pytest.mark.parametrize("dtype", EVERY)
def test_vectors_and_masks_may_start_anywhere(session: Any, dtype: DType, epilogue: str, shift: int) -> None:
    """A bias, its gradient and an aux inside larger arrays, at whole words that no vector load takes."""
    m, n, k = ALIGNED.values()

    def inside(array: Any) -> Any:
        before = shift * max(1, 4 // dtype.itemsize)
        whole = session.put(np.concatenate([np.zeros(before, array.dtype), array.ravel()]))
        return whole[before:].reshape(*array.shape)

    a, b, bias = values(dtype, (m, k), 1), values(dtype, (k, n), 2), values(dtype, (n,), 3)
    operands: dict[str, Any] = {}
    aux = None
    if "bias" in epilogue:
        operands["bias"] = inside(bias)
    if epilogue.startswith("d"):
        kept, aux = aux_for(epilogue, (m, n), dtype, 5)
        operands["aux"] = inside(kept)
    elif epilogue in AUX:
        operands["aux"] = inside(aux_for(epilogue, (m, n), dtype, 5)[0])
    if "bgrad" in epilogue:
        operands["bias_grad"] = inside(np.zeros(m if epilogue == "bgrad_a" else n, dtype.np))
    op = message(epilogue)(a=session.put(a), b=session.put(b), epilogue=epilogue, **operands)
    want = expected(epilogue, wide(a), wide(b), bias=wide(bias) if "bias" in epilogue else None, aux=aux)
    check(epilogue, answer(session, op), want, dtype, dtype, k)


def test_a_bias_of_16_bits_starts_at_a_whole_word(session: Any) -> None:
    x, vector = session.put(np.ones((16, 16), BF16.np)), session.put(np.ones(17, BF16.np))[1:]
    if hasattr(vector, "allocation"):  # a library session has no refs: there the device itself may refuse it
        says = r" is bf16\[16\] and starts 2 bytes into its buffer, which must be a multiple of 4: pass dev\.copy\("
        with pytest.raises(ShapeError, match=r"blas_lt\.matmul: bias" + says):
            Matmul(a=x, b=x, bias=vector, epilogue="bias")
        with pytest.raises(ShapeError, match=r"blas_lt\.matmul_aux: bias" + says):
            MatmulAux(a=x, b=x, bias=vector, epilogue="relu_aux_bias")
        with pytest.raises(ShapeError, match=r"blas_lt\.matmul_bgrad: bias_grad" + says):
            MatmulBgrad(a=x, b=x, bias_grad=vector)
    else:
        try:
            got = session.get(session.submit(Matmul(a=x, b=x, bias=vector, epilogue="bias")))
        except UnsupportedOp as e:
            assert "(a bias: of 4)" in str(e)  # noqa: PT017 - one of two right outcomes
        else:
            np.testing.assert_array_equal(wide(got), 17)
