"""Conversions of matrices of blocks: from and to every other format, over every index and value dtype."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sparse_lab import FORMATS, VALUES, block_parts, blocky, drawn, parts, put, put_blocks

from callboard.core.errors import ShapeError
from callboard.core.operand import operands_of
from callboard.kernel.sparse import BlockedEllRef, BsrRef, Check, Convert, CooRef, ToDense

SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)  # one session for all
grids = st.tuples(st.integers(0, 6), st.integers(0, 6))
sides = st.sampled_from([1, 2, 3, 4, 8, 17])
seeds = st.integers(0, 2**31)
indices = st.sampled_from(["i32", "i64"])
densities = st.sampled_from([0.0, 0.3, 1.0])
BLOCKS = ("bsr", "blocked_ell")
Parts = dict[str, np.ndarray[Any, Any]]


def assert_parts(session: Any, got: Any, want: Parts) -> None:
    assert list(operands_of(got)) == list(want)
    for name, part in want.items():
        np.testing.assert_array_equal(session.get(getattr(got, name)), part, err_msg=name)
        assert session.get(getattr(got, name)).dtype == part.dtype


def shuffled(arrays: Parts, seed: int) -> Parts:
    """Entries of a row (blocks of a block row) in another order."""
    lines = np.repeat(np.arange(arrays["indptr"].size - 1), np.diff(arrays["indptr"]))
    order = np.lexsort((np.random.default_rng(seed).random(lines.size), lines))
    return {**arrays, "values": arrays["values"][order], "indices": arrays["indices"][order]}


def side_by_side(blocks: Parts, width: int, seed: int | None = None) -> Parts:
    """The parts of a blocked-ELL matrix of so many blocks in a row, from those of a BSR matrix of square blocks.

    Padding comes last and is 0; with a seed it is anywhere and NaN.
    """
    height, (_, side, _) = blocks["indptr"].size - 1, blocks["values"].shape
    values = np.full((height * side, width * side), 0 if seed is None else np.nan, blocks["values"].dtype)
    at = np.full((height, width), -1, blocks["indices"].dtype)
    rng = np.random.default_rng(seed)
    for line in range(height):
        own = range(blocks["indptr"][line], blocks["indptr"][line + 1])
        slots = np.arange(len(own)) if seed is None else np.sort(rng.permutation(width)[: len(own)])
        for slot, k in zip(slots, own, strict=True):
            at[line, slot] = blocks["indices"][k]
            values[line * side : (line + 1) * side, slot * side : (slot + 1) * side] = blocks["values"][k]
    return {"values": values, "indices": at}


def entries(blocks: Parts, shape: tuple[int, int], form: str) -> Parts:
    """What SciPy makes of blocks."""
    values = blocks["values"]
    bits = values.view(np.int16) if values.itemsize == 2 else values  # SciPy has no halves
    made = sp.bsr_array((bits, blocks["indices"], blocks["indptr"]), shape=shape).tocsr()
    if form == "csc":
        made = made.tocsc()
    kind = blocks["indices"].dtype
    found = {"values": made.data.view(values.dtype), "indices": made.indices.astype(kind)}
    if form != "coo":
        return {**found, "indptr": made.indptr.astype(kind)}
    rows = np.repeat(np.arange(shape[0]), np.diff(made.indptr)).astype(kind)
    return {"values": found["values"], "rows": rows, "cols": found["indices"]}


def fullest(blocks: Parts) -> int:
    return int(np.diff(blocks["indptr"]).max(initial=0))


def from_entries(session: Any, a: np.ndarray[Any, Any], form: str, index: str, seed: int) -> Any:
    """The matrix on the device; entries of a row in any order."""
    arrays = parts(a, form, index)
    if form != "coo":
        arrays = shuffled(arrays, seed)
    shape: Any = tuple(map(int, a.shape))
    return FORMATS[form](**{name: session.put(part) for name, part in arrays.items()}, shape=shape)


@pytest.mark.parametrize("target", BLOCKS)
@pytest.mark.parametrize("dtype", VALUES)
@SHARED
@given(
    source=st.sampled_from(["csr", "csc", "coo"]), grid=grids, down=sides, across=sides, index=indices,
    density=densities, seed=seeds,
)  # fmt: skip
def test_entries_to_blocks(
    session: Any, dtype: str, target: str, source: str, grid: tuple[int, int], down: int, across: int, index: str,
    density: float, seed: int,
) -> None:  # fmt: skip
    block = (down, down if target == "blocked_ell" else across)
    a = blocky(seed, grid, block, dtype, density)
    matrix = from_entries(session, a, source, index, seed)
    got = session.submit(Convert(a=matrix, format=target, block=block))  # type: ignore[arg-type]
    assert_parts(session, got, block_parts(a, target, block, index))
    assert got.shape == a.shape
    session.submit(Check(a=got, ordered=True))


@pytest.mark.parametrize("source", BLOCKS)
@pytest.mark.parametrize("dtype", VALUES)
@SHARED
@given(
    data=st.data(), target=st.sampled_from(["csr", "csc", "coo", "blocks"]), grid=grids, down=sides, across=sides,
    index=indices, density=densities, seed=seeds,
)  # fmt: skip
def test_blocks_to_the_others(
    session: Any, dtype: str, source: str, data: Any, target: str, grid: tuple[int, int], down: int, across: int,
    index: str, density: float, seed: int,
) -> None:  # fmt: skip
    """Blocks in any order, padding anywhere."""
    square = source == "blocked_ell" or target == "blocks"
    block = (down, down if square else across)
    a = blocky(seed, grid, block, dtype, density)
    blocks, shape = shuffled(block_parts(a, "bsr", block, index), seed), (int(a.shape[0]), int(a.shape[1]))
    if source == "bsr":
        matrix: Any = BsrRef(**{name: session.put(part) for name, part in blocks.items()}, shape=shape)
    else:
        arrays = side_by_side(blocks, fullest(blocks) + data.draw(st.integers(0, 2), "padding"), seed)
        padded = bool((arrays["indices"] < 0).any()) or data.draw(st.booleans(), "padded")
        at = {name: session.put(part) for name, part in arrays.items()}
        matrix = BlockedEllRef(**at, block=down, shape=shape, padded=padded)
    if target != "blocks":
        got = session.submit(Convert(a=matrix, format=target))  # type: ignore[arg-type]
        assert_parts(session, got, entries(blocks, shape, target))
        return
    given_block = data.draw(st.sampled_from([None, block]), "block")
    if source == "bsr":
        got = session.submit(Convert(a=matrix, format="blocked_ell", block=given_block))
        assert_parts(session, got, side_by_side(blocks, fullest(blocks)))
    else:
        got = session.submit(Convert(a=matrix, format="bsr", block=given_block))
        assert_parts(session, got, blocks)


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("index", ["i32", "i64"])
@pytest.mark.parametrize("source", ["csr", "csc", "coo"])
def test_rows_of_few_entries_beside_rows_of_many(session: Any, index: str, source: str) -> None:
    """The device looks at them in different ways."""
    rng = np.random.default_rng(3)
    a = np.where(rng.random((600, 2000)) < rng.choice([0, 0.001, 0.02, 0.3], (600, 1)), rng.random((600, 2000)), 0)
    want = sp.csr_array(a).tobsr((4, 4))
    want.sort_indices()
    blocks = {"values": want.data, "indices": want.indices, "indptr": want.indptr}
    blocks = {n: p if n == "values" else p.astype("i4" if index == "i32" else "i8") for n, p in blocks.items()}
    matrix = from_entries(session, a, source, index, 5)
    bsr = session.submit(Convert(a=matrix, format="bsr", block=(4, 4)))
    assert_parts(session, bsr, blocks)
    ell = session.submit(Convert(a=matrix, format="blocked_ell", block=(4, 4)))
    assert_parts(session, ell, side_by_side(blocks, fullest(blocks)))
    assert_parts(session, session.submit(Convert(a=bsr, format="blocked_ell")), side_by_side(blocks, fullest(blocks)))
    for made in (bsr, ell):
        for form in ("csr", "csc", "coo"):
            got = session.submit(Convert(a=made, format=form))
            assert_parts(session, got, entries(blocks, a.shape, form))


@pytest.mark.parametrize("target", ["csr", "csc", "coo", "bsr", "blocked_ell"])
@SHARED
@given(source=st.sampled_from(["csr", "csc", "coo", "bsr", "blocked_ell"]), index=indices, seed=seeds, data=st.data())
def test_into_given_arrays(session: Any, target: str, source: str, index: str, seed: int, data: Any) -> None:
    if source == target or (source not in BLOCKS and target not in BLOCKS):
        return  # nothing of these depends on data
    a, block = blocky(seed, (3, 4), (2, 2), "f64"), (2, 2)
    blocks = block_parts(a, "bsr", block, index)
    matrix = put_blocks(session, a, source, block, index, 1) if source in BLOCKS else put(session, a, source, index)
    known = source == "bsr" and target != "blocked_ell"
    want = entries(blocks, a.shape, target) if target not in BLOCKS else block_parts(a, target, block, index)
    found = want["indices"].shape[1] if target == "blocked_ell" else want["values"].shape[0]
    what = {"bsr": "blocks", "blocked_ell": "blocks in a row"}.get(target, "entries")
    room = found if known else max(0, found + data.draw(st.integers(-2, 3), "more room than needed"))

    def given_out() -> Any:
        """Arrays with room, filled with 7."""
        if target == "blocked_ell":
            values, at = np.full((6, 2 * room), 7.0), np.full((3, room), 7, want["indices"].dtype)
            return BlockedEllRef(session.put(values), session.put(at), 2, (6, 8))
        full = {
            n: np.full((room, *p.shape[1:]) if n != "indptr" else p.shape, 7, p.dtype) for n, p in want.items()
        }  # fmt: skip
        form: Any = {**FORMATS, "bsr": BsrRef}[target]
        return form(**{name: session.put(part) for name, part in full.items()}, shape=(6, 8))

    count = None if known else session.empty((), "i64")
    op = Convert(a=matrix, format=target, block=block if target in BLOCKS else None, out=given_out(), count=count)  # type: ignore[arg-type]
    if room < found:
        with pytest.raises(ShapeError, match=f"{found} {what}, and out has room for {room}; give larger arrays"):
            session.submit(op)
        return
    got = session.submit(op)
    if count is not None:
        assert int(session.get(count)) == found
    for name, part in want.items():
        held = session.get(getattr(got, name))
        if target == "blocked_ell":
            width = part.shape[1]
            np.testing.assert_array_equal(held[:, :width], part)
            np.testing.assert_array_equal(held[:, width:], -1 if name == "indices" else 0)
        else:
            np.testing.assert_array_equal(held[: len(part)], part)
            assert (held[len(part) :] == 7).all(), "what is left stays as it was"


def test_of_no_padding_the_size_is_known(session: Any) -> None:
    a = blocky(2, (3, 3), (2, 2), "f32", 1.0)
    ell = put_blocks(session, a, "blocked_ell", (2, 2))
    full = BlockedEllRef(ell.values, ell.indices, 2, ell.shape, padded=False)
    count = session.empty((), "i64")
    out = CooRef(session.empty(36, "f32"), session.empty(36, "i32"), session.empty(36, "i32"), (6, 6))
    with pytest.raises(ShapeError, match="out and count go together"):
        session.submit(Convert(a=ell, format="coo", out=out))
    with pytest.raises(ShapeError, match="count is given, and the number of entries is known beforehand"):
        session.submit(Convert(a=full, format="coo", out=out, count=count))
    session.submit(Convert(a=full, format="coo", out=out))
    np.testing.assert_array_equal(session.get(session.submit(ToDense(a=out))), a)


def test_what_does_not_fit_is_refused_by_name(session: Any) -> None:
    a = blocky(1, (2, 3), (2, 2), "f32", 1.0)
    bsr, ell, csr = (
        put_blocks(session, a, "bsr", (2, 2)),
        put_blocks(session, a, "blocked_ell", (2, 2)),
        put(session, a),
    )
    flat = put_blocks(session, drawn(1, (4, 6), "f32"), "bsr", (2, 3))

    def refused(op: Any, says: str) -> None:
        with pytest.raises(ShapeError) as caught:
            session.submit(op)
        assert says in str(caught.value)

    refused(Convert(a=bsr, format="bsr", block=(2, 2)), "a is a BsrRef already; copy its arrays")
    refused(Convert(a=ell, format="blocked_ell"), "a is a BlockedEllRef already; copy its arrays")
    refused(
        Convert(a=bsr, format="bsr", block=(1, 2)), "block is (1, 2) and a has blocks of (2, 2); convert it to 'csr'"
    )
    refused(Convert(a=bsr, format="blocked_ell", block=(1, 1)), "block is (1, 1) and a has blocks of (2, 2)")
    refused(Convert(a=ell, format="bsr", block=(1, 1)), "block is (1, 1) and a has blocks of (2, 2)")
    refused(Convert(a=flat, format="blocked_ell"), "a has blocks of (2, 3); those of a BlockedEllRef are square")
    refused(Convert(a=csr, format="blocked_ell", block=(2, 3)), "those of a BlockedEllRef are square")
    refused(Convert(a=csr, format="blocked_ell"), "a BlockedEllRef consists of blocks; pass block=(rows, columns)")
    refused(Convert(a=csr, format="bsr", block=(3, 2)), "block is (3, 2); blocks have at least")
    refused(Convert(a=bsr, format="csr", block=(2, 2)), "a CsrRef has no blocks; leave block out")
    refused(Convert(a=csr, format="csc", count=session.empty((), "i64")), "count is given, and the number of entries")
    refused(Convert(a=csr, format="bsr", block=(2, 2), out=bsr), "out and count go together")
    refused(Convert(a=bsr, format="csc", out=csr), "out is a CsrRef, expected a CscRef")
