"""Results of the namespace, compared with ``array_api_strict``, the standard's own minimal implementation.

Calls are drawn: dtypes, shapes (empty ones and 0-d ones included), axes and options. What is refused by the strict
namespace is not compared. Left out where that package is not installed.
"""

import importlib.util
import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import callboard as cb

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("array_api_strict") is None,
        reason="array-api-strict is not installed; pip install array-api-strict",
    ),
]

Array = np.ndarray[Any, Any]
Call = tuple[tuple[Any, ...], dict[str, Any]]

INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
FLOATS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
REAL = (*INTEGERS, *FLOATS)
NUMBERS = (*REAL, *COMPLEX)
ALL = ("bool", *NUMBERS)


class Dtype(str):
    """The name of a dtype of either namespace."""

    __slots__ = ()


def shapes(**bounds: int) -> Any:
    return arrays.array_shapes(**{"min_dims": 0, "min_side": 0, "max_dims": 4, "max_side": 4, **bounds})


def numbers(draw: Any, dtypes: tuple[str, ...], shape: Any) -> Array:
    """Small numbers, whose sums and products every dtype holds."""
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    bounds: dict[str, Any] = {"min_value": 0 if dtype.kind == "u" else -4, "max_value": 4}
    if dtype.kind == "c":
        bounds = {"max_magnitude": 4}
    size = shape if isinstance(shape, tuple) else draw(shape)
    found: Array = draw(arrays.arrays(dtype, size, elements={} if dtype.kind == "b" else bounds))
    return found


def axis_of(draw: Any, ndim: int, several: bool = True) -> Any:
    if not ndim:
        return None
    one = st.integers(-ndim, ndim - 1)
    many = st.lists(st.integers(0, ndim - 1), unique=True, min_size=1).map(tuple)
    return draw(st.none() | one | many if several else one)


def reduction(dtypes: tuple[str, ...], least: int = 0, **flags: Any) -> Callable[[Any], Call]:
    def call(draw: Any) -> Call:
        x = numbers(draw, dtypes, shapes(min_side=least))
        return (x,), {"axis": axis_of(draw, x.ndim), "keepdims": draw(st.booleans()), **flags}

    return call


def along(dtypes: tuple[str, ...], **choices: Any) -> Callable[[Any], Call]:
    def call(draw: Any) -> Call:
        x = numbers(draw, dtypes, shapes(min_dims=1))
        return (x,), {"axis": axis_of(draw, x.ndim, several=False), **{k: draw(v) for k, v in choices.items()}}

    return call


def elements(dtypes: tuple[str, ...], operands: int) -> Callable[[Any], Call]:
    def call(draw: Any) -> Call:
        drawn = arrays.mutually_broadcastable_shapes(num_shapes=operands, min_side=0, max_side=3, max_dims=3)
        return tuple(numbers(draw, dtypes, shape) for shape in draw(drawn).input_shapes), {}

    return call


def transform(dtypes: tuple[str, ...]) -> Callable[[Any], Call]:
    def call(draw: Any) -> Call:
        x = numbers(draw, dtypes, shapes(min_dims=1, min_side=2))
        options = {"axis": axis_of(draw, x.ndim, several=False), "n": draw(st.none() | st.integers(1, 9))}
        return (x,), {**options, "norm": draw(st.sampled_from(["backward", "ortho", "forward"]))}

    return call


def square(dtypes: tuple[str, ...]) -> Callable[[Any], Call]:
    def call(draw: Any) -> Call:
        stack, n = draw(shapes(max_dims=2, max_side=3)), draw(st.integers(0, 4))
        x = numbers(draw, dtypes, (*stack, n, n))
        return ((x + 30 * np.eye(n)).astype(x.dtype),), {}

    return call


def reshaping(name: str) -> Callable[[Any], Call]:
    def call(draw: Any) -> Call:
        x = numbers(draw, ALL, shapes())
        given: dict[str, Any] = {
            "expand_dims": ((), {"axis": draw(st.integers(-x.ndim - 1, x.ndim))}),
            "flip": ((), {"axis": axis_of(draw, x.ndim)}),
            "permute_dims": ((tuple(draw(st.permutations(range(x.ndim)))),), {}),
            "repeat": ((draw(st.integers(0, 3)),), {"axis": axis_of(draw, x.ndim, several=False)}),
            "reshape": (((x.size,),), {"copy": draw(st.sampled_from([None, True]))}),
            "roll": ((draw(st.integers(-9, 9)),), {"axis": axis_of(draw, x.ndim, several=False)}),
            "tile": ((tuple(draw(st.lists(st.integers(0, 3), max_size=3))),), {}),
        }
        args, options = given[name]
        return (x, *args), options

    return call


def plain(dtypes: tuple[str, ...], least: int = 0) -> Callable[[Any], Call]:
    return lambda draw: ((numbers(draw, dtypes, shapes(min_dims=least)),), {})


def converted(draw: Any) -> Call:
    return (numbers(draw, REAL, shapes()), Dtype(draw(st.sampled_from(ALL)))), {}


CALLS: dict[str, Callable[[Any], Call]] = {
    **{name: reduction(NUMBERS) for name in ("sum", "prod")},
    **{name: reduction(ALL) for name in ("all", "any", "count_nonzero")},
    **{name: reduction(REAL, 1) for name in ("max", "min")},
    **{name: reduction(FLOATS, 1, correction=0.0) for name in ("std", "var")},
    "mean": reduction((*FLOATS, *COMPLEX), 1),
    **{name: along(NUMBERS, include_initial=st.booleans()) for name in ("cumulative_sum", "cumulative_prod")},
    **{name: along(REAL, descending=st.booleans()) for name in ("sort", "argsort")},
    "diff": along(NUMBERS, n=st.integers(0, 3)),
    **{name: elements(NUMBERS, 2) for name in ("add", "subtract", "multiply", "equal", "not_equal")},
    **{name: elements(REAL, 2) for name in ("less", "greater_equal", "maximum", "minimum")},
    **{name: elements((*FLOATS, *COMPLEX), 2) for name in ("divide", "pow")},
    **{name: elements(FLOATS, 2) for name in ("atan2", "copysign", "hypot", "logaddexp", "nextafter")},
    **{name: elements(("bool", *INTEGERS), 2) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    **{name: plain((*FLOATS, *COMPLEX)) for name in ("exp", "expm1", "log", "log1p", "sqrt", "sin", "tanh", "acosh")},
    **{name: plain(NUMBERS) for name in ("abs", "negative", "sign", "square", "isfinite", "isnan")},
    **{name: plain(ALL) for name in ("unique_all", "unique_counts", "unique_inverse", "unique_values")},
    **{name: reshaping(name) for name in ("expand_dims", "flip", "permute_dims", "repeat", "reshape", "roll", "tile")},
    "nonzero": plain(ALL, 1),
    "astype": converted,
    **{f"fft.{name}": transform(COMPLEX) for name in ("fft", "ifft", "irfft", "hfft")},
    **{f"fft.{name}": transform(FLOATS) for name in ("rfft", "ihfft")},
    **{f"linalg.{name}": square((*FLOATS, *COMPLEX)) for name in ("inv", "det", "slogdet", "pinv", "svdvals")},
    **{f"linalg.{name}": square((*FLOATS, *COMPLEX)) for name in ("matrix_rank", "trace", "diagonal", "matrix_norm")},
}


def given_to(xp: Any, values: Any) -> Any:
    if isinstance(values, np.ndarray):
        return xp.asarray(values, copy=True)
    return getattr(xp, values) if isinstance(values, Dtype) else values


def called(xp: Any, name: str, call: Call) -> list[Any]:
    args, options = call
    found = operator.attrgetter(name)(xp)(*(given_to(xp, one) for one in args), **options)
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_gives_what_the_standard_says(session: cb.sync.Device, name: str, data: st.DataObject) -> None:
    import array_api_strict

    call = CALLS[name](data.draw)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            wanted = [np.asarray(one) for one in called(array_api_strict, name, call)]
        except (TypeError, ValueError):
            return
    found = [one.get() for one in called(session.xp, name, call)]
    assert len(found) == len(wanted)
    for got, want in zip(found, wanted, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        tolerance = 1e-3 if got.dtype in (np.float32, np.complex64) else 1e-9
        if got.dtype.kind in "fc":
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(got, want)
