"""Errors begin with the call that the user wrote: every function of the namespace, and every operator."""

import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.arrays.elementwise import BINARY, UNARY
from callboard.arrays.namespace import Namespace
from callboard.core.dtype import DType
from callboard.core.errors import AccelError
from callboard.core.ref.naming import OPERATORS, WRITES

EMPTY, LINE, LONGER, SQUARE, BOOLS, WORDS = "EMPTY", "LINE", "LONGER", "SQUARE", "BOOLS", "WORDS"
ARRAYS = {
    EMPTY: np.zeros(0),
    LINE: np.arange(3.0),
    LONGER: np.arange(4.0),
    SQUARE: np.eye(3),
    BOOLS: np.array([True, False, True]),
    WORDS: np.arange(3),
}
HUGE = 2**70

# Arguments that a function refuses, as (positional, named); the names of arrays stand for these.
CASES: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "all": [((LINE,), {"axis": 9})],
    "any": [((LINE,), {"axis": 9})],
    "arange": [((HUGE,), {}), ((0, 1, 0), {}), ((0, "a"), {}), ((3,), {"dtype": "foo"}), ((3,), {"device": "foo:0"})],
    "argmax": [((EMPTY,), {}), ((LINE,), {"axis": 9})],
    "argmin": [((EMPTY,), {}), ((LINE,), {"axis": 9})],
    "argsort": [((LINE,), {"axis": 9})],
    "asarray": [((object(),), {}), (([[1], [1, 2]],), {}), ((1,), {"copy": False}), ((1,), {"dtype": "foo"})],
    "astype": [((LINE, "foo"), {})],
    "broadcast_arrays": [((LINE, LONGER), {})],
    "broadcast_shapes": [(((3,), (4,)), {})],
    "broadcast_to": [((LINE, (4,)), {})],
    "can_cast": [((LINE, "foo"), {})],
    "clip": [((LINE, LONGER), {}), ((LINE, "a"), {})],
    "concat": [(([],), {}), (([SQUARE, LINE],), {})],
    "count_nonzero": [((LINE,), {"axis": 9})],
    "cumulative_prod": [((LINE,), {"axis": 9})],
    "cumulative_sum": [((SQUARE,), {}), ((LINE,), {"axis": 9})],
    "diff": [((LINE,), {"axis": 9}), ((LINE,), {"n": -1})],
    "einsum": [(("ij->", LINE), {}), (("i,i", LINE, LONGER), {})],
    "empty": [((-1,), {}), ((HUGE,), {}), (("a",), {})],
    "empty_like": [((LINE,), {"dtype": "foo"})],
    "expand_dims": [((LINE,), {"axis": 9})],
    "eye": [((-1,), {}), ((1.5,), {}), ((HUGE,), {}), ((3,), {"k": "a"})],
    "finfo": [(("foo",), {}), (("i32",), {})],
    "flip": [((LINE,), {"axis": 9})],
    "from_dlpack": [((object(),), {})],
    "full": [((3, "a"), {}), ((-1, 0), {}), ((3, HUGE), {"dtype": "i8"})],
    "full_like": [((LINE, "a"), {}), ((WORDS, HUGE), {})],
    "iinfo": [(("foo",), {}), (("f32",), {})],
    "isdtype": [(("foo", "integral"), {}), ((np.float32, "foo"), {})],
    "isin": [((LINE, "a"), {})],
    "linspace": [((0, 1, -1), {}), ((0, 1, 1.5), {}), ((0, "a", 3), {}), ((0, 1, HUGE), {})],
    "matmul": [((LINE, LONGER), {}), ((LINE, 3), {})],
    "matrix_transpose": [((LINE,), {})],
    "max": [((EMPTY,), {}), ((LINE,), {"axis": 9})],
    "mean": [((LINE,), {"axis": 9})],
    "meshgrid": [((SQUARE, LINE), {}), ((LINE,), {"indexing": "foo"})],
    "min": [((EMPTY,), {}), ((LINE,), {"axis": 9})],
    "moveaxis": [((SQUARE, 9, 0), {})],
    "nonzero": [((object(),), {})],
    "ones": [((-1,), {}), ((HUGE,), {})],
    "ones_like": [((LINE,), {"dtype": "foo"})],
    "permute_dims": [((SQUARE, (0, 0)), {})],
    "prod": [((LINE,), {"axis": 9})],
    "repeat": [((LINE, -1), {}), ((LINE, [1, 2]), {}), ((LINE, 2), {"axis": 9})],
    "reshape": [((LINE, (2, 2)), {}), ((LINE, "a"), {})],
    "result_type": [(("foo",), {}), ((), {})],
    "roll": [((LINE, "a"), {}), ((LINE, 1), {"axis": 9})],
    "searchsorted": [((LINE, LONGER), {"side": "foo"}), ((SQUARE, LINE), {})],
    "sort": [((LINE,), {"axis": 9})],
    "squeeze": [((LINE, 0), {})],
    "stack": [(([],), {}), (([LINE, LONGER],), {})],
    "std": [((LINE,), {"axis": 9})],
    "sum": [((LINE,), {"axis": 9}), ((LINE,), {"dtype": "foo"})],
    "take": [((SQUARE, WORDS), {}), ((LINE, LINE), {}), ((LINE, WORDS), {"axis": 9})],
    "take_along_axis": [((SQUARE, WORDS), {}), ((LINE, LINE), {})],
    "tensordot": [((LINE, LONGER), {"axes": 1}), ((LINE, LINE), {"axes": 9})],
    "tile": [((LINE, (-1,)), {})],
    "tril": [((LINE,), {}), ((SQUARE,), {"k": "a"})],
    "triu": [((LINE,), {}), ((SQUARE,), {"k": 1.5})],
    "unique_all": [((object(),), {})],
    "unique_counts": [((object(),), {})],
    "unique_inverse": [((object(),), {})],
    "unique_values": [((object(),), {})],
    "unstack": [((LINE,), {"axis": 9})],
    "var": [((LINE,), {"axis": 9})],
    "vecdot": [((LINE, LONGER), {}), ((LINE, LINE), {"axis": 9})],
    "where": [((BOOLS, LINE, LONGER), {}), ((BOOLS, "a", 1), {}), ((True, LINE, LINE), {})],
    "zeros": [((-1,), {}), ((HUGE,), {}), (("a",), {}), ((3,), {"dtype": "foo"}), ((3,), {"device": "foo:0"})],
    "zeros_like": [((LINE,), {"dtype": "foo"})],
    "fft.fft": [((LINE,), {"norm": "foo"}), ((LINE,), {"n": 0}), ((LINE,), {"axis": 9})],
    "fft.fftfreq": [((0,), {}), ((3,), {"dtype": "foo"}), (("a",), {})],
    "fft.fftn": [((LINE,), {"norm": "foo"}), ((LINE,), {"s": (1, 2)})],
    "fft.fftshift": [((LINE,), {"axes": 9})],
    "fft.hfft": [((LINE,), {"norm": "foo"}), ((LINE,), {"n": 0})],
    "fft.ifft": [((LINE,), {"norm": "foo"})],
    "fft.ifftn": [((LINE,), {"norm": "foo"})],
    "fft.ifftshift": [((LINE,), {"axes": 9})],
    "fft.ihfft": [((LINE,), {"norm": "foo"}), ((LINE,), {"axis": 9})],
    "fft.irfft": [((LINE,), {"norm": "foo"}), ((LINE,), {"n": 0})],
    "fft.irfftn": [((LINE,), {"norm": "foo"}), ((LINE,), {"axes": (9,)})],
    "fft.rfft": [((LINE,), {"norm": "foo"}), ((LINE,), {"axis": 9})],
    "fft.rfftfreq": [((0,), {}), ((3,), {"dtype": "foo"})],
    "fft.rfftn": [((LINE,), {"norm": "foo"}), ((LINE,), {"axes": (9,)})],
    "linalg.cross": [((LINE, LONGER), {}), ((LONGER, LONGER), {})],
    "linalg.eigh": [((LINE,), {})],
    "linalg.matrix_norm": [((LINE,), {}), ((SQUARE,), {"ord": "foo"})],
    "linalg.matrix_power": [((SQUARE, "a"), {}), ((LINE, 2), {})],
    "linalg.outer": [((SQUARE, LINE), {})],
    "linalg.qr": [((SQUARE,), {"mode": "foo"}), ((LINE,), {})],
    "linalg.solve": [((SQUARE, LONGER), {}), ((LINE, LINE), {})],
    "linalg.lstsq": [((SQUARE, LONGER), {}), ((LINE, LINE), {})],
    "linalg.tensordot": [((LINE, LONGER), {"axes": 1})],
    "linalg.vecdot": [((LINE, LONGER), {})],
    "linalg.matmul": [((LINE, LONGER), {})],
    "linalg.vector_norm": [((LINE,), {"axis": 9})],
}
for _name in ("cholesky", "det", "diagonal", "eig", "eigvals", "eigvalsh", "inv", "matrix_rank", "matrix_transpose"):
    CASES[f"linalg.{_name}"] = [((LINE,), {})]
for _name in ("pinv", "slogdet", "svd", "svdvals", "trace"):
    CASES[f"linalg.{_name}"] = [((LINE,), {})]
for _name in UNARY:
    CASES[_name] = [((object(),), {}), ((np.zeros(3),), {}), ((1,), {})]
for _name in BINARY:
    CASES[_name] = [((LINE, LONGER), {}), ((LINE, object()), {}), ((1, 2), {}), ((LINE, np.zeros(3)), {})]
REFUSED_DTYPES = {"bitwise_invert": (LINE,), "negative": (BOOLS,), "bitwise_and": (LINE, LINE), "add": (WORDS, HUGE)}
for _name, _arguments in REFUSED_DTYPES.items():
    CASES[_name].append((_arguments, {}))


def functions() -> Iterator[str]:
    """The functions of the namespace and of its extensions."""
    from callboard.arrays.fourier import Fourier

    for prefix, space in (("", Namespace), ("linalg.", type(Namespace.linalg)), ("fft.", Fourier)):
        for name in dir(space):
            found = getattr(space, name)
            public = not name.startswith("_") and prefix + name not in ("fft", "linalg")
            if public and callable(found) and not isinstance(found, DType):
                yield prefix + name


def given(session: cb.sync.Device, x: Any) -> Any:
    if isinstance(x, str) and x in ARRAYS:
        return session.array(ARRAYS[x])
    return [given(session, one) for one in x] if isinstance(x, list) else x


def refused(call: Callable[[], Any]) -> str:
    with pytest.raises((TypeError, ValueError, IndexError, OverflowError, AccelError)) as raised:
        call()
    return str(raised.value)


def test_the_table_has_every_function() -> None:
    assert set(functions()) == set(CASES)


@pytest.mark.few(1000)
@pytest.mark.parametrize("name", sorted(CASES))
def test_an_error_begins_with_the_function(session: cb.sync.Device, name: str) -> None:
    function = operator.attrgetter(name)(session.xp)
    for positional, by_name in CASES[name]:
        told = refused(lambda: function(*[given(session, x) for x in positional], **by_name))  # noqa: B023
        assert told.startswith(f"xp.{name}: "), told
        assert not re.match(r"xp\.[\w.]+: \w+\.\w+: ", told), told


def test_arguments_that_are_missing_are_told_of_the_function(session: cb.sync.Device) -> None:
    assert refused(lambda: session.xp.sum()).startswith("xp.sum: ")  # type: ignore[call-arg]


DUNDERS = {
    "abs": "abs",
    "bitwise_and": "and_",
    "bitwise_invert": "invert",
    "bitwise_left_shift": "lshift",
    "bitwise_or": "or_",
    "bitwise_right_shift": "rshift",
    "bitwise_xor": "xor",
    "divide": "truediv",
    "equal": "eq",
    "floor_divide": "floordiv",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "positive": "pos",
    "remainder": "mod",
    "subtract": "sub",
}


@pytest.mark.few(100)
@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_an_error_begins_with_the_operator(session: cb.sync.Device, name: str) -> None:
    apply = getattr(operator, DUNDERS.get(name, name))
    x, y = session.array(ARRAYS[LINE]), session.array(ARRAYS[LONGER])
    if not OPERATORS[name].endswith(" y"):
        x = session.array(ARRAYS[BOOLS]) if name == "negative" else x
        if name in ("negative", "bitwise_invert"):
            assert refused(lambda: apply(x)).startswith(f"{OPERATORS[name]}: ")
        else:
            x.free()
            with pytest.raises(cb.GpuRefStale):
                apply(x).get()
        return
    for other in (y, np.zeros(3)):
        told = refused(lambda: apply(x, other))  # noqa: B023
        assert told.startswith(f"{OPERATORS[name]}: "), told
    assert refused(lambda: apply(np.zeros(3), x)).startswith("np.")  # NumPy's operator, which calls its function
    in_place = getattr(operator, f"i{DUNDERS.get(name, name).rstrip('_')}", None)
    if in_place is not None:
        assert refused(lambda: in_place(x, y)).startswith(f"{WRITES[name]}: ")


def test_errors_of_indexing_begin_with_it(session: cb.sync.Device) -> None:
    x = session.array(ARRAYS[SQUARE])
    two, three = session.array(np.array([0, 1])), session.array(np.array([0, 1, 2]))
    index: Any
    for index in (9, "a", 1.5, (0, 0, 0), (two, three), session.array(ARRAYS[LINE]), [9], np.ones(4, bool)):
        assert refused(lambda: x[index]).startswith("x[...]: ")  # noqa: B023
    for index, value in ((9, 1), (0, session.array(ARRAYS[LONGER])), (0, 1j), (0, "a"), (three + 5, 1.0), (x > 0, two)):

        def assign() -> None:
            x[index] = value  # noqa: B023

        assert refused(assign).startswith("x[...] = value: ")
    assert x.get() == pytest.approx(ARRAYS[SQUARE])


def test_an_error_of_earlier_work_keeps_its_name(session: cb.sync.Device) -> None:
    failed = session.xp.take(session.array(ARRAYS[WORDS]), session.array(np.array(7)))
    with pytest.raises(cb.ShapeError, match="out of range") as raised:
        session.xp.arange(failed)
    assert not str(raised.value).startswith("xp.arange")
