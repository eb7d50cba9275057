"""Indices that point out of a matrix: on the CPU each op refuses them by itself; on CUDA nothing looks."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from sessions import CPU, opened
from sparse_lab import FORMATS, block_parts, parts, put

from callboard.core.errors import ShapeError
from callboard.core.op import Op
from callboard.kernel.sparse import (
    AnyRef,
    BlockedEllRef,
    BsrRef,
    Check,
    Convert,
    CsrRef,
    Sddmm,
    Sort,
    SpGemm,
    SpMm,
    SpMv,
    SpSm,
    SpSv,
    ToDense,
    Transpose,
)
from callboard.testing.device_session import DeviceSession

FAR = 10**8
DENSE = np.array([[1, 2, 0, 0], [3, 4, 0, 0], [0, 0, 5, 6], [0, 0, 0, 8]], np.float32)
BLOCKS = ("bsr", "blocked_ell")
ENTRIES = tuple(FORMATS)

Make = Callable[[Any, Any], Op[Any, Any]]
"""An op with a matrix ``[4, 4]``, from a session and the matrix."""


@pytest.fixture(scope="module", params=CPU)
def session(request: pytest.FixtureRequest) -> Iterator[Any]:
    yield from opened(request.param)


def _square(session: Any) -> Any:
    return session.put(np.ones((4, 4), np.float32))


def _like(session: Any, a: Any) -> Any:
    return put(session, DENSE, "csr", a.indices.dtype.name)


OPS: list[tuple[str, Make, tuple[str, ...]]] = [
    ("sp_mv", lambda s, a: SpMv(a=a, x=s.put(np.ones(4, np.float32))), (*ENTRIES, "bsr")),
    ("sp_mv", lambda s, a: SpMv(a=a, x=s.put(np.ones(4, np.float32)), transpose=True), (*ENTRIES, "bsr")),
    ("sp_mm", lambda s, a: SpMm(a=a, b=_square(s)), (*ENTRIES, *BLOCKS)),
    ("sp_mm", lambda s, a: SpMm(a=a, b=_square(s), transpose=True), (*ENTRIES, *BLOCKS)),
    ("sp_gemm", lambda s, a: SpGemm(a=a, b=_like(s, a)), ("csr",)),
    ("sp_gemm", lambda s, a: SpGemm(a=_like(s, a), b=a), ("csr",)),
    ("sddmm", lambda s, a: Sddmm(a=_square(s), b=_square(s), c=a), ("csr", "bsr")),
    ("sp_sv", lambda s, a: SpSv(a=a, x=s.put(np.ones(4, np.float32)), lower=False), ENTRIES),
    ("sp_sm", lambda s, a: SpSm(a=a, b=_square(s), lower=False), ENTRIES),
    ("to_dense", lambda s, a: ToDense(a=a), (*ENTRIES, *BLOCKS)),
    ("convert", lambda s, a: Convert(a=a, format="coo"), ("csr", "csc", *BLOCKS)),
    ("convert", lambda s, a: Convert(a=a, format="csr"), ("csc", "coo", *BLOCKS)),
    ("convert", lambda s, a: Convert(a=a, format="bsr", block=(2, 2)), (*ENTRIES, "blocked_ell")),
    ("convert", lambda s, a: Convert(a=a, format="blocked_ell", block=(2, 2)), (*ENTRIES, "bsr")),
    ("transpose", lambda s, a: Transpose(a=a), ("bsr",)),
    ("sort", lambda s, a: Sort(a=a, duplicates="sum"), ENTRIES),
]
CASES = [(tag, make, form) for tag, make, forms in OPS for form in forms]


def arrays_of(form: str, index: str) -> dict[str, np.ndarray[Any, Any]]:
    return parts(DENSE, form, index) if form in ENTRIES else block_parts(DENSE, form, (2, 2), index)


def matrix_of(session: Any, form: str, arrays: dict[str, Any], **settings: Any) -> AnyRef:
    refs = {name: session.put(array) for name, array in arrays.items()}
    if form == "blocked_ell":
        return BlockedEllRef(**refs, block=2, shape=(4, 4), **settings)
    return (BsrRef if form == "bsr" else FORMATS[form])(**refs, shape=(4, 4))


@pytest.mark.parametrize("index", ["i32", "i64"])
@pytest.mark.parametrize("tag, make, form", CASES, ids=[f"{tag}-{i}-{form}" for i, (tag, _, form) in enumerate(CASES)])
def test_every_op_refuses_them(session: Any, tag: str, make: Make, form: str, index: str) -> None:
    columns = "cols" if form == "coo" else "indices"
    for value in (FAR, -FAR, -2, 4 if form in ENTRIES else 2):
        arrays = arrays_of(form, index)
        arrays[columns].flat[0] = value
        with pytest.raises(ShapeError, match=rf"sparse\.{tag}: [abc]: {columns} out of range \[-?\d, \d\) \(1 times\)"):
            session.submit(make(session, matrix_of(session, form, arrays)))
    if form == "coo":
        wrong: list[tuple[int, int, str]] = [(-1, FAR, "rows out of range"), (0, -1, "rows out of range")]
        wrong += [] if tag == "sort" else [(0, 3, "rows fall")]
    else:
        wrong = [(0, 1, "does not rise from 0"), (0, -1, "does not rise"), (-1, FAR, "does not rise")]
        wrong += [(1, FAR, "does not rise"), (1, -FAR, "does not rise")]
    for at, value, says in wrong if form != "blocked_ell" else []:
        arrays = arrays_of(form, index)
        arrays["rows" if form == "coo" else "indptr"][at] = value
        with pytest.raises(ShapeError, match=rf"sparse\.{tag}: [abc]: .*{says}"):
            session.submit(make(session, matrix_of(session, form, arrays)))
    session.submit(make(session, matrix_of(session, form, arrays_of(form, index))))


def test_the_library_is_not_made_anew(session: Any) -> None:
    if not isinstance(session, DeviceSession):
        pytest.skip("a session without a device does not make libraries anew")
    x = session.put(np.ones(4, np.float32))

    def misses() -> int:
        return session._run(session.device.stats()).plans["sparse"].misses

    arrays = arrays_of("csr", "i32")
    right = matrix_of(session, "csr", arrays)
    arrays["indices"][0] = FAR
    wrong = matrix_of(session, "csr", arrays)
    session.submit(SpMv(a=right, x=x))
    before = misses()
    for op in (SpMv(a=wrong, x=x), ToDense(a=wrong), Convert(a=wrong, format="bsr", block=(2, 2))):
        with pytest.raises(ShapeError):
            session.submit(op)
    made = misses() - before
    session.submit(SpMv(a=right, x=x))
    assert misses() - before == made <= 2, "its plans were lost with it"


def test_padding_is_allowed_where_it_is_announced(session: Any) -> None:
    arrays = arrays_of("blocked_ell", "i32")
    arrays["indices"][1, 0] = -1
    padded = session.submit(ToDense(a=matrix_of(session, "blocked_ell", arrays)))
    np.testing.assert_array_equal(session.get(padded)[:2], DENSE[:2])
    with pytest.raises(ShapeError, match=r"sparse\.to_dense: a: indices out of range \[0, 2\) \(1 times\)"):
        session.submit(ToDense(a=matrix_of(session, "blocked_ell", arrays, padded=False)))


def test_a_matrix_without_entries_has_no_wrong_index(session: Any) -> None:
    none = np.zeros(0, np.int32)
    empty = CsrRef(session.put(none.astype("f4")), session.put(none), session.put(np.zeros(1, np.int32)), (0, 3))
    assert session.get(session.submit(ToDense(a=empty))).shape == (0, 3)
    held = np.array([0, 1], np.int32)
    no_columns = CsrRef(session.put(np.ones(1, "f4")), session.put(none[:0].repeat(1)), session.put(held), (1, 0))
    with pytest.raises(ShapeError, match="indices is"):
        session.submit(ToDense(a=no_columns))
    no_columns = CsrRef(session.put(np.ones(1, "f4")), session.put(held[:1]), session.put(held), (1, 0))
    with pytest.raises(ShapeError, match=r"indices out of range \[0, 0\) \(1 times\)"):
        session.submit(ToDense(a=no_columns))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(data=st.data(), case=st.sampled_from(CASES), index=st.sampled_from(["i32", "i64"]))
def test_drawn_ones_are_refused_as_the_check_refuses_them(session: Any, data: Any, case: Any, index: str) -> None:
    tag, make, form = case
    arrays = arrays_of(form, index)
    name = data.draw(st.sampled_from([name for name in arrays if name != "values"]), "array")
    limits = np.iinfo(arrays[name].dtype)
    at = data.draw(st.integers(0, arrays[name].size - 1), "at")
    value = data.draw(st.sampled_from([limits.min, limits.max, FAR]) | st.integers(-3, 9), "value")
    assume(not (form == "coo" and tag == "sort" and name == "rows" and 0 <= value < 4))  # any order will do there
    arrays[name].flat[at] = value
    matrix = matrix_of(session, form, arrays)
    try:
        session.submit(Check(a=matrix))
    except ShapeError as e:
        with pytest.raises(ShapeError) as caught:
            session.submit(make(session, matrix))
        said, checked = (str(error).partition(": ")[2].partition(": ")[2] for error in (caught.value, e))
        assert said == checked or (tag == "sort" and said and checked.startswith(said))
    else:
        assume(tag not in ("sp_sv", "sp_sm"))  # a diagonal that the drawn index has left is another error
        session.submit(make(session, matrix))
