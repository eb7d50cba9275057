"""Selections, partitions and runs: results as long as what is found, and into given arrays."""

from typing import Any

import numpy as np
import pytest
from cub_lab import ORDERED, drawn, lengths, same, seeds, wide
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.kernel import cub
from callboard.testing.session import LibrarySession

SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)  # one session for all
COMPARISONS = {
    "less": np.less, "less_equal": np.less_equal, "equal": np.equal,
    "not_equal": np.not_equal, "greater": np.greater, "greater_equal": np.greater_equal,
}  # fmt: skip
densities = st.sampled_from([0.0, 0.02, 0.5, 1.0])


def flags_of(seed: int, n: int, density: float, dtype: str = "bool") -> Any:
    return (np.random.default_rng(seed + 9).random(n) < density).astype(DTYPES[dtype].np) * DTYPES[dtype].np.type(1)


@SHARED
@given(
    n=lengths, density=densities, dtype=st.sampled_from(["f8_e4m3", "bf16", "f32", "i64", "c128", "bool"]), seed=seeds,
    flag=st.sampled_from(["bool", "u8", "i8"]),
)  # fmt: skip
def test_select(session: Any, n: int, density: float, dtype: str, seed: int, flag: str) -> None:
    x = np.random.default_rng(seed).integers(0, 100, n).astype(DTYPES[dtype].np)
    flags = flags_of(seed, n, density, flag)
    got = session.submit(cub.Select(x=session.put(x), flags=session.put(flags)))
    assert session.get(got).tobytes() == x[flags != 0].tobytes()


@pytest.mark.parametrize("dtype", ORDERED)
@SHARED
@given(n=lengths, comparison=st.sampled_from(sorted(COMPARISONS)), seed=seeds)
def test_select_if(session: Any, dtype: str, n: int, comparison: Any, seed: int) -> None:
    x = drawn(seed, n, dtype, few=True)
    got = session.get(session.submit(cub.SelectIf(x=session.put(x), comparison=comparison, number=1)))
    same(got, x[COMPARISONS[comparison](wide(x), 1)])


@pytest.mark.parametrize("comparison", sorted(COMPARISONS))
@pytest.mark.parametrize("number", [-1, 300, 2**40])
def test_a_number_beyond_the_dtype(session: Any, comparison: Any, number: int) -> None:
    x = np.arange(250, 256, dtype=np.uint8)
    got = session.get(session.submit(cub.SelectIf(x=session.put(x), comparison=comparison, number=number)))
    same(got, x[COMPARISONS[comparison](x.astype(np.int64), number)])


@pytest.mark.parametrize("dtype", ["f16", "f32", "i32"])
def test_a_custom_predicate(session: Any, dtype: str) -> None:
    x = drawn(4, 5000, dtype, odd=False, few=True)
    texts: Any = {"cuda": "return a > 0 && a < 3;", "python": "(a > 0) & (a < 3)"}
    got = session.get(session.submit(cub.SelectIf(x=session.put(x), comparison="custom", **texts)))
    same(got, x[(wide(x) > 0) & (wide(x) < 3)])


def runs(seed: int, n: int, dtype: str) -> Any:
    """Numbers that are often repeated."""
    rng = np.random.default_rng(seed)
    return np.repeat(drawn(seed, n, dtype, few=True), rng.integers(1, 5, n))[:n]


def begins(x: Any) -> Any:
    return np.flatnonzero(np.concatenate([[True], wide(x)[1:] != wide(x)[:-1]])[: x.size])


@pytest.mark.parametrize("dtype", ORDERED)
@SHARED
@given(n=lengths, seed=seeds)
def test_runs(session: Any, dtype: str, n: int, seed: int) -> None:
    x = runs(seed, n, dtype)
    ref, at = session.put(x), begins(x)
    same(session.get(session.submit(cub.Unique(x=ref))), x[at])
    coded = session.submit(cub.RunLengthEncode(x=ref))
    values, counted = session.get(coded.values), session.get(coded.lengths)
    same(values, x[at])
    same(counted, np.diff(at, append=x.size).astype(np.int64))
    back = session.submit(cub.RunLengthDecode(values=session.put(values), lengths=session.put(counted)))
    same(session.get(back), x)


@SHARED
@given(
    n=lengths,
    dtype=st.sampled_from(["f16", "f32", "i64", "bool"]),
    value=st.sampled_from(["u8", "f16", "i32", "f64", "c128"]),
    seed=seeds,
)
def test_unique_by_key(session: Any, n: int, dtype: str, value: str, seed: int) -> None:
    keys, values = runs(seed, n, dtype), np.arange(n).astype(DTYPES[value].np)
    got = session.submit(cub.UniqueByKey(keys=session.put(keys), values=session.put(values)))
    same(session.get(got.keys), keys[begins(keys)])
    same(session.get(got.values), values[begins(keys)])


@SHARED
@given(
    n=lengths, index=st.sampled_from(["i32", "i64"]), dtype=st.sampled_from(["u8", "bf16", "f32", "c128"]), seed=seeds
)
def test_run_length_decode(session: Any, n: int, index: str, dtype: str, seed: int) -> None:
    values = np.arange(n).astype(DTYPES[dtype].np)
    repeats = np.random.default_rng(seed).integers(0, 6, n).astype(DTYPES[index].np)
    got = session.submit(cub.RunLengthDecode(values=session.put(values), lengths=session.put(repeats)))
    assert session.get(got).tobytes() == np.repeat(values, repeats).tobytes()


@SHARED
@given(
    n=lengths, density=densities, second=st.none() | densities,
    dtype=st.sampled_from(["u8", "f16", "f32", "c64", "c128"]), seed=seeds,
)  # fmt: skip
def test_partition(session: Any, n: int, density: float, second: float | None, dtype: str, seed: int) -> None:
    x = np.arange(n).astype(DTYPES[dtype].np)
    flags = flags_of(seed, n, density)
    others = None if second is None else flags_of(seed + 1, n, second, "u8")
    op = cub.Partition(
        x=session.put(x), flags=session.put(flags), second=None if others is None else session.put(others)
    )
    got = session.submit(op)
    parts = [x[flags], x[~flags]]
    if others is not None:
        parts = [x[flags], x[~flags & (others != 0)], x[~flags & (others == 0)]]
    same(session.get(got.out), np.concatenate(parts))
    assert session.get(got.counts).tolist() == [part.size for part in parts]


# -- given arrays ------------------------------------------------------------------------------------------------------


def _check_beyond(session: Any, whole: Any, room: int, strided: bool, failed: bool) -> None:
    """Nothing is written beyond a given array, nor by an op that fails; a device does not show what that left."""
    if failed and not isinstance(session, LibrarySession):
        return
    around = session.get(whole)
    assert ((around[room:] if strided else around.reshape(-1)[room:]) == -1).all()


@SHARED
@given(
    n=st.sampled_from([0, 1, 300, 5000]), density=densities, spare=st.integers(-3, 3), strided=st.booleans(), seed=seeds
)
def test_select_into_given_arrays(session: Any, n: int, density: float, spare: int, strided: bool, seed: int) -> None:
    x, flags = np.arange(n, dtype=np.float32), flags_of(seed, n, density)
    found = int(flags.sum())
    room = max(found + spare, 0)
    whole = session.put(np.full((room + 8, 2), -1, np.float32))
    out, count = whole[:room, 0] if strided else whole.reshape(-1)[:room], session.empty((), "i64")
    op = cub.Select(x=session.put(x), flags=session.put(flags), out=out, count=count)
    if found > room:
        with pytest.raises(ShapeError, match=f"cub.select: {found} elements, and out has room for {room}; give larger"):
            session.submit(op)
    else:
        session.submit(op)
        np.testing.assert_array_equal(session.get(out), np.append(x[flags], [-1] * (room - found)))
        assert int(session.get(count)) == found
    _check_beyond(session, whole, room, strided, found > room)


@pytest.mark.parametrize("room", [0, 3, 250, 300])
@pytest.mark.parametrize("strided", [False, True])
def test_select_if_into_given_arrays(session: Any, room: int, strided: bool) -> None:
    x = np.arange(300, dtype=np.float32)
    whole, count = session.put(np.full((room + 8, 2), -1, np.float32)), session.empty((), "i64")
    out = whole[:room, 0] if strided else whole.reshape(-1)[:room]
    op = cub.SelectIf(x=session.put(x), comparison="greater_equal", number=60, out=out, count=count)
    if room < 240:
        with pytest.raises(ShapeError, match=f"cub.select_if: 240 elements, and out has room for {room}; give larger"):
            session.submit(op)
    else:
        session.submit(op)
        assert int(session.get(count)) == 240
        np.testing.assert_array_equal(session.get(out), np.append(x[60:], [-1] * (room - 240)))
    _check_beyond(session, whole, room, strided, room < 240)


@pytest.mark.parametrize("room", [2, 3, 9])
def test_runs_into_given_arrays(session: Any, room: int) -> None:
    x = session.put(np.array([4, 4, 7, 7, 7, 1], np.int32))
    values, sizes, count = session.empty(room, "i32"), session.empty(room, "i64"), session.empty((), "i64")
    op = cub.RunLengthEncode(x=x, values=values, lengths=sizes, count=count)
    if room < 3:
        with pytest.raises(ShapeError, match="3 elements, and out has room for 2"):
            session.submit(op)
        return
    session.submit(op)
    assert session.get(values)[:3].tolist() == [4, 7, 1]
    assert session.get(sizes)[:3].tolist() == [2, 3, 1]
    assert int(session.get(count)) == 3
    back, total = session.empty(7, "i32"), session.empty((), "i64")
    session.submit(cub.RunLengthDecode(values=values[:3], lengths=sizes[:3], out=back, count=total))
    assert session.get(back)[:6].tolist() == [4, 4, 7, 7, 7, 1]
    assert int(session.get(total)) == 6
