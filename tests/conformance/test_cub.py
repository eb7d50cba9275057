"""Reductions and scans, and that every message runs."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cub_lab import FLOATS, ORDERED, drawn, lengths, operations_of, same, seeds, wide
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sessions import serving
from tests.kernel.computed import message_of

from callboard.core.dtype import DTYPES
from callboard.core.errors import LibraryError, ShapeError, UnsupportedOp
from callboard.core.op import OPS
from callboard.kernel import cub
from callboard.testing.tolerances import assert_close

SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=12)  # one session for all
FUNCTIONS: dict[str, Any] = {"sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum}


def numbers(seed: int, shape: Any, dtype: str, operation: str) -> Any:
    """Such that each order of additions gives nearly the same."""
    if operation == "product" and dtype in FLOATS:
        return np.where(np.random.default_rng(seed).random(shape) < 0.5, 1, -1).astype(DTYPES[dtype].np)
    return drawn(seed, shape, dtype, odd=operation in ("min", "max"))


def reduced(x: Any, operation: str, dtype: str) -> Any:
    work = np.float64 if dtype in FLOATS else DTYPES[dtype].np
    if dtype == "bool":
        return FUNCTIONS[operation].reduce(x, axis=-1)
    return FUNCTIONS[operation].reduce(x.astype(work), axis=-1, dtype=work)


@pytest.mark.parametrize("dtype", ORDERED)
@SHARED
@given(n=lengths, data=st.data(), seed=seeds)
def test_reduce(session: Any, dtype: str, n: int, data: st.DataObject, seed: int) -> None:
    operation = data.draw(operations_of(dtype))
    x = numbers(seed, n, dtype, operation)
    if not n and operation in ("min", "max"):
        with pytest.raises(ShapeError, match=f"the {operation} of nothing needs init"):
            session.submit(cub.Reduce(x=session.put(x), operation=operation))  # type: ignore[arg-type]
        return
    got = session.get(session.submit(cub.Reduce(x=session.put(x), operation=operation)))  # type: ignore[arg-type]
    want = reduced(x, operation, dtype)
    if dtype in FLOATS and operation == "sum":
        assert_close(got, want, dtype, max(n, 1), scale=np.abs(wide(x).astype(np.float64)).sum())
    else:
        same(got, np.asarray(want).astype(DTYPES[dtype].np))


@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 1000), (70, 300), (4, 0), (0, 4), (2, 40_000), (5000, 3)])
@pytest.mark.parametrize("operation", sorted(FUNCTIONS))
def test_reduce_rows(session: Any, shape: tuple[int, ...], operation: str) -> None:
    x = drawn(5, shape, "i32", few=True)
    got = session.get(session.submit(cub.Reduce(x=session.put(x), operation=operation, init=2)))  # type: ignore[arg-type]
    want = FUNCTIONS[operation].reduce(x, axis=-1, dtype=np.int32, initial=2)
    same(got, want)


@pytest.mark.parametrize(
    "dtype, result", [("i8", "i64"), ("bool", "i64"), ("bool", "f32"), ("u8", "i16"), ("f16", "f32"), ("bf16", "f64")]
)  # fmt: skip
def test_results_of_a_wider_dtype(session: Any, dtype: str, result: str) -> None:
    x = drawn(8, 3000, dtype, odd=False, few=True)
    exact = wide(x).astype(np.float64)
    got = session.get(session.submit(cub.Reduce(x=session.put(x), dtype=result)))
    assert got.dtype == DTYPES[result].np
    assert_close(got, exact.sum(), "f64" if result == "i64" else result, 3000, scale=np.abs(exact).sum())
    scanned = session.get(session.submit(cub.Scan(x=session.put(x), dtype=result)))
    assert_close(scanned, np.cumsum(exact), "f64" if result == "i64" else result, 3000, scale=np.abs(exact).cumsum())


def test_extremes_of_numbers_of_one_sign(session: Any) -> None:
    """The smallest of positive numbers is none of them if a 0 begins."""
    x = np.array([5, 3, 9], np.int32)
    for operation, array, want in (("min", x, 3), ("max", -x, -3), ("product", x, 135)):
        got = session.submit(cub.Reduce(x=session.put(array), operation=operation))  # type: ignore[arg-type]
        assert int(session.get(got)) == want
        rows = session.submit(cub.Reduce(x=session.put(np.stack([array] * 3)), operation=operation))  # type: ignore[arg-type]
        assert session.get(rows).tolist() == [want] * 3


def test_more_elements_than_a_block_of_partial_results_takes(session: Any) -> None:
    n = 1_500_000
    x = np.ones(n, np.int32)
    x[[3, n - 2]] = 5
    ref = session.put(x)
    assert int(session.get(session.submit(cub.Reduce(x=ref)))) == n + 8
    assert int(session.get(session.submit(cub.ArgReduce(x=ref)))) == 3
    np.testing.assert_array_equal(session.get(session.submit(cub.Scan(x=ref))), np.cumsum(x, dtype=np.int32))


@pytest.mark.parametrize("dtype", ORDERED)
@SHARED
@given(n=lengths.filter(bool), rows=st.sampled_from([None, 1, 3, 70]), least=st.booleans(), seed=seeds)
def test_arg_reduce(session: Any, dtype: str, n: int, rows: int | None, least: bool, seed: int) -> None:
    n = min(n, 600) if rows == 70 else n
    x = drawn(seed, n if rows is None else (rows, n), dtype)
    got = session.get(session.submit(cub.ArgReduce(x=session.put(x), operation="min" if least else "max")))
    np.testing.assert_array_equal(got, (np.argmin if least else np.argmax)(wide(x), axis=-1))


@pytest.mark.parametrize("dtype", ORDERED)
@SHARED
@given(
    n=lengths, data=st.data(), exclusive=st.booleans(), init=st.none() | st.integers(0, 3), seed=seeds,
    rows=st.sampled_from([None, 1, 3, 70]),
)  # fmt: skip
def test_scan(
    session: Any,
    dtype: str,
    n: int,
    data: st.DataObject,
    exclusive: bool,
    init: int | None,
    seed: int,
    rows: int | None,
) -> None:
    operation: Any = data.draw(operations_of(dtype))
    n = min(n, 600) if rows == 70 else n
    shape = n if rows is None else (rows, n)
    x = numbers(seed, shape, dtype, operation)
    if dtype == "bool" and init is not None:
        init = min(init, 1)
    got = session.get(session.submit(cub.Scan(x=session.put(x), operation=operation, exclusive=exclusive, init=init)))
    work: Any = np.float64 if dtype in FLOATS else np.uint8 if dtype == "bool" else DTYPES[dtype].np
    want, sizes = (scanned(a, operation, exclusive, init, work) for a in (x.astype(work), np.abs(x.astype(work))))
    if dtype in FLOATS and operation == "sum":
        assert_close(got, want, dtype, max(n, 1), scale=sizes)
    else:
        same(got, want.astype(DTYPES[dtype].np))


def scanned(x: Any, operation: str, exclusive: bool, init: int | None, work: Any) -> Any:
    if init is None:
        limits = None if np.dtype(work).kind == "f" else np.iinfo(work)
        least, most = (-np.inf, np.inf) if limits is None else (limits.min, limits.max)
        init = {"sum": 0, "product": 1, "min": most, "max": least}[operation]
    first = np.full((*x.shape[:-1], 1), init, work)
    found = FUNCTIONS[operation].accumulate(np.concatenate([first, x], -1), axis=-1, dtype=work)
    return found[..., :-1] if exclusive else found[..., 1:]


@SHARED
@given(
    sizes=st.lists(st.sampled_from([0, 0, 1, 2, 31, 33, 300, 1025]), max_size=9), index=st.sampled_from(["i32", "i64"]),
    kind=st.sampled_from([("f16", "sum"), ("f32", "min"), ("i64", "product"), ("u8", "sum"), ("bool", "max")]),
    init=st.none() | st.integers(0, 1), seed=seeds,
)  # fmt: skip
def test_segmented_reduce(
    session: Any, sizes: list[int], index: str, kind: tuple[str, Any], init: int | None, seed: int
) -> None:
    dtype, operation = kind
    x = numbers(seed, sum(sizes), dtype, operation)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(DTYPES[index].np)
    op = cub.SegmentedReduce(x=session.put(x), offsets=session.put(offsets), operation=operation, init=init)
    got = session.get(session.submit(op))
    work: Any = np.float64 if dtype in FLOATS else np.uint8 if dtype == "bool" else DTYPES[dtype].np
    parts = [x[a:b].astype(work) for a, b in itertools.pairwise(offsets)]
    want = np.array([scanned(part, operation, False, init, work)[-1] if part.size else scanned(
        np.zeros(1, work), operation, True, init, work)[0] for part in parts], work)  # fmt: skip
    if dtype in FLOATS and operation == "sum":
        assert_close(got, want, dtype, 1025, scale=[np.abs(part).sum() + 1 for part in parts])
    else:
        same(got, want.astype(DTYPES[dtype].np))


# -- custom operators --------------------------------------------------------------------------------------------------

CUSTOM = {"cuda": "return a > b ? a : b;", "python": "np.maximum(a, b)"}


@pytest.mark.parametrize("dtype", ["f16", "f32", "i64", "u8"])
@pytest.mark.parametrize("shape", [(1,), (0,), (3000,), (70, 33), (3, 0)])
def test_a_custom_operator(session: Any, dtype: str, shape: tuple[int, ...]) -> None:
    x = drawn(11, shape, dtype, odd=False, few=True)
    ref = session.put(x)
    same(
        session.get(session.submit(cub.Reduce(x=ref, operation="custom", init=2, **CUSTOM))),  # type: ignore[arg-type]
        np.asarray(np.maximum.reduce(wide(x), axis=-1, initial=2)).astype(x.dtype),
    )
    got = session.get(session.submit(cub.Scan(x=ref, operation="custom", init=2, **CUSTOM)))  # type: ignore[arg-type]
    same(got, np.maximum(np.maximum.accumulate(wide(x), axis=-1), 2).astype(x.dtype))


def test_a_custom_scan_joins_in_order(session: Any) -> None:
    """Digits behind each other modulo a number: associative, and not commutative."""
    x = np.random.default_rng(3).integers(1, 9, 5000).astype(np.uint32)
    texts = {"cuda": "return b ? b : a;", "python": "np.where(b != 0, b, a)"}  # the last that is not 0
    x[np.random.default_rng(4).random(5000) < 0.7] = 0
    got = session.get(session.submit(cub.Scan(x=session.put(x), operation="custom", init=0, **texts)))  # type: ignore[arg-type]
    last = np.maximum.accumulate(np.where(x != 0, np.arange(5000), -1))
    same(got, np.where(last < 0, 0, x[last]).astype(np.uint32))


def test_a_text_that_is_none(session: Any) -> None:
    bad = {"cuda": "return a +;", "python": "a +"}
    with pytest.raises(LibraryError, match=r"a \+|expected an expression"):
        session.submit(cub.Reduce(x=session.put(np.ones(3, "f4")), operation="custom", init=0, **bad))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["cuda", "python"])
def test_a_backend_without_its_text(session: Any, text: str) -> None:
    op = cub.Reduce(x=session.put(np.ones(3, "f4")), operation="custom", init=0, **{text: CUSTOM[text]})  # type: ignore[arg-type]
    if session.why_not(op) is None:
        assert float(session.get(session.submit(op))) == 1
        return
    with pytest.raises(UnsupportedOp, match="its operator has a body in"):
        session.submit(op)


# -- views and refusals ------------------------------------------------------------------------------------------------


def test_views(session: Any) -> None:
    x = drawn(2, (40, 30), "f32", odd=False)
    ref = session.put(x)
    for view, array in ((ref.T, x.T), (ref[::2, ::-3], x[::2, ::-3]), (ref[5], x[5])):
        same(session.get(session.submit(cub.Sort(keys=view))), np.sort(array))
        got = session.get(session.submit(cub.Scan(x=view, operation="max")))
        same(got, np.maximum.accumulate(array, axis=-1))
        same(session.get(session.submit(cub.Reduce(x=view, operation="min"))), np.asarray(array.min(axis=-1)))
    out = session.put(np.zeros((30, 40), "f4"))
    session.submit(cub.Sort(keys=ref, out=out.T))
    same(session.get(out), np.sort(x).T)


def array(session: Any, shape: Any = 6, dtype: str = "f32") -> Any:
    return session.put(np.ones(shape), dtype)


REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda s: cub.Reduce(x=array(s, dtype="c64")), r"x is c64\[6\]; its dtype must be one of f16"),
    (lambda s: cub.Reduce(x=array(s, dtype="bool")), "pass dtype='i64'"),
    (lambda s: cub.Reduce(x=array(s), dtype="i64"), "dtype is i64 and x is f32; take one at least as wide"),
    (lambda s: cub.Reduce(x=array(s, dtype="i64"), dtype="i32"), "dtype is i32 and x is i64"),
    (lambda s: cub.Reduce(x=array(s, ())), "x is f32.*at least one axis"),
    (lambda s: cub.Reduce(x=array(s, dtype="i32"), init=1.5), "init is a float and the arrays are i32"),
    (lambda s: cub.Reduce(x=array(s), init=array(s, ())), r"init is f32\[\]; pass a number"),
    (lambda s: cub.Reduce(x=array(s), operation="custom", cuda="return a;"), "init is None; a custom operator"),
    (lambda s: cub.Reduce(x=array(s), operation="custom", init=0), "a custom operator has no body"),
    (lambda s: cub.Reduce(x=array(s), cuda="return a;"), "cuda or python is given, and the operator is 'sum'"),
    (lambda s: cub.Reduce(x=array(s, (2, 3)), determinism="not_guaranteed"), "sums of a line of 32 or 64 bits"),
    (lambda s: cub.ArgReduce(x=array(s, (2, 0))), "nothing has no max"),
    (lambda s: cub.SegmentedReduce(x=array(s), offsets=array(s)), r"offsets is f32\[6\]; its dtype must be one of i32"),
    (lambda s: cub.SegmentedReduce(x=array(s), offsets=array(s, 0, "i32")), r"no segment is \[0\]"),
    (lambda s: cub.SortPairs(keys=array(s), values=array(s, 5)), r"values is f32\[5\] and keys f32\[6\]"),
    (lambda s: cub.MergeSort(keys=array(s), values=array(s)), "the comparison has no body"),
    (lambda s: cub.TopK(x=array(s), k=7), "k is 7; it must lie between 0 and the 6 elements"),
    (lambda s: cub.LowerBound(x=array(s), values=array(s, dtype="f64")), "they need one dtype"),
    (lambda s: cub.HistogramEven(x=array(s), bins=0, lower=0, upper=1), "bins is 0; it must lie between 1"),
    (lambda s: cub.HistogramEven(x=array(s), bins=2, lower=1, upper=1), "lower is 1.0 and upper 1.0; they must"),
    (lambda s: cub.HistogramRange(x=array(s), levels=array(s, 1)), "between 2 and"),
    (lambda s: cub.HistogramRange(x=array(s), levels=array(s), channels=7), "channels is 7; x has 6"),
    (lambda s: cub.Select(x=array(s), flags=array(s)), r"flags is f32\[6\]; its dtype must be one of bool"),
    (lambda s: cub.Select(x=array(s, (2, 3)), flags=array(s, dtype="bool")), "it must have one axis"),
    (lambda s: cub.Select(x=array(s), flags=array(s, 5, "bool")), r"flags is bool\[5\]; it must have 6 elements"),
    (lambda s: cub.Select(x=array(s), flags=array(s, dtype="u8"), out=array(s)), "count is None; out and count go"),
    (lambda s: cub.SelectIf(x=array(s), comparison="less"), "comparison is 'less' and number is None"),
    (lambda s: cub.SelectIf(x=array(s), comparison="custom", number=1, cuda="return a;"), "all but 'custom' need one"),
    (lambda s: cub.SelectIf(x=array(s, dtype="i8"), comparison="less", number=0.5), "number is a float"),
    (
        lambda s: cub.UniqueByKey(
            keys=array(s), values=array(s), out_keys=array(s, 3), out_values=array(s, 4), count=array(s, (), "i64")
        ),
        "they must have one length",
    ),
]  # fmt: skip


@pytest.mark.parametrize("make, says", REFUSED, ids=[says[:40] for _, says in REFUSED])
def test_what_does_not_fit_is_refused_by_name(session: Any, make: Callable[[Any], Any], says: str) -> None:
    op = make(session)
    with pytest.raises(ShapeError, match=f"^{type(op).__struct_config__.tag}: .*{says}"):
        session.submit(op)


@pytest.mark.parametrize("op", [op for tag, op in OPS.items() if tag.startswith("cub.")])
def test_every_message_runs(session: Any, op: Any) -> None:
    answer = session.submit(message_of(session, op, serving(session, op), ("f32", "i32")))
    for part in answer if isinstance(answer, tuple) else (answer,):
        assert not np.isnan(session.get(part)).any()
