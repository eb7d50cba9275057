"""Batched products: at one distance, anywhere, of different shapes."""

from typing import Any

import numpy as np
import pytest
from blas_lab import (
    SHARED,
    dtypes,
    execute,
    extents,
    factors,
    matrix_layouts,
    place_matrix,
    poisoned,
    scale_of,
    seeds,
    swap_axes,
    turned,
    values,
    wide,
)
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES, DType
from callboard.kernel.blas import GemmBatched, GemmGrouped, GemmStridedBatched
from callboard.testing.tolerances import assert_close

FLOATS = ("f16", "bf16", "f32", "f64", "c64", "c128")
EVERY = [pytest.param(DTYPES[name], id=name) for name in FLOATS]


def check_stack(got: Any, dtype: DType, a: Any, b: Any, c: Any = None, alpha: Any = 1, beta: Any = 0) -> None:
    want, scale = alpha * (a @ b), abs(alpha) * (abs(a) @ abs(b))
    if c is not None and beta != 0:
        want, scale = want + beta * c, scale + abs(beta) * abs(c)
    assert_close(got, want, dtype, a.shape[-1] + 2, scale=scale)


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), batch=st.integers(0, 4), m=extents, n=extents, k=extents, seed=seeds)
def test_stacks_of_any_layout(
    session: Any, data: st.DataObject, dtype: DType, batch: int, m: int, n: int, k: int, seed: int
) -> None:
    of_a, of_b = (1 if data.draw(st.booleans()) else batch for _ in range(2))
    shared = of_a == of_b == 1
    transpose = data.draw(st.booleans())
    a = values(dtype, (of_a, k, m) if transpose else (of_a, m, k), seed)
    b = values(dtype, (of_b, n, k) if transpose else (of_b, k, n), seed + 1)
    at_a, at_b = (place_matrix(session, x, data.draw(matrix_layouts)) for x in (a, b))
    count = 1 if shared else batch
    out = None
    if data.draw(st.booleans()):
        out = place_matrix(session, poisoned(dtype, (count, m, n)), data.draw(matrix_layouts))
    alpha, beta = data.draw(factors()), data.draw(factors())
    c = values(dtype, (count, m, n), seed + 2) if beta.on_device or beta.value != 0 else None
    at_c = None if c is None else place_matrix(session, c, data.draw(matrix_layouts))
    op = GemmStridedBatched(
        a=at_a.ref,
        b=at_b.ref,
        out=None if out is None else out.ref,
        c=None if at_c is None else at_c.ref,
        alpha=alpha.of(session, scale_of(dtype)),
        beta=beta.of(session, scale_of(dtype)),
        transpose_a=transpose,
        transpose_b=transpose,
    )
    result = execute(session, op)
    wide_a, wide_b = (wide(x).swapaxes(1, 2) if transpose else wide(x) for x in (a, b))
    check_stack(session.get(result), dtype, wide_a, wide_b, None if c is None else wide(c), alpha.value, beta.value)
    if out is not None:
        out.check_surroundings(session)


@pytest.mark.parametrize("dtype", EVERY)
def test_a_stack_of_every_other_matrix(session: Any, dtype: DType) -> None:
    a, b = values(dtype, (6, 3, 5), 1), values(dtype, (3, 5, 4), 2)
    out = session.put(np.full((6, 3, 4), 77, dtype.np))
    op = GemmStridedBatched(a=session.put(a)[::2], b=session.put(b), out=out[1::2])
    check_stack(session.get(execute(session, op)), dtype, wide(a)[::2], wide(b))
    np.testing.assert_array_equal(wide(session.get(out))[::2], 77)


@pytest.mark.parametrize("name", ["c64", "c128"])
def test_conjugate_transposes_of_stacks(session: Any, name: str) -> None:
    dtype = DTYPES[name]
    a, b = values(dtype, (3, 5, 2), 1), values(dtype, (3, 5, 4), 2)
    rows, columns = session.put(a), swap_axes(session.put(b.swapaxes(1, 2).copy()))
    op = GemmStridedBatched(a=rows, b=columns, transpose_a=True, conj_a=True, conj_b=True)
    check_stack(session.get(execute(session, op)), dtype, wide(a).swapaxes(1, 2).conj(), wide(b).conj())


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), batch=st.integers(1, 4), m=extents, n=extents, k=extents, seed=seeds)
def test_matrices_anywhere(
    session: Any, data: st.DataObject, dtype: DType, batch: int, m: int, n: int, k: int, seed: int
) -> None:
    layout_a, layout_b = data.draw(matrix_layouts), data.draw(matrix_layouts)
    flags = {name: data.draw(st.booleans(), name) for name in ("transpose_a", "transpose_b")}
    a = [values(dtype, (k, m) if flags["transpose_a"] else (m, k), seed + i) for i in range(batch)]
    b = [values(dtype, (n, k) if flags["transpose_b"] else (k, n), seed + 9 + i) for i in range(batch)]
    alpha, beta = data.draw(factors()), data.draw(factors())
    c = values(dtype, (batch, m, n), seed + 20) if beta.on_device or beta.value != 0 else None
    in_place = c is not None and data.draw(st.booleans())
    at_c = None if c is None else place_matrix(session, c, data.draw(matrix_layouts))
    op = GemmBatched(
        a=tuple(place_matrix(session, x, layout_a).ref for x in a),
        b=tuple(place_matrix(session, x, layout_b).ref for x in b),
        c=None if at_c is None else at_c.ref,
        out=at_c.ref if in_place and at_c is not None else None,
        alpha=alpha.of(session, scale_of(dtype)),
        beta=beta.of(session, scale_of(dtype)),
        **flags,
    )
    got = session.get(execute(session, op))
    wide_a = np.stack([turned(wide(x), flags["transpose_a"], False) for x in a])
    wide_b = np.stack([turned(wide(x), flags["transpose_b"], False) for x in b])
    check_stack(got, dtype, wide_a, wide_b, None if c is None else wide(c), alpha.value, beta.value)


def test_one_matrix_may_occur_several_times(session: Any) -> None:
    dtype = DTYPES["f32"]
    a, b = values(dtype, (3, 4), 1), values(dtype, (4, 2), 2)
    at_a, at_b = session.put(a), session.put(b)
    got = session.get(execute(session, GemmBatched(a=(at_a, at_a, at_a), b=(at_b, at_b, at_b))))
    check_stack(got, dtype, np.stack([wide(a)] * 3), np.stack([wide(b)] * 3))


@SHARED
@given(
    data=st.data(),
    dtype=dtypes(*FLOATS),
    shapes=st.lists(st.tuples(extents, extents, extents), min_size=1, max_size=5),
    seed=seeds,
)
def test_products_of_different_shapes(
    session: Any, data: st.DataObject, dtype: DType, shapes: list[tuple[int, int, int]], seed: int
) -> None:
    a = [values(dtype, (m, k), seed + i) for i, (m, _, k) in enumerate(shapes)]
    b = [values(dtype, (k, n), seed + 9 + i) for i, (_, n, k) in enumerate(shapes)]
    alpha, beta = data.draw(factors()), data.draw(factors())
    read = beta.value != 0
    c = [(values if read else lambda d, s, _: poisoned(d, s))(dtype, (m, n), seed) for m, n, _ in shapes]
    at = {
        name: [place_matrix(session, x, data.draw(matrix_layouts)) for x in stack]
        for name, stack in zip("abc", (a, b, c), strict=True)
    }
    op = GemmGrouped(
        **{name: tuple(p.ref for p in placed) for name, placed in at.items()},
        alpha=alpha.of(session, scale_of(dtype)),
        beta=beta.of(session, scale_of(dtype)),
    )
    results = execute(session, op)
    assert len(results) == len(shapes)
    for x, y, z, result, placed in zip(a, b, c, results, at["c"], strict=True):
        check_stack(session.get(result), dtype, wide(x), wide(y), wide(z), alpha.value, beta.value)
        placed.check_surroundings(session)


@pytest.mark.parametrize("name", ["c64", "c128"])
def test_a_group_of_conjugate_transposes(session: Any, name: str) -> None:
    dtype = DTYPES[name]
    a = [values(dtype, (5, m), m) for m in (2, 3)]
    b = [values(dtype, (n, 5), n) for n in (4, 1)]
    op = GemmGrouped(
        a=tuple(session.put(x) for x in a),
        b=tuple(session.put(x) for x in b),
        c=tuple(session.empty((x.shape[1], y.shape[0]), dtype) for x, y in zip(a, b, strict=True)),
        transpose_a=True,
        transpose_b=True,
        conj_a=True,
        conj_b=True,
    )
    for x, y, result in zip(a, b, execute(session, op), strict=True):
        check_stack(session.get(result), dtype, wide(x).conj().T, wide(y).conj().T)


@pytest.mark.parametrize("form", ["strided", "pointers", "grouped"])
def test_i8_is_exact_in_every_form(session: Any, form: str) -> None:
    i8 = DTYPES["i8"]
    a, b = values(i8, (3, 8, 16), 1), values(i8, (3, 16, 4), 2)
    want = np.einsum("bij,bjk->bik", a.astype(np.int64), b.astype(np.int64))
    if form == "strided":
        got = session.get(execute(session, GemmStridedBatched(a=session.put(a), b=session.put(b))))
    else:
        apart = {"a": tuple(map(session.put, a)), "b": tuple(map(session.put, b))}
        if form == "pointers":
            got = session.get(execute(session, GemmBatched(**apart)))
        else:
            c = tuple(session.empty((8, 4), "i32") for _ in a)
            got = np.stack([session.get(x) for x in execute(session, GemmGrouped(**apart, c=c))])
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, want)
