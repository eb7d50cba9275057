"""Attention against its definition, written out in f64, and against PyTorch."""

from typing import Any

import numpy as np
import pytest
from attention_lab import EXTRAS, SETTINGS, Call, call, dense, gradients, ordered, shapes
from blas_lab import SHARED, Array, values
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.kernel.attention import Backward, BackwardBias, BackwardSink, Forward, Merge
from callboard.testing.tolerances import assert_close

NAMES = ("f16", "bf16", "f32", "f64")
LAYOUTS = ("bshd", "bhsd")


def placed(session: Any, c: Call, layout: str) -> dict[str, Any]:
    arrays = {name: session.put(ordered(getattr(c, name), layout)) for name in "qkv"}
    return arrays | {name: session.put(x) for name, x in c.extras.items()} | c.settings | {"layout": layout}


def check_forward(c: Call, out: Array, lse: Array, layout: str) -> None:
    want, size = dense(c), np.abs(c.v.astype(np.float64)).max()
    kept = want.kept.max()
    assert_close(out, ordered(want.out, layout), c.dtype, c.terms, scale=size * kept, between=size * kept)
    scores = np.abs(c.q.astype(np.float64)).max() * np.abs(c.k.astype(np.float64)).max() * c.q.shape[3] ** 0.5 + 4
    assert_close(lse, want.lse, "f64" if c.dtype.name == "f64" else "f32", c.terms, scale=scores)


def check_gradients(session: Any, c: Call, layout: str, seed: int, **more: Any) -> None:
    arrays = placed(session, c, layout)
    out, lse = session.submit(Forward(**arrays))
    dout = values(c.dtype, (*c.q.shape[:3], c.v.shape[3]), seed)
    message: Any = BackwardBias if "bias" in c.extras else Backward
    found = session.submit(message(**arrays, dout=session.put(ordered(dout, layout)), out=out, lse=lse, **more))
    found = found._asdict()
    if "sink" in c.extras:
        placed_dout, sink = session.put(ordered(dout, layout)), arrays["sink"]
        found["dsink"] = session.submit(BackwardSink(dout=placed_dout, out=out, lse=lse, sink=sink, layout=layout))
    for name, (want, size) in gradients(c, dout).items():
        if name in ("dbias", "dsink"):
            order = want
        else:
            order, size = ordered(want, layout), ordered(size, layout)
        # Where 16 bits are stored between, in `out` and in factors of tensor cores, each element may be off by so much.
        between = (size + size.max(initial=0)) if c.dtype.itemsize == 2 else 0
        assert_close(
            session.get(found[name]),
            order,
            c.dtype,
            c.terms * c.q.shape[1],
            scale=size.max(initial=0),
            between=between,
        )


@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.few(1)
def test_every_feature_with_every_other(session: Any, name: str, extra: str) -> None:
    for dtype, layout in (("f64", "bshd"), ("bf16", "bhsd")):
        c = call(DTYPES[dtype], name, extra, seed=len(name) + len(extra))
        out, lse = session.submit(Forward(**placed(session, c, layout)))
        check_forward(c, session.get(out), session.get(lse), layout)
        check_gradients(session, c, layout, 3)


@settings(SHARED, max_examples=16)
@given(data=st.data())
def test_any_extents(session: Any, data: st.DataObject) -> None:
    dtype = DTYPES[data.draw(st.sampled_from(NAMES))]
    layout, extra = data.draw(st.sampled_from(LAYOUTS)), data.draw(st.sampled_from(EXTRAS))
    c = call(dtype, data.draw(st.sampled_from(list(SETTINGS))), extra, **data.draw(shapes(dtype)))
    out, lse = session.submit(Forward(**placed(session, c, layout)))
    check_forward(c, session.get(out), session.get(lse), layout)
    check_gradients(session, c, layout, data.draw(st.integers(0, 99)), deterministic=data.draw(st.booleans()))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", ["full", "causal", "window", "dropout", "causal from the first key"])
@pytest.mark.few(1)
def test_packed_sequences_are_those_apart(session: Any, name: str, dtype: str) -> None:
    lengths = [(5, 9), (0, 3), (18, 28), (7, 7), (1, 30)]
    parts = [
        call(DTYPES[dtype], name, "none", batch=1, rows=rows, dims=(64, 64), seed=9 * i)._replace(first=i)
        for i, rows in enumerate(lengths)
    ]
    q, k, v = (
        np.concatenate([*(ordered(getattr(part, n), "bshd")[0] for part in parts), strangers(getattr(parts[0], n))])
        for n in "qkv"
    )
    starts = [np.cumsum([0, *side], dtype=np.int32) for side in zip(*lengths, strict=True)]
    placed_starts = [session.put(x) for x in starts]
    arrays = {"q": session.put(q), "k": session.put(k), "v": session.put(v), **SETTINGS[name]}
    arrays |= {
        "cu_seqlens_q": placed_starts[0],
        "cu_seqlens_k": placed_starts[1],
        "max_seqlen_q": 18,
        "max_seqlen_k": 30,
    }
    out, lse = session.submit(Forward(**arrays))
    dout = values(DTYPES[dtype], out.shape, 77)
    found = session.submit(Backward(**arrays, dout=session.put(dout), out=out, lse=lse))
    got = [session.get(x) for x in (out, lse, *found[:3])]
    for i, part in enumerate(parts):
        at, by = (slice(*s[i : i + 2]) for s in starts)
        want = dense(part)
        size = np.abs(part.v.astype(np.float64)).max()
        assert_close(got[0][at], want.out[0].swapaxes(0, 1), dtype, 64, scale=size, between=size)
        assert_close(got[1][at], want.lse[0].T, "f32", 64, scale=16)
        for array, where, (grad, magnitude) in zip(
            got[2:], (at, by, by), gradients(part, dout[at].swapaxes(0, 1)[None]).values(), strict=False
        ):
            most = magnitude.max(initial=0)
            between = 2 * most if dtype == "bf16" else 0
            assert_close(array[where], grad[0].swapaxes(0, 1), dtype, 256, scale=most, between=between)
    assert not got[0][starts[0][-1] :].any()
    assert np.isneginf(got[1][starts[0][-1] :]).all()
    assert not any(array[starts[side][-1] :].any() for side, array in zip((0, 1, 1), got[2:], strict=True))


def strangers(like: Array) -> Array:
    """Tokens behind the last sequence, which belong to none."""
    return np.full((2, like.shape[1], like.shape[3]), np.nan).astype(like.dtype)


def test_views_and_given_outputs(session: Any) -> None:
    c = call(DTYPES["f32"], "causal", "none", rows=(21, 21), dims=(24, 24), heads=(3, 3))
    packed = session.put(np.stack([ordered(x, "bshd") for x in (c.q, c.k, c.v)], 2))
    around, log = session.put(np.full((2, 21, 5, 24), 77, "f4")), session.put(np.zeros((2, 3, 21), "f4"))
    q, k, v = (packed[:, :, i] for i in range(3))
    session.submit(Forward(q=q, k=k, v=v, causal=True, out=around[:, :, 1:4], lse=log))
    got = session.get(around)
    check_forward(c, got[:, :, 1:4], session.get(log), "bshd")
    assert (got[:, :, [0, 4]] == 77).all()


@pytest.mark.parametrize("dtype", ["f16", "f64"])
def test_parts_of_the_keys_are_merged(session: Any, dtype: str) -> None:
    c = call(DTYPES[dtype], "full", "none", rows=(9, 40))
    parts = []
    for at in (slice(0, 7), slice(7, 8), slice(8, 40)):
        part = c._replace(k=c.k[:, :, at], v=c.v[:, :, at])
        parts.append(session.submit(Forward(**placed(session, part, "bshd"))))
    nothing = session.put(np.full(parts[0].out.shape, np.nan).astype(c.dtype.np))
    outs, lses = [p.out for p in parts] + [nothing], [p.lse for p in parts]
    lses.append(session.put(np.full(lses[0].shape, -np.inf, c.dtype.np if dtype == "f64" else np.float32)))
    out, lse = session.submit(Merge(outs=tuple(outs), lses=tuple(lses)))
    check_forward(c, session.get(out), session.get(lse), "bshd")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["full", "causal from the first key"])
def test_it_is_what_pytorch_computes(session: Any, name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    c = call(DTYPES["f64"], name, "none", rows=(30, 50), dims=(16, 24))
    q, k, v = (torch.tensor(x, requires_grad=True) for x in (c.q, c.k, c.v))
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=name != "full", enable_gqa=True)
    dout = values(c.dtype, tuple(want.shape), 5)
    want.backward(torch.tensor(dout))
    arrays = placed(session, c, "bhsd")
    out, lse = session.submit(Forward(**arrays))
    found = session.submit(Backward(**arrays, dout=session.put(dout), out=out, lse=lse))
    assert_close(session.get(out), want.detach().numpy(), "f64", c.terms, scale=4)
    for got, one in zip(found[:3], (q, k, v), strict=True):
        assert_close(session.get(got), one.grad.numpy(), "f64", 8 * c.terms, scale=16)


def test_lengths_that_do_not_fit_fail_the_call(session: Any) -> None:
    q, k = session.put(np.ones((9, 2, 8), "f4")), session.put(np.ones((12, 2, 8), "f4"))
    right, wrong = np.array([0, 4, 9], "i4"), np.array([0, 14, 12], "i4")
    with pytest.raises(ShapeError, match=r"attention\.forward: .*cu_seqlens_k .*must ascend from 0 to at most 12"):
        session.submit(Forward(q=q, k=k, v=k, cu_seqlens_q=session.put(right), cu_seqlens_k=session.put(wrong)))
    whole = session.put(np.ones((2, 9, 2, 8), "f4"))
    with pytest.raises(ShapeError, match=r"attention\.forward: .*seqlens_k .*between 0 and 9"):
        session.submit(Forward(q=whole, k=whole, v=whole, seqlens_k=session.put(np.array([3, 10], "i4"))))


def test_the_written_out_gradients_are_those_of_its_sums() -> None:
    """By complex steps would be exact, but masks compare; central differences do here."""
    c = call(DTYPES["f64"], "softcap", "all", rows=(5, 6), dims=(3, 3))
    dout = values(c.dtype, (2, 4, 5, 3), 1)
    for name, (grad, _) in gradients(c, dout).items():
        key = name[1:]
        step = values(c.dtype, grad.shape, 2)
        sums = []
        for sign in (1e-6, -1e-6):
            if key in "qkv":
                moved = c._replace(**{key: getattr(c, key) + sign * step})
            else:
                moved = c._replace(extras=c.extras | {key: c.extras[key] + sign * step})
            sums.append((dense(moved).out * dout).sum())
        assert (sums[0] - sums[1]) / 2e-6 == pytest.approx((grad * step).sum(), rel=1e-6, abs=1e-8)
