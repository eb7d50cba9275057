"""Inputs without a result: singular and indefinite matrices, NaN, and earlier calls on them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from solver_lab import FLOATS, execute, regular

import callboard.kernel.solver as solver
from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import NumericalError, ShapeError
from callboard.kernel.solver import (
    Cholesky,
    CholeskySolve,
    Determinant,
    Inverse,
    LeastSquares,
    Lu,
    LuSolve,
    Solve,
    Sygvd,
    SygvdValues,
)
from callboard.testing.device_session import DeviceSession

EVERY = [pytest.param(DTYPES[name], id=name) for name in FLOATS]


def singular(dtype: DType, n: int = 4, at: int = 2) -> Any:
    a = np.eye(n, dtype=dtype.np)
    a[at, at] = 0
    return a


@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.parametrize(
    "make",
    [lambda a, b: Lu(a=a), lambda a, b: Solve(a=a, b=b), lambda a, b: Inverse(a=a)],
    ids=["lu", "solve", "inverse"],
)
def test_singular(session: Any, dtype: DType, make: Callable[..., Any]) -> None:
    a, b = session.put(singular(dtype)), session.put(np.ones(4, dtype.np))
    with pytest.raises(NumericalError, match=r"solver\.\w+: the matrix is singular: pivot 2 is exactly 0") as e:
        execute(session, make(a, b))
    assert e.value.info == 3
    assert e.value.item == -1


@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.parametrize("lower", [True, False])
def test_indefinite(session: Any, dtype: DType, lower: bool) -> None:
    a = np.eye(5, dtype=dtype.np)
    a[3, 3] = -1
    with pytest.raises(NumericalError, match="leading minor of order 4 is not positive") as e:
        execute(session, Cholesky(a=session.put(a), lower=lower))
    assert e.value.info == 4
    for cls in (Sygvd, SygvdValues):
        with pytest.raises(NumericalError, match="b is not positive definite: its leading minor of order 4") as e:
            execute(session, cls(a=session.put(np.eye(5, dtype=dtype.np)), b=session.put(a), lower=lower))
        assert e.value.info == 9


@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.parametrize("shape", [(5, 3), (3, 5)])
def test_rank_deficient(session: Any, dtype: DType, shape: tuple[int, int]) -> None:
    a = np.eye(*shape, dtype=dtype.np)
    a[1, 1] = 0
    with pytest.raises(NumericalError, match="not full rank: diagonal element 1") as e:
        execute(session, LeastSquares(a=session.put(a), b=session.put(np.ones(shape[0], dtype.np))))
    assert e.value.info == 2
    a[...] = 0
    with pytest.raises(NumericalError, match="not full rank: diagonal element 0") as e:
        execute(session, LeastSquares(a=session.put(a), b=session.put(np.ones(shape[0], dtype.np))))
    assert e.value.info == 1


def operands(session: Any, cls: Any, dtype: DType, bad: float) -> dict[str, Any]:
    """Valid ones, of order 3, with one bad element in the first that is a floating-point array."""
    stacked = cls.__name__.endswith("Batched")
    a = np.eye(3, dtype=dtype.np)
    found: dict[str, Any] = {}
    for name in ("a", "lu", "factor", "h"):
        if name in cls.__struct_fields__ and name not in cls.returns:
            spoilt = a.copy()
            spoilt[2, 1] = bad
            found[name] = spoilt
            break
    for name in ("b", "c"):
        if name in cls.__struct_fields__:
            found[name] = a.copy()
    if "pivots" in cls.__struct_fields__ and "pivots" not in cls.returns:
        found["pivots"] = np.arange(3, dtype=np.int32)
    if "tau" in cls.__struct_fields__ and "tau" not in cls.returns:
        found["tau"] = np.ones(3, dtype.np)
    refs = {name: session.put(array[None] if stacked else array) for name, array in found.items()}
    if cls is solver.SyevdxRange:
        refs |= {"low": 0.0, "high": 2.0}
    return refs


DENSE = [
    cls for name in solver.__all__ if hasattr(cls := getattr(solver, name), "infer") and not name.startswith("Sparse")
]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("cls", DENSE, ids=lambda cls: cls.__name__)
def test_what_is_not_finite_is_refused_by_every_op(session: Any, cls: Any, bad: float) -> None:
    dtype = DTYPES["c64" if cls.__name__ < "H" else "f64"]
    with pytest.raises(NumericalError, match="1 element of the operands is NaN or infinite") as e:
        execute(session, cls(**operands(session, cls, dtype, bad)))
    assert e.value.info == -1


@pytest.mark.parametrize("cls", DENSE, ids=lambda cls: cls.__name__)
def test_the_same_operands_without_it_are_accepted(session: Any, cls: Any) -> None:
    execute(session, cls(**operands(session, cls, DTYPES["f64"], 0.25)))


@pytest.mark.parametrize(
    "cls", [cls for cls in DENSE if "check_finite" in cls.__struct_fields__], ids=lambda cls: cls.__name__
)
def test_nan_is_computed_with_where_that_is_wanted(session: Any, cls: Any) -> None:
    result = execute(session, cls(**operands(session, cls, DTYPES["f64"], np.nan), check_finite=False))
    parts = [session.get(part) for part in (result if isinstance(result, tuple) else (result,))]
    assert any(np.isnan(part).any() for part in parts)


@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.parametrize("at", [(1, 1), (2, 0), (0, 2)])
@pytest.mark.parametrize("cls", [Solve, Inverse, Determinant], ids=lambda cls: cls.__name__)
def test_a_nan_in_the_matrix_makes_all_of_the_result_nan(
    session: Any, cls: Any, at: tuple[int, int], dtype: DType
) -> None:
    """Also if the matrix would be singular with a 0 there."""
    for n in (3, 70):
        a = np.eye(n, dtype=dtype.np)
        a[at] = np.nan
        given = {"b": session.put(np.ones(n, dtype.np))} if cls is Solve else {}
        result = execute(session, cls(a=session.put(a), **given, check_finite=False))
        assert np.isnan(session.get(result)).all()


@pytest.mark.parametrize("dtype", EVERY)
def test_a_matrix_without_nan_is_the_same_unchecked(session: Any, dtype: DType) -> None:
    a, b = regular(dtype, (5, 5), 1), np.ones(5, dtype.np)
    ref, right = session.put(a), session.put(b)
    for cls, given in ((Solve, {"a": ref, "b": right}), (Inverse, {"a": ref}), (Determinant, {"a": ref})):
        got, want = (session.get(execute(session, cls(**given, check_finite=check))) for check in (False, True))
        np.testing.assert_array_equal(got, want)
    with pytest.raises(NumericalError, match="pivot 2 is exactly 0"):
        execute(session, Solve(a=session.put(singular(dtype)), b=session.put(np.ones(4, dtype.np)), check_finite=False))


def test_the_right_hand_side_is_looked_at_too(session: Any) -> None:
    a, b = np.eye(3), np.array([1, np.nan, np.inf])
    for op in (
        Solve(a=session.put(a), b=session.put(b)),
        LeastSquares(a=session.put(a), b=session.put(b)),
        CholeskySolve(factor=session.put(a), b=session.put(b)),
    ):
        with pytest.raises(NumericalError, match="2 elements of the operands are NaN or infinite"):
            execute(session, op)


@pytest.mark.parametrize("row", [-1, 3, 2**31 - 1])
def test_pivots_that_name_no_row(session: Any, row: int) -> None:
    lu, b = session.put(np.eye(3)), session.put(np.ones(3))
    pivots = session.put(np.array([0, row, 2], np.int32))
    with pytest.raises(NumericalError, match="1 of the pivots are out of range"):
        execute(session, LuSolve(lu=lu, pivots=pivots, b=b))


def test_a_failure_does_not_harm_what_comes_after(session: Any) -> None:
    a = np.array([[4.0, 2], [2, 3]])
    with pytest.raises(NumericalError):
        execute(session, Cholesky(a=session.put(-a)))
    good = session.get(execute(session, Cholesky(a=session.put(a))))
    np.testing.assert_allclose(good @ good.T, a)


def test_what_was_called_on_the_result_fails_likewise(session: Any) -> None:
    """The solve is enqueued before anybody knows that the factorisation has failed."""
    if not isinstance(session, DeviceSession):
        pytest.skip("a library session executes one op after the other")
    device = session.device
    a, b = device.put(-np.eye(3)), device.put(np.ones(3))
    factor = device.solver.cholesky(a)
    x = device.solver.cholesky_solve(factor, b)
    y = device.blas.scal(x, 2.0)
    with pytest.raises(NumericalError, match="leading minor of order 1") as first:
        factor.result(30)
    for ref in (x, y):
        with pytest.raises(NumericalError, match="leading minor of order 1") as e:
            ref.result(30)
        assert e.value.info == 1
        assert any("depends on op" in note for note in e.value.__notes__)
    assert first.value.info == 1
    assert device.solver.solve(device.put(np.eye(2)), device.put(np.ones(2))).get().result(30).tolist() == [1, 1]


def array(session: Any, *shape: int, dtype: str = "f32") -> Any:
    return session.put(np.ones(shape, DTYPES[dtype].np))


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda x: Lu(a=x(3)), "solver.lu: a is f32[3]; it must have 2 axes"),
        (lambda x: Solve(a=x(3, 2), b=x(3)), "solver.solve: a is f32[3, 2]; it must be square"),
        (lambda x: Solve(a=x(3, 3), b=x(2)), "solver.solve: b is f32[2]; it must be [3] or [3, columns]"),
        (lambda x: Solve(a=x(3, 3), b=x(3, dtype="f64")), "b is f64[3] and a is f32[3, 3]: both must have one dtype"),
        (lambda x: Cholesky(a=x(3, 3, dtype="f16")), "its dtype must be one of f32, f64, c64, c128"),
        (lambda x: LuSolve(lu=x(3, 3), pivots=x(3), b=x(3)), "pivots is f32[3]; its dtype must be i32 or i64"),
        (lambda x: LuSolve(lu=x(3, 3), pivots=x(2, dtype="i32"), b=x(3)), "lu of order 3 makes it [3]"),
        (lambda x: Lu(a=x(3, 3), pivots=x(3, dtype="i16")), "its dtype must be i32 or i64"),
        (lambda x: solver.Orgqr(h=x(3, 2), tau=x(2), columns=4), "columns is 4; it must be from 2 to 3"),
        (lambda x: solver.Ormqr(h=x(3, 2), tau=x(2), c=x(2, 2)), "Q is [3, 3] and is multiplied from the left"),
        (lambda x: solver.GetrfBatched(a=x(3, 3)), "it must have 3 axes (a[None] is a batch of one)"),
        (lambda x: solver.GelsBatched(a=x(1, 2, 3), b=x(1, 2, 1)), "at least as many rows as columns"),
        (lambda x: Sygvd(a=x(2, 2), b=x(3, 3)), "they must be of one shape"),
        (lambda x: SygvdValues(a=x(2, 2), b=x(3, 3)), "they must be of one shape"),
        (lambda x: SygvdValues(a=x(2, 3), b=x(2, 3)), "solver.sygvd_values: a is f32[2, 3]; it must be square"),
    ],
)
def test_refused_at_the_call(session: Any, make: Callable[..., Any], says: str) -> None:
    op = make(lambda *shape, dtype="f32": array(session, *shape, dtype=dtype))
    with pytest.raises(ShapeError) as e:
        session.submit(op)
    assert says in str(e.value)
