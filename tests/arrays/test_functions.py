"""The functions that are not of elements: each line is run twice, by NumPy on the host and by the namespace on refs.

NumPy 2 has the names and the parameters of the standard. Compared are dtype, shape and values.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.arrays.elementwise import BINARY, UNARY
from callboard.core.dtype import DTYPES, as_dtype

Array = np.ndarray[Any, Any]
Line = Callable[[Any, Any, Any], Any]
"""``line(xp, x, y)``: of an array [3, 4] and one [4]."""

ALL = ("f32", "f64", "c64", "c128", "i32", "u8", "bool")
NUMBERS = ("f32", "f64", "c128", "i32", "u8")
REALS = ("f32", "f64", "i32", "u8")
FLOATS = ("f32", "f64", "c64", "c128")
AXES = (None, 0, 1, -1, (0, 1), ())

LINES: dict[str, tuple[tuple[str, ...], list[Line]]] = {
    # creation
    "tril": (ALL, [lambda xp, x, y: xp.tril(x), lambda xp, x, y: xp.tril(x, k=-1)]),
    "triu": (ALL, [lambda xp, x, y: xp.triu(x, k=1), lambda xp, x, y: xp.triu(xp.stack([x, x]))]),
    "meshgrid": (
        REALS,
        [lambda xp, x, y: xp.meshgrid(y, x[:, 0]), lambda xp, x, y: xp.meshgrid(y, x[0], indexing="ij")],
    ),
    "full_like": (NUMBERS, [lambda xp, x, y: xp.full_like(x, 3)]),
    "ones_like": (ALL, [lambda xp, x, y: xp.ones_like(x)]),
    "zeros_like": (ALL, [lambda xp, x, y: xp.zeros_like(x.T)]),
    # manipulation
    "broadcast_arrays": (ALL, [lambda xp, x, y: xp.broadcast_arrays(x, y)]),
    "broadcast_to": (ALL, [lambda xp, x, y: xp.broadcast_to(y, (2, 3, 4))]),
    "concat": (ALL, [lambda xp, x, y: xp.concat([x, x[:1]]), lambda xp, x, y: xp.concat([x, y], axis=None)]),
    "expand_dims": (
        ALL,
        [lambda xp, x, y: xp.expand_dims(x, axis=1), lambda xp, x, y: xp.expand_dims(x, axis=(0, -1))],
    ),
    "flip": (ALL, [lambda xp, x, y: xp.flip(x), lambda xp, x, y: xp.flip(x, axis=-1)]),
    "matrix_transpose": (ALL, [lambda xp, x, y: xp.matrix_transpose(xp.stack([x, x]))]),
    "moveaxis": (ALL, [lambda xp, x, y: xp.moveaxis(x[None], 0, -1), lambda xp, x, y: xp.moveaxis(x, (0, 1), (1, 0))]),
    "permute_dims": (ALL, [lambda xp, x, y: xp.permute_dims(x[None], (2, 0, 1))]),
    "repeat": (ALL, [lambda xp, x, y: xp.repeat(x, 2), lambda xp, x, y: xp.repeat(x, [1, 0, 3], axis=0)]),
    "reshape": (ALL, [lambda xp, x, y: xp.reshape(x, (2, -1)), lambda xp, x, y: xp.reshape(x.T, (12,))]),
    "roll": (
        ALL,
        [
            lambda xp, x, y: xp.roll(x, 5),
            lambda xp, x, y: xp.roll(x, -1, axis=1),
            lambda xp, x, y: xp.roll(x, (1, 2), axis=(0, 1)),
        ],
    ),
    "squeeze": (ALL, [lambda xp, x, y: xp.squeeze(x[None, :, None], axis=(0, 2))]),
    "stack": (ALL, [lambda xp, x, y: xp.stack([x, x], axis=-1)]),
    "tile": (ALL, [lambda xp, x, y: xp.tile(x, (2, 3)), lambda xp, x, y: xp.tile(x, (2, 1, 1))]),
    "unstack": (ALL, [lambda xp, x, y: xp.unstack(x), lambda xp, x, y: xp.unstack(x, axis=1)]),
    # indexing
    "take": (
        ALL,
        [lambda xp, x, y: xp.take(x, xp.asarray([0, 2, -1]), axis=1), lambda xp, x, y: xp.take(y, xp.asarray([[1]]))],
    ),
    "take_along_axis": (ALL, [lambda xp, x, y: xp.take_along_axis(x, xp.asarray([[0], [1], [-1]]), axis=1)]),
    # statistics
    **{
        name: (kinds, [lambda xp, x, y, a=axis, n=name: getattr(xp, n)(x, axis=a, keepdims=a == 0) for axis in AXES])
        for name, kinds in (
            ("sum", ALL),
            ("prod", ALL),
            ("mean", NUMBERS),
            ("all", ALL),
            ("any", ALL),
            ("count_nonzero", ALL),
        )
    },
    **{
        name: (REALS, [lambda xp, x, y, a=axis, n=name: getattr(xp, n)(x, axis=a, keepdims=a == 1) for axis in AXES])
        for name in ("max", "min")
    },
    **{
        name: (
            NUMBERS,
            [lambda xp, x, y, a=axis, n=name: getattr(xp, n)(x, axis=a, correction=a or 0) for axis in (None, 0, 1)],
        )
        for name in ("std", "var")
    },
    "cumulative_sum": (
        ALL,
        [lambda xp, x, y: xp.cumulative_sum(x, axis=0), lambda xp, x, y: xp.cumulative_sum(y, include_initial=True)],
    ),
    "cumulative_prod": (REALS, [lambda xp, x, y: xp.cumulative_prod(x, axis=1, include_initial=True)]),
    "diff": (
        ALL,
        [
            lambda xp, x, y: xp.diff(x),
            lambda xp, x, y: xp.diff(x, axis=0, n=2),
            lambda xp, x, y: xp.diff(y, prepend=y[:1], append=y[1:3]),
        ],
    ),
    # searching, sorting, sets
    **{
        name: (
            REALS,
            [lambda xp, x, y, a=axis, n=name: getattr(xp, n)(x, axis=a, keepdims=a == 0) for axis in (None, 0, 1)],
        )
        for name in ("argmax", "argmin")
    },
    "nonzero": (ALL, [lambda xp, x, y: xp.nonzero(x), lambda xp, x, y: xp.nonzero(y)]),
    "searchsorted": (
        REALS,
        [
            lambda xp, x, y: xp.searchsorted(xp.sort(y), x),
            lambda xp, x, y: xp.searchsorted(xp.sort(y), y, side="right"),
        ],
    ),
    "where": (ALL, [lambda xp, x, y: xp.where(x != 0, x, y)]),
    "sort": (REALS, [lambda xp, x, y: xp.sort(x), lambda xp, x, y: xp.sort(x, axis=0)]),
    "argsort": (REALS, [lambda xp, x, y: xp.argsort(x, axis=0, stable=True)]),
    "unique_all": (REALS, [lambda xp, x, y: xp.unique_all(x)]),
    "unique_counts": (REALS, [lambda xp, x, y: xp.unique_counts(x)]),
    "unique_inverse": (REALS, [lambda xp, x, y: xp.unique_inverse(x)]),
    "isin": (
        NUMBERS,
        [
            lambda xp, x, y: xp.isin(x, y),
            lambda xp, x, y: xp.isin(x, x[1:, ::2], invert=True),
            lambda xp, x, y: xp.isin(x, 2),
            lambda xp, x, y: xp.isin(2, x),
            lambda xp, x, y: xp.isin(x[:0], y),
            lambda xp, x, y: xp.isin(x, y[:0]),
        ],
    ),
    "unique_values": (REALS, [lambda xp, x, y: xp.sort(xp.unique_values(x))]),
    # products
    "matmul": (
        NUMBERS,
        [
            lambda xp, x, y: x @ x.T,
            lambda xp, x, y: x @ y,
            lambda xp, x, y: y @ y,
            lambda xp, x, y: y @ x.T,
            lambda xp, x, y: xp.matmul(xp.stack([x, x]), x.T),
        ],
    ),
    "tensordot": (
        NUMBERS,
        [lambda xp, x, y: xp.tensordot(x, y, axes=1), lambda xp, x, y: xp.tensordot(x, x, axes=((0, 1), (0, 1)))],
    ),
    "vecdot": (NUMBERS, [lambda xp, x, y: xp.vecdot(x, y), lambda xp, x, y: xp.vecdot(x, x, axis=-2)]),
    # dtypes
    "astype": (REALS, [lambda xp, x, y: xp.astype(x, xp.float32), lambda xp, x, y: xp.astype(x, xp.complex128)]),
    # linear algebra
    "linalg.matmul": (NUMBERS, [lambda xp, x, y: xp.linalg.matmul(x, y)]),
    "linalg.matrix_transpose": (ALL, [lambda xp, x, y: xp.linalg.matrix_transpose(x)]),
    "linalg.tensordot": (NUMBERS, [lambda xp, x, y: xp.linalg.tensordot(x, y, axes=((1,), (0,)))]),
    "linalg.vecdot": (NUMBERS, [lambda xp, x, y: xp.linalg.vecdot(x, x)]),
    "linalg.outer": (NUMBERS, [lambda xp, x, y: xp.linalg.outer(x[:, 0], y)]),
    "linalg.cross": (("f32", "f64", "c128", "i32"), [lambda xp, x, y: xp.linalg.cross(x[:, :3], y[:3])]),
    "linalg.diagonal": (
        ALL,
        [lambda xp, x, y: xp.linalg.diagonal(x), lambda xp, x, y: xp.linalg.diagonal(x, offset=-1)],
    ),
    "linalg.trace": (
        ("f64", "c128", "i32"),
        [lambda xp, x, y: xp.linalg.trace(x), lambda xp, x, y: xp.linalg.trace(x, offset=2)],
    ),
    "linalg.vector_norm": (
        FLOATS,
        [
            lambda xp, x, y, o=o: xp.linalg.vector_norm(x, axis=1, ord=o)
            for o in (0, 1, 2, 3, float("inf"), -float("inf"))
        ]
        + [lambda xp, x, y: xp.linalg.vector_norm(x, keepdims=True)],
    ),
    "linalg.matrix_norm": (
        FLOATS,
        [
            lambda xp, x, y, o=o: xp.linalg.matrix_norm(x, ord=o, keepdims=o == 1)
            for o in ("fro", "nuc", 1, -1, 2, -2, float("inf"), -float("inf"))
        ],
    ),
    "linalg.matrix_power": (
        FLOATS,
        [lambda xp, x, y, n=n: xp.linalg.matrix_power(square(xp, x), n) for n in (0, 1, 5, -2)],
    ),
    "linalg.matrix_rank": (
        FLOATS,
        [lambda xp, x, y: xp.linalg.matrix_rank(x @ x.T), lambda xp, x, y: xp.linalg.matrix_rank(stacked(xp, x))],
    ),
    "linalg.det": (
        FLOATS,
        [lambda xp, x, y: xp.linalg.det(square(xp, x)), lambda xp, x, y: xp.linalg.det(stacked(xp, x))],
    ),
    "linalg.slogdet": (
        FLOATS,
        [lambda xp, x, y: xp.linalg.slogdet(square(xp, x)), lambda xp, x, y: xp.linalg.slogdet(stacked(xp, x))],
    ),
    "linalg.inv": (
        FLOATS,
        [lambda xp, x, y: xp.linalg.inv(square(xp, x)), lambda xp, x, y: xp.linalg.inv(stacked(xp, x))],
    ),
    "linalg.pinv": (
        FLOATS,
        [lambda xp, x, y: xp.linalg.pinv(x), lambda xp, x, y: xp.linalg.pinv(xp.stack([x, 2 * x]))],
    ),
    "linalg.solve": (
        FLOATS,
        [
            lambda xp, x, y: xp.linalg.solve(square(xp, x), x),
            lambda xp, x, y: xp.linalg.solve(square(xp, x), x[:, 0]),
            lambda xp, x, y: xp.linalg.solve(stacked(xp, x), x),
        ],
    ),
    "linalg.cholesky": (
        FLOATS,
        [
            lambda xp, x, y: xp.linalg.cholesky(definite(xp, x)),
            lambda xp, x, y: xp.linalg.cholesky(definite(xp, x), upper=True),
            lambda xp, x, y: xp.linalg.cholesky(xp.stack([definite(xp, x)] * 2)),
        ],
    ),
    "linalg.svdvals": (
        FLOATS,
        [lambda xp, x, y: xp.linalg.svdvals(x), lambda xp, x, y: xp.linalg.svdvals(stacked(xp, x))],
    ),
    "linalg.eigvalsh": (FLOATS, [lambda xp, x, y: xp.linalg.eigvalsh(definite(xp, x))]),
    # vectors have any sign: their products do not
    "linalg.eigh": (
        FLOATS,
        [
            lambda xp, x, y: product(xp, *xp.linalg.eigh(definite(xp, x))),
            lambda xp, x, y: xp.linalg.eigh(xp.stack([definite(xp, x)] * 2)).eigenvalues,
        ],
    ),
    "linalg.eig": (FLOATS, [lambda xp, x, y: rebuilt_by_eig(xp, square(xp, x))]),
    "linalg.eigvals": (FLOATS, [lambda xp, x, y: xp.sum(xp.linalg.eigvals(square(xp, x)) + 0j)]),
    "linalg.qr": (
        FLOATS,
        [lambda xp, x, y: xp.abs(xp.linalg.qr(x.T).R), lambda xp, x, y: xp.linalg.qr(x).Q @ xp.linalg.qr(x).R],
    ),
    "linalg.svd": (
        FLOATS,
        [
            lambda xp, x, y: xp.linalg.svd(x).S,
            lambda xp, x, y: rebuilt(*xp.linalg.svd(x, full_matrices=False)),
            lambda xp, x, y: xp.abs(xp.linalg.svd(stacked(xp, x)).U),
        ],
    ),
    # transforms
    **{
        f"fft.{name}": (
            ("f64", "c128") if name in ("fft", "ifft", "hfft", "irfft", "fftn", "ifftn", "irfftn") else ("f64",),
            [
                lambda xp, x, y, n=name: getattr(xp.fft, n)(x),
                lambda xp, x, y, n=name: getattr(xp.fft, n)(x, norm="ortho"),
            ]
            + (
                [lambda xp, x, y, n=name: getattr(xp.fft, n)(x, s=(4, 3), axes=(0, 1))]
                if name.endswith("n")
                else [
                    lambda xp, x, y, n=name: getattr(xp.fft, n)(x, n=5, axis=0),
                    lambda xp, x, y, n=name: getattr(xp.fft, n)(x, n=2),
                ]
            ),
        )
        for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn", "ifftn", "rfftn", "irfftn")
    },
    "fft.fftshift": (NUMBERS, [lambda xp, x, y: xp.fft.fftshift(x), lambda xp, x, y: xp.fft.fftshift(x, axes=1)]),
    "fft.ifftshift": (NUMBERS, [lambda xp, x, y: xp.fft.ifftshift(x), lambda xp, x, y: xp.fft.ifftshift(x, axes=(0,))]),
}
ELSEWHERE = {
    "test_creation.py": "arange asarray empty empty_like eye from_dlpack full linspace ones zeros "
    "fft.fftfreq fft.rfftfreq",
    "test_standard.py": "broadcast_shapes",
    "test_dtypes.py": "can_cast finfo iinfo isdtype result_type __array_namespace_info__",
    "test_elementwise.py": "clip " + " ".join((*UNARY, *BINARY)),
}


def square(xp: Any, x: Any) -> Any:
    return x[:, :3] + 4 * xp.eye(3, dtype=x.dtype)


def stacked(xp: Any, x: Any) -> Any:
    return xp.stack([square(xp, x), x[:, 1:] + 3 * xp.eye(3, dtype=x.dtype)])


def definite(xp: Any, x: Any) -> Any:
    return x @ xp.conj(x.T) + 3 * xp.eye(3, dtype=x.dtype)


def product(xp: Any, values: Any, vectors: Any) -> Any:
    return (vectors * values) @ xp.conj(vectors.T)


def rebuilt_by_eig(xp: Any, a: Any) -> Any:
    values, vectors = xp.linalg.eig(a)
    one = values + 0j * values  # NumPy gives real values where all are real
    vectors = vectors + 0j * vectors
    return vectors * one @ xp.linalg.inv(vectors)


def rebuilt(u: Any, s: Any, vh: Any) -> Any:
    return (u * s) @ vh


def hosts(name: str) -> tuple[Array, Array]:
    dtype = DTYPES[name]
    rng = np.random.default_rng(5)
    x, y = rng.integers(0, 4, (3, 4)).astype(float), rng.integers(0, 4, 4).astype(float)
    if dtype.is_float or dtype.is_complex:
        x, y = x + rng.normal(size=x.shape), y + rng.normal(size=y.shape)
    if dtype.is_complex:
        x, y = x + 1j * rng.normal(size=x.shape), y + 1j * rng.normal(size=y.shape)
    return x.astype(dtype.np), y.astype(dtype.np)


def compare(got: Any, want: Any, rtol: float) -> None:
    if isinstance(want, tuple | list):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            compare(one, other, rtol)
        return
    want = np.asarray(want)
    assert got.dtype is as_dtype(want.dtype), (got.dtype, want.dtype)
    values = got.get()
    assert values.shape == want.shape
    np.testing.assert_allclose(values, want, rtol=rtol, atol=rtol)


CASES = [pytest.param(name, dtype, id=f"{name}-{dtype}") for name, (dtypes, _) in LINES.items() for dtype in dtypes]


@pytest.mark.parametrize("name, dtype", CASES)
def test_function(session: cb.sync.Device, name: str, dtype: str) -> None:
    x, y = hosts(dtype)
    device_x, device_y = session.array(x), session.array(y)
    for line in LINES[name][1]:
        with np.errstate(all="ignore"):
            want = line(np, x, y)
        compare(line(session.xp, device_x, device_y), want, 2e-4 if dtype in ("f32", "c64") else 1e-9)


def test_every_function_is_tested() -> None:
    table = (Path(__file__).parent.parent / "data" / "array_api_2025_12.txt").read_text("utf-8").splitlines()
    there = {line.partition("(")[0] for line in table}
    tested = {*LINES, *(name for names in ELSEWHERE.values() for name in names.split())}
    assert there - tested == set()
    for file, names in ELSEWHERE.items():
        text = (Path(__file__).parent / file).read_text("utf-8")
        if file != "test_elementwise.py":
            assert [name for name in names.split() if f"{name.removeprefix('fft.')}" not in text] == []


def test_einsum_takes_equations_and_labels(session: cb.sync.Device) -> None:
    rng = np.random.default_rng(3)
    a, b, c = rng.random((3, 4)), rng.random((4, 5)), rng.integers(-5, 5, (2, 3, 4))
    x, y, z = session.put(a), session.put(b), session.put(c)
    xp = session.xp
    np.testing.assert_allclose(xp.einsum("ij,jk->ik", x, y).get(), a @ b, rtol=1e-12)
    np.testing.assert_allclose(xp.einsum(x, [0, 1], y, [1, 2], [2, 0]).get(), (a @ b).T, rtol=1e-12)
    np.testing.assert_allclose(xp.einsum(x, [30, 1], y, [1, 2]).get(), np.einsum(a, [30, 1], b, [1, 2]), rtol=1e-12)
    np.testing.assert_array_equal(xp.einsum(z, [..., 0, 1], [..., 1]).get(), np.einsum(c, [..., 0, 1], [..., 1]))
    np.testing.assert_allclose(xp.einsum("bij,jk", z, y).get(), np.einsum("bij,jk", c, b), rtol=1e-12)
    with pytest.raises(cb.ShapeError, match="label 52"):
        xp.einsum(x, [0, 52])
    with pytest.raises(TypeError, match="labels are 'ij'"):
        xp.einsum(x, "ij")
    with pytest.raises(TypeError, match="operand 0 is ndarray"):
        xp.einsum("ij", a)


def test_a_number_is_searched_and_an_axis_of_vecdot_may_count_from_the_first(session: cb.sync.Device) -> None:
    xp, line, a = session.xp, np.array([1, 2, 2, 5]), np.random.default_rng(0).normal(size=(3, 4, 2))
    for number in (2, 2.5, -1, np.float32(5)):
        for side in ("left", "right"):
            assert int(xp.searchsorted(session.array(line), number, side=side)) == np.searchsorted(line, number, side)
    x = session.array(a)
    for axis in range(-3, 3):
        np.testing.assert_allclose(xp.vecdot(x, x, axis=axis).get(), np.vecdot(a, a, axis=axis))
    with pytest.raises(cb.ShapeError, match="it must be negative, and both arrays must have it"):
        xp.vecdot(x, x[0], axis=0)
