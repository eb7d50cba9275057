"""Pruning, checks and compression of structured matrices, against their definitions."""

import functools
import itertools
from typing import Any

import numpy as np
import pytest
from blas_lab import SHARED, Array, execute
from hypothesis import given, settings
from hypothesis import strategies as st
from sparse_lt_lab import LAYOUTS, NAMES, STEP, compressed, drawn, has_pattern, place, size_of, steps, structured, wide

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError
from callboard.kernel.sparse_lt import Check, Compress, Decompress, Matmul, Prune, StructuredRef

EVERY = [pytest.param(DTYPES[name], id=name) for name in NAMES]
ALGORITHMS = ("strip", "tile")
row_layouts = st.sampled_from(LAYOUTS[:2])
seeds = st.integers(0, 2**16)


def groups(x: Array, size: int) -> tuple[int, ...]:
    return (*x.shape[:-1], x.shape[-1] // size, size)


def strip_magnitude(x: Array, size: int) -> Array:
    """The most that the kept elements of each group can add up to."""
    found: Array = np.sort(abs(wide(x)).reshape(groups(x, size)), -1)[..., size // 2 :].sum(-1)
    return found


@functools.cache
def choices(size: int) -> Array:
    """Every way to keep half of each row and of each column of a tile."""
    halves = [line for line in itertools.product((0.0, 1.0), repeat=size) if sum(line) == size // 2]
    every = np.array(list(itertools.product(halves, repeat=size)))
    found: Array = every[(every.sum(1) == size // 2).all(1)]
    return found


def tile_magnitude(x: Array, size: int) -> Array:
    """The most that the kept elements of each tile can add up to, by trying every choice."""
    tiles = tiled(abs(wide(x)), size)
    found: Array = np.einsum("...ij,cij->...c", tiles, choices(size)).max(-1)
    return found


def tiled(x: Array, size: int) -> Array:
    *batch, rows, cols = x.shape
    return x.reshape(*batch, rows // size, size, cols // size, size).swapaxes(-2, -3)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("dtype", EVERY)
@settings(SHARED, max_examples=12)
@given(data=st.data())
def test_prune_keeps_the_largest_magnitude(session: Any, dtype: DType, algorithm: str, data: st.DataObject) -> None:
    size, batch = size_of(dtype), data.draw(st.sampled_from([(), (1,), (3,)]), "batch")
    step = data.draw(st.sampled_from([STEP[dtype.name], size]), "step")
    shape = (*batch, step * data.draw(st.integers(0, 3), "outer"), step * data.draw(st.integers(1, 3), "k"))
    x = drawn(dtype, shape, data.draw(seeds))
    given_x = place(session, x, data.draw(row_layouts))
    out = data.draw(st.sampled_from(["new", "given", "itself"]))
    target = place(session, np.zeros_like(x), data.draw(row_layouts)) if out == "given" else given_x
    op = Prune(x=given_x.ref, out=None if out == "new" else target.ref, algorithm=algorithm)  # type: ignore[arg-type]
    got = session.get(execute(session, op))
    stays = wide(got) != 0
    np.testing.assert_array_equal(wide(got)[stays], wide(x)[stays])
    if algorithm == "strip":
        np.testing.assert_array_equal(strip_magnitude(got, size), strip_magnitude(x, size))
        np.testing.assert_array_equal(abs(wide(got)).reshape(groups(got, size)).sum(-1), strip_magnitude(x, size))
        assert has_pattern(got, size).all()
    else:
        assert has_pattern(got, size).all()
        assert has_pattern(got.swapaxes(-1, -2), size).all()
        sums = abs(tiled(wide(got), size)).sum((-1, -2))
        np.testing.assert_allclose(sums, tile_magnitude(x, size), rtol=1e-6)
    if out != "new":
        target.check_surroundings(session)


@pytest.mark.parametrize("dtype", EVERY)
@settings(SHARED, max_examples=12)
@given(data=st.data())
def test_check_tells_one_element_too_many(session: Any, dtype: DType, data: st.DataObject) -> None:
    size, batch = size_of(dtype), data.draw(st.sampled_from([(), (2,)]), "batch")
    shape = (*batch, data.draw(steps(dtype)), data.draw(steps(dtype)))
    x = structured(dtype, shape, data.draw(seeds))
    layout = data.draw(row_layouts)
    assert session.get(execute(session, Check(x=place(session, x, layout).ref))) == 0
    where = tuple(data.draw(st.integers(0, n - 1)) for n in shape)
    group = slice(where[-1] // size * size, where[-1] // size * size + size)
    x[(*where[:-1], group)] = 0
    x[(*where[:-1], slice(group.start, group.start + size // 2 + 1))] = 1
    out = session.put(np.int32(-5)) if data.draw(st.booleans()) else None
    assert session.get(execute(session, Check(x=place(session, x, layout).ref, out=out))) == 1


@pytest.mark.parametrize("dtype", EVERY)
@settings(SHARED, max_examples=15)
@given(data=st.data())
def test_what_was_compressed_comes_back(session: Any, dtype: DType, data: st.DataObject) -> None:
    batch = data.draw(st.sampled_from([(), (1,), (3,)]), "batch")
    step = data.draw(st.sampled_from([STEP[dtype.name], size_of(dtype)]), "step")
    shape = (*batch, step * data.draw(st.integers(0, 4), "outer"), step * data.draw(st.integers(1, 4), "k"))
    x = structured(dtype, shape, data.draw(seeds))
    a = execute(session, Compress(x=place(session, x, data.draw(row_layouts)).ref))
    assert (a.dtype, a.shape) == (dtype.name, shape)
    target = place(session, drawn(dtype, shape, 1), data.draw(row_layouts))
    out = target.ref if data.draw(st.booleans()) else None
    got = session.get(execute(session, Decompress(a=a, out=out)))
    np.testing.assert_array_equal(wide(got), wide(x))
    if out is not None:
        target.check_surroundings(session)


@pytest.mark.parametrize("dtype", EVERY)
def test_compress_into_what_was_given(session: Any, dtype: DType) -> None:
    step = STEP[dtype.name]
    first, second = (structured(dtype, (2 * step, 4 * step), seed) for seed in (1, 2))
    a = compressed(session, first)
    b = session.submit(Compress(x=session.put(second), out=a))
    assert b.shape == a.shape
    np.testing.assert_array_equal(wide(session.get(session.submit(Decompress(a=a)))), wide(second))


@pytest.mark.parametrize("dtype", EVERY)
def test_a_matrix_without_the_pattern_is_not_compressed(session: Any, dtype: DType) -> None:
    step = STEP[dtype.name]
    x = structured(dtype, (step, 2 * step), 1)
    x[-1, -size_of(dtype) :] = 1
    with pytest.raises(ShapeError, match=r"sparse_lt\.compress: x is .* and not (2:4|1:2): .* prune it first"):
        session.submit(Compress(x=session.put(x)))
    x[-1, -1] = 0
    x[-1, -size_of(dtype)] = 0
    assert compressed(session, x).shape == x.shape


def test_what_was_enqueued_on_it_fails_with_it(session: Any) -> None:
    """Known only when the device has looked, and then for the product as well."""
    if not hasattr(session, "device") or not hasattr(session.device, "sparse_lt"):
        pytest.skip("a library session waits for each op")
    x = session.put(np.ones((16, 16), np.float16))
    a = session.device.sparse_lt.compress(x)
    product = session.device.sparse_lt.matmul(a, x)
    with pytest.raises(ShapeError, match="prune it first"):
        session.get(product)
    with pytest.raises(ShapeError, match="prune it first"):
        a.result(60)


@pytest.mark.parametrize("dtype", EVERY)
def test_bytes_of_another_matrix_are_refused(session: Any, dtype: DType) -> None:
    step = STEP[dtype.name]
    a = compressed(session, structured(dtype, (2 * step, 4 * step), 1))
    b = session.put(drawn(dtype, (4 * step, 2 * step), 2))
    other = "bf16" if dtype.itemsize != 2 else "i8"
    for wrong in (
        StructuredRef(a.data, a.dtype, (2 * step, 3 * step)),
        StructuredRef(a.data, other, a.shape),
        StructuredRef(a.data[1:], a.dtype, a.shape),
        StructuredRef(b, a.dtype, a.shape),
    ):
        with pytest.raises(ShapeError, match=r"a\.data is .*, as sparse_lt\.compress makes it"):
            session.submit(Decompress(a=wrong))
        with pytest.raises(ShapeError, match=r"a\.data is .*, as sparse_lt\.compress makes it"):
            session.submit(Matmul(a=wrong, b=b))
