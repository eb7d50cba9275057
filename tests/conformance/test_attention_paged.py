"""Attention over pages against attention over whole arrays, and what is written to pages."""

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest
from attention_lab import Call, dense, ordered
from blas_lab import SHARED, Array, values
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError
from callboard.kernel.attention import PageAppend, PageCopy, PagedForward
from callboard.testing.tolerances import assert_close

OPTIONS: dict[str, dict[str, Any]] = {
    "full": {},
    "causal": {"causal": True},
    "window": {"causal": True, "window_size": (6, -1)},
    "softcap": {"causal": True, "softcap": 2.0},
    "scale": {"softmax_scale": 0.5},
}


class Pages(NamedTuple):
    """Keys and values of some sequences, in pages in random order; all other places hold large numbers.

    Attributes:
        keys, values: Of each sequence, ``[kv_heads, tokens, dim]``.
    """

    k: Array
    v: Array
    tables: Array
    lengths: Array
    keys: list[Array]
    values: list[Array]


def pages(dtype: DType, lengths: list[int], block: int, heads: int, dim: int, seed: int) -> Pages:
    random = np.random.default_rng(seed)
    each = [-(-n // block) for n in lengths]
    count, width = sum(each) + 3, max(1, *each)
    order = random.permutation(count).astype(np.int32)
    k, v = (np.full((count, block, heads, dim), 3e4).astype(dtype.np) for _ in range(2))
    tables = random.integers(0, count, (len(lengths), width)).astype(np.int32)
    keys, vals, taken = [], [], 0
    for row, n, m in zip(tables, lengths, each, strict=True):
        row[:m], taken = order[taken : taken + m], taken + m
        keys.append(values(dtype, (heads, n, dim), seed + n))
        vals.append(values(dtype, (heads, n, dim), seed + n + 1))
        for array, whole in ((k, keys[-1]), (v, vals[-1])):
            for at in range(n):
                array[row[at // block], at % block] = whole[:, at]
    return Pages(k, v, tables, np.array(lengths, np.int32), keys, vals)


def operands(session: Any, p: Pages) -> dict[str, Any]:
    return {
        "k_pages": session.put(p.k),
        "v_pages": session.put(p.v),
        "block_tables": session.put(p.tables),
        "seqlens_k": session.put(p.lengths),
    }


def check(
    dtype: DType, p: Pages, i: int, q: Array, extras: dict[str, Array], option: str, out: Array, lse: Array
) -> None:
    """One sequence: ``q`` is ``[heads, queries, dim]``, as are ``out`` and ``lse``."""
    c = Call(dtype, q[None], p.keys[i][None], p.values[i][None], extras, OPTIONS[option])
    want, size = dense(c), max(1, np.abs(p.values[i].astype(np.float64)).max(initial=0))
    assert_close(out, want.out[0], dtype, c.terms, scale=size, between=size)
    assert_close(lse, want.lse[0], "f64" if dtype.name == "f64" else "f32", c.terms, scale=64)


@settings(SHARED, max_examples=16)
@given(data=st.data())
def test_decoding(session: Any, data: st.DataObject) -> None:
    """As many new queries of each sequence: one, or a few drafts."""
    dtype = DTYPES[data.draw(st.sampled_from(["f16", "bf16", "f32", "f64"]))]
    new, option = data.draw(st.sampled_from([1, 1, 3])), data.draw(st.sampled_from(list(OPTIONS)))
    lengths = data.draw(st.lists(st.integers(new, 40), min_size=1, max_size=4), "lengths")
    kv, group, dim = data.draw(st.sampled_from([(1, 1, 24), (2, 4, 64), (1, 8, 128)]))
    p = pages(dtype, lengths, data.draw(st.sampled_from([4, 16])), kv, dim, seed=len(lengths))
    heads = kv * group
    wide = DTYPES["f64"] if dtype.name == "f64" else DTYPES["f32"]
    extras = {"sink": values(wide, (heads,), 2)} if data.draw(st.booleans(), "sink") else {}
    q = values(dtype, (len(lengths), heads, new, dim), 5)
    op = PagedForward(
        q=session.put(ordered(q, "bshd")),
        **operands(session, p),
        **{name: session.put(x) for name, x in extras.items()},
        **OPTIONS[option],
    )
    out, lse = (session.get(x) for x in session.submit(op))
    for i in range(len(lengths)):
        check(dtype, p, i, q[i], extras, option, out[i].swapaxes(0, 1), lse[i])


@settings(SHARED, max_examples=10)
@given(data=st.data())
def test_chunks_of_prompts(session: Any, data: st.DataObject) -> None:
    """Another number of new queries of each sequence, packed."""
    dtype = DTYPES[data.draw(st.sampled_from(["bf16", "f32"]))]
    option = data.draw(st.sampled_from(list(OPTIONS)))
    pairs = data.draw(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=4), "pairs")
    lengths = [max(1, before + new) for new, before in pairs]
    counts = [min(new, n) for (new, _), n in zip(pairs, lengths, strict=True)]
    p = pages(dtype, lengths, 8, 2, 64, seed=sum(lengths))
    starts = np.cumsum([0, *counts], dtype=np.int32)
    q = values(dtype, (int(starts[-1]) + 2, 4, 64), 3)
    op = PagedForward(
        q=session.put(q), cu_seqlens_q=session.put(starts), max_seqlen_q=20, **operands(session, p), **OPTIONS[option]
    )
    out, lse = (session.get(x) for x in session.submit(op))
    for i, (first, last) in enumerate(itertools.pairwise(starts)):
        part = [x[first:last].swapaxes(0, 1) for x in (q, out)]
        check(dtype, p, i, part[0], {}, option, part[1], lse[first:last].T)
    assert not out[starts[-1] :].any()


@pytest.mark.parametrize("dtype", ["bf16", "f32", "f64"])
def test_what_is_appended_and_copied(session: Any, dtype: str) -> None:
    kind = DTYPES[dtype]
    k, v = values(kind, (5, 4, 2, 8), 1), values(kind, (5, 4, 2, 24), 2)
    new = values(kind, (6, 2, 32), 3)  # keys and values side by side, as a projection gives them
    slots = np.array([3, -1, 4, 19, 0, 11], np.int64)
    k_pages, v_pages, both = session.put(k), session.put(v), session.put(new)
    at = session.put(slots)
    session.submit(PageAppend(k=both[:, :, :8], v=both[:, :, 8:], k_pages=k_pages, v_pages=v_pages, slots=at))
    for whole, part in ((k, new[:, :, :8]), (v, new[:, :, 8:])):
        whole.reshape(20, *whole.shape[2:])[slots[slots >= 0]] = part[slots >= 0]
    sources, targets = np.array([0, 4], np.int32), np.array([3, 1], np.int32)
    session.submit(
        PageCopy(k_pages=k_pages, v_pages=v_pages, sources=session.put(sources), targets=session.put(targets))
    )
    k[targets], v[targets] = k[sources], v[sources]
    np.testing.assert_array_equal(session.get(k_pages), k)
    np.testing.assert_array_equal(session.get(v_pages), v)


def test_what_does_not_exist_fails_the_call(session: Any) -> None:
    p = pages(DTYPES["f32"], [9, 5], 4, 2, 8, seed=1)
    q = session.put(np.ones((2, 1, 4, 8), "f4"))
    for change, says in (
        ({"tables": p.tables + 10}, r"attention\.paged_forward: block_tables.*there are"),
        ({"lengths": p.lengths + 9}, r"attention\.paged_forward: seqlens_k"),
    ):
        with pytest.raises(ShapeError, match=says):
            session.submit(PagedForward(q=q, **operands(session, p._replace(**change))))
    k_pages, v_pages = session.put(p.k), session.put(p.v)
    new, slots = session.put(np.ones((2, 2, 8), "f4")), session.put(np.array([1, p.k.shape[0] * 4], np.int64))
    with pytest.raises(ShapeError, match=r"attention\.page_append: "):
        session.submit(PageAppend(k=new, v=new, k_pages=k_pages, v_pages=v_pages, slots=slots))
    k_pages, v_pages = session.put(p.k), session.put(p.v)
    far = session.put(np.array([99], np.int32))
    with pytest.raises(ShapeError, match=r"attention\.page_copy: "):
        session.submit(PageCopy(k_pages=k_pages, v_pages=v_pages, sources=far, targets=far))
