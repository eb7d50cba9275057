"""Our own kernels, compiled by g++: small calls with every feature, beside the CPU backend."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "conformance"))

from attention_lab import SETTINGS, Call, call, ordered
from host_backend import HostSession

from callboard.backends.cuda.attention.decode import parts_of
from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.kernel.attention import Backward, BackwardBias, BackwardSink, Forward, Merge, PageAppend, PagedForward
from callboard.kernel.attention.scores import AttentionParams, Problem
from callboard.testing.session import LibrarySession

CALLS = [
    ("f64", "causal", "none"), ("f32", "causal window", "all"), ("f64", "dropout", "bias"), ("bf16", "softcap", "sink"),
]  # fmt: skip


@pytest.fixture(scope="module")
def cpu() -> Iterator[LibrarySession]:
    with LibrarySession("cpu") as opened:
        yield opened


def alike(got: Any, want: Any, dtype: str) -> None:
    tolerance = {"f64": 1e-12, "f32": 1e-4, "bf16": 3e-2}[dtype]
    np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), rtol=tolerance, atol=8 * tolerance)


def everything(session: Any, c: Call) -> dict[str, Any]:
    """Results and gradients of a call."""
    arrays = {name: session.put(ordered(getattr(c, name), "bshd")) for name in "qkv"}
    given = arrays | {name: session.put(x) for name, x in c.extras.items()} | c.settings
    out, lse = session.submit(Forward(**given))
    dout = session.put(np.random.default_rng(1).standard_normal(out.shape).astype(c.dtype.np))
    message: Any = BackwardBias if "bias" in c.extras else Backward
    found = session.submit(message(**given, dout=dout, out=out, lse=lse))._asdict() | {"out": out, "lse": lse}
    if "sink" in c.extras:
        found["dsink"] = session.submit(BackwardSink(dout=dout, out=out, lse=lse, sink=given["sink"]))
    return {name: session.get(x) for name, x in found.items()}


@pytest.mark.parametrize("dtype, name, extra", CALLS)
@pytest.mark.few(1)
def test_every_kernel(session: HostSession, cpu: LibrarySession, dtype: str, name: str, extra: str) -> None:
    assert name in SETTINGS
    c = call(DTYPES[dtype], name, extra, batch=1, rows=(18, 33), dims=(5, 7), heads=(2, 1))
    want = everything(cpu, c)
    for key, got in everything(session, c).items():
        alike(got, want[key], dtype)


def test_packed_sequences(session: HostSession, cpu: LibrarySession) -> None:
    random = np.random.default_rng(2)
    q, k, v = (random.standard_normal((n, 2, 8)) for n in (20, 30, 30))
    starts = np.array([[0, 17, 17, 18], [0, 12, 20, 29]], np.int32)

    def run(s: Any) -> dict[str, Any]:
        given = {"q": s.put(q), "k": s.put(k), "v": s.put(v), "causal": True}
        given |= {"cu_seqlens_q": s.put(starts[0]), "cu_seqlens_k": s.put(starts[1])}
        out, lse = s.submit(Forward(**given))
        found = s.submit(Backward(**given, dout=s.put(q), out=out, lse=lse))._asdict() | {"out": out, "lse": lse}
        return {name: s.get(x) for name, x in found.items()}

    want = run(cpu)
    for key, got in run(session).items():
        alike(got, want[key], "f64")


def test_pages_and_parts(session: HostSession, cpu: LibrarySession) -> None:
    random = np.random.default_rng(3)
    pages, new, q = (random.standard_normal(s).astype("f4") for s in ((5, 4, 2, 8), (3, 2, 8), (2, 1, 4, 8)))
    tables, lengths = np.array([[3, 0, 2], [1, 4, 0]], np.int32), np.array([9, 5], np.int32)
    slots = np.array([8, -1, 16], np.int64)  # the last place of each sequence

    def run(s: Any) -> tuple[Any, ...]:
        k, v = s.put(pages), s.put(2 * pages)
        s.submit(PageAppend(k=s.put(new), v=s.put(new), k_pages=k, v_pages=v, slots=s.put(slots)))
        op = PagedForward(q=s.put(q), k_pages=k, v_pages=v, block_tables=s.put(tables), seqlens_k=s.put(lengths))
        out, lse = s.submit(op)
        whole = s.submit(Merge(outs=(out, out), lses=(lse, lse)))
        return tuple(s.get(x) for x in (k, v, out, lse, *whole))

    for got, want in zip(run(session), run(cpu), strict=True):
        alike(got, want, "f32")


def test_lengths_and_pages_that_do_not_exist_fail_the_call(session: HostSession) -> None:
    q = session.put(np.ones((2, 3, 2, 8)))
    with pytest.raises(ShapeError, match=r"attention\.forward: seqlens_k has a length that does not lie between 0 and"):
        session.submit(Forward(q=q, k=q, v=q, seqlens_k=session.put(np.array([3, 10], "i4"))))
    pages, new = session.put(np.ones((2, 4, 2, 8))), session.put(np.ones((1, 2, 8)))
    slots = session.put(np.array([8]))
    with pytest.raises(ShapeError, match=r"attention\.page_append: a slot is beyond the 2 pages of 4 tokens"):
        session.submit(PageAppend(k=new, v=new, k_pages=pages, v_pages=pages, slots=slots))


def test_a_table_of_many_pages_is_looked_at_by_several_blocks(session: HostSession) -> None:
    q, pages = session.put(np.ones((3, 1, 1, 8))), session.put(np.ones((2, 1, 1, 8)))
    tables = np.zeros((3, 300), np.int32)
    lengths = session.put(np.array([300, 2, 0], "i4"))

    def attend() -> Any:
        op = PagedForward(q=q, k_pages=pages, v_pages=pages, block_tables=session.put(tables), seqlens_k=lengths)
        return session.get(session.submit(op).out)

    tables[1, 2:] = 99  # behind its length
    np.testing.assert_allclose(attend()[:2], 1)
    tables[0, 290] = 2
    with pytest.raises(ShapeError, match="block_tables names a page that does not exist; there are 2"):
        attend()


@pytest.mark.parametrize("dim, heads, lengths", [(128, (8, 2), [300, 0, 129]), (64, (9, 1), [17, 32, 5])])
def test_decoding_by_tensor_cores(
    session: HostSession, cpu: LibrarySession, dim: int, heads: tuple[int, int], lengths: list[int]
) -> None:
    """Parts of a sequence, more heads than a product has columns, and what is behind the lengths is NaN."""
    random, kind = np.random.default_rng(4), DTYPES["bf16"].np
    block, width, count = 32, 10, 30
    q = random.standard_normal((3, 1, heads[0], dim)).astype(kind)
    k, v = (random.standard_normal((count, block, heads[1], dim)).astype(kind) for _ in range(2))
    tables = random.permutation(count).astype(np.int32).reshape(3, width)
    for row, n in zip(tables, lengths, strict=True):
        for pages in (k, v):
            pages[row[n // block], n % block :] = np.nan
            pages[row[n // block + 1 :]] = np.nan
    given = {"sink": random.standard_normal(heads[0]).astype("f4")} if dim == 64 else {}

    def run(s: Any) -> tuple[Any, Any]:
        op = PagedForward(
            q=s.put(q), k_pages=s.put(k), v_pages=s.put(v), block_tables=s.put(tables), causal=True,
            seqlens_k=s.put(np.array(lengths, np.int32)), **{name: s.put(x) for name, x in given.items()},
        )  # fmt: skip
        out, lse = s.submit(op)
        assert s.engine_of(op) in ("callboard decoding", None)
        return s.get(out), s.get(lse)

    for got, want in zip(run(session), run(cpu), strict=True):
        alike(got, want, "bf16")


def test_decoding_by_tensor_cores_looks_at_lengths_pages_and_places(session: HostSession) -> None:
    ones = np.ones((3, 16, 1, 64), DTYPES["bf16"].np)
    pages, tables, lengths = session.put(ones), np.array([[2, 0]], np.int32), np.array([20], np.int32)
    rows = session.put(np.ones((2, 1, 1, 65), DTYPES["bf16"].np))

    def attend(q: Any = rows[:1, :, :, :64], tables: Any = tables, lengths: Any = lengths) -> tuple[str | None, Any]:
        op = PagedForward(
            q=q, k_pages=pages, v_pages=pages, block_tables=session.put(tables), seqlens_k=session.put(lengths)
        )
        out = session.get(session.submit(op).out)
        np.testing.assert_array_equal(out, 1)
        return session.engine_of(op), out

    assert attend()[0] == "callboard decoding"
    attend(rows[1:, :, :, 1:])  # begins at no multiple of 16 bytes: the kernels for everything
    with pytest.raises(ShapeError, match=r"attention\.paged_forward: block_tables names a page that does not exist"):
        attend(tables=tables + 1)
    for wrong in (-1, 33):
        with pytest.raises(ShapeError, match=r"seqlens_k has a length that does not lie between 0 and 32"):
            attend(lengths=np.array([wrong], np.int32))


@pytest.mark.parametrize(
    "batch, heads, rows, parts, keys",
    [(64, (32, 8), 8192, 3, 2736), (1, (32, 8), 8192, 128, 64), (1, (8, 8), 32, 1, 32), (512, (64, 1), 4096, 1, 4096)],
)
def test_parts_of_a_sequence(batch: int, heads: tuple[int, int], rows: int, parts: int, keys: int) -> None:
    """As many as keep a GPU busy, each of whole tiles; together they have all keys."""
    params = AttentionParams(1.0, -1, 0, True, 0.0, 0.0)
    problem = Problem(DTYPES["bf16"], batch, *heads, 128, 128, 1, rows, False, params)
    assert parts_of(problem) == (parts, keys)
    assert parts * keys >= rows > (parts - 1) * keys
