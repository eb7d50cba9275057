"""Decoding over pages by our own kernels, compiled by g++: what the conformance suite does not reach."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from host_backend import HostSession

from callboard.backends.cuda.attention.decode import parts_of
from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.kernel.attention import PagedForward
from callboard.kernel.attention.scores import AttentionParams, Problem
from callboard.testing.session import LibrarySession


@pytest.fixture(scope="module")
def cpu() -> Iterator[LibrarySession]:
    with LibrarySession("cpu") as opened:
        yield opened


def alike(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), rtol=3e-2, atol=0.24)


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
        alike(got, want)


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
