"""Attention in fp8 against its definition, written out in f64 for the numbers that fp8 operands stand for."""

from typing import Any

import numpy as np
import pytest
from attention_lab import SETTINGS, Call, call, dense, gradients, ordered
from blas_lab import Array, values

from callboard.backends.cpu.lowprec import encode_f8
from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError, UnsupportedOp
from callboard.kernel.attention import BackwardFp8, ForwardFp8
from callboard.testing.tolerances import ROUNDOFF

E4M3, E5M2, WIDE = DTYPES["f8_e4m3"], DTYPES["f8_e5m2"], DTYPES["f64"]
UNIT = ROUNDOFF["f8_e4m3"].unit
SCALES = {"q": 0.5, "k": 0.25, "v": 2.0}
"""What the operands are multiplied by."""


def narrowed(c: Call, scales: dict[str, float]) -> tuple[Call, dict[str, Array]]:
    """The same call with what its operands are in fp8, and they."""
    kept = {name: encode_f8(getattr(c, name) / scales[name], E4M3) for name in "qkv"}
    return c._replace(**{name: x.astype("f8") * scales[name] for name, x in kept.items()}), kept


def close(got: Array, want: Array, size: float, terms: float = 1, unit: float = UNIT) -> None:
    """As near as a result of 8 bits, of probabilities in e4m3, can be."""
    allowed = 1.01 * unit * np.abs(want) + UNIT * terms * size
    away = np.abs(got.astype("f8") - want)
    assert (away <= allowed).all(), f"{(away / allowed).max():.3g} times what is allowed"


def number(session: Any, x: float) -> Any:
    return session.put(np.float32(x))


CASES = [
    ("full", "none", (64, 64), (64, 96), "bshd"),
    ("causal", "none", (128, 128), (64, 64), "bhsd"),
    ("causal from the first key", "lengths", (64, 64), (40, 72), "bshd"),
    ("scale", "none", (32, 32), (1, 64), "bshd"),
]


@pytest.mark.parametrize("name, extra, dims, rows, layout", CASES)
def test_forward(session: Any, name: str, extra: str, dims: Any, rows: Any, layout: str) -> None:
    c, kept = narrowed(call(WIDE, name, extra, rows=rows, dims=dims, seed=5), SCALES)
    want = dense(c)
    size = np.abs(c.v).max()
    given = {n: session.put(ordered(x, layout)) for n, x in kept.items()}
    given |= {f"scale_{n}": number(session, x) for n, x in SCALES.items()}
    given |= {n: session.put(x) for n, x in c.extras.items()}
    op = ForwardFp8(**given, scale_out=number(session, 3.0), **SETTINGS[name], layout=layout)
    if rows[0] == 1 and session.backend.name == "cuda":
        with pytest.raises(UnsupportedOp, match="fp8 has no single queries: take attention"):
            session.submit(op)
        return
    out, lse, amax = (session.get(x) for x in session.submit(op))
    close(out.astype("f8") / 3, ordered(want.out, layout), size)
    np.testing.assert_allclose(lse, want.lse, rtol=2e-3, atol=2e-3)
    assert abs(float(amax) - np.abs(want.out).max()) <= UNIT * size


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_backward(session: Any, dtype: DType) -> None:
    """Of a head dim of 128, which is all that cuDNN has kernels for on compute capability 9.0."""
    scales = dict.fromkeys("qkv", 0.5)
    c, kept = narrowed(call(WIDE, "causal from the first key", "none", rows=(64, 64), dims=(128, 128), seed=3), scales)
    given = {n: session.put(ordered(x, "bshd")) for n, x in kept.items()}
    given |= {f"scale_{n}": number(session, x) for n, x in scales.items()} | c.settings
    out, lse, _ = session.submit(ForwardFp8(**given, scale_out=number(session, 2.0)))
    dout = encode_f8(values(WIDE, c.q.shape, 8) * 4, dtype)
    found = session.submit(
        BackwardFp8(
            **given, dout=session.put(ordered(dout, "bshd")), scale_dout=number(session, 0.25), out=out, lse=lse,
            descale_out=number(session, 0.5), scale_dq=number(session, 8.0), score_gain=16.0,
        )
    )  # fmt: skip
    for name, (want, size) in gradients(c, dout.astype("f8") / 4).items():
        got = session.get(getattr(found, name)).astype("f8") / (8 if name == "dq" else 1)
        close(got, ordered(want, "bshd"), size.max(), 2, ROUNDOFF[dtype.name].unit)
        amax = float(session.get(getattr(found, f"amax_{name}")))
        assert abs(amax - np.abs(want).max()) <= 2 * UNIT * size.max()


def test_what_does_not_fit_is_refused(session: Any) -> None:
    x = session.put(np.ones((1, 16, 2, 128), E4M3.np))
    with pytest.raises(ShapeError, match=r"scale_k is .*expected a 0-d f32"):
        session.submit(ForwardFp8(q=x, k=x, v=x, scale_k=session.put(np.ones(1, "f4"))))
    other = session.put(np.ones((1, 16, 2, 128), E5M2.np))
    with pytest.raises(ShapeError, match="all must have one dtype"):
        session.submit(ForwardFp8(q=x, k=other, v=x))
    lse = session.put(np.zeros((1, 2, 16), "f4"))
    with pytest.raises(ShapeError, match="its dtype must be one of f8_e4m3"):
        session.submit(BackwardFp8(dout=other, q=other, k=other, v=other, out=other, lse=lse))
    with pytest.raises(ShapeError, match="score_gain is 0"):
        session.submit(BackwardFp8(dout=x, q=x, k=x, v=x, out=x, lse=lse, score_gain=0.0))
