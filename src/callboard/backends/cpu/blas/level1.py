"""Plans of BLAS level 1: routines for the types of BLAS, NumPy in f32 for the half types."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from callboard.backends.cpu.blas.routines import integer, number, prefix, routine
from callboard.backends.cpu.blas.scalars import reader
from callboard.backends.cpu.views import viewer
from callboard.core.layout import Layout, layout_of
from callboard.core.library import plans
from callboard.kernel.blas import Asum, Axpy, Copy, Dot, Dotc, Dotu, Iamax, Iamin, Nrm2, Rot, Scal, Swap
from callboard.kernel.blas.checks import BLAS_FLOATS
from callboard.kernel.blas.strides import Vector, vector_of

__all__ = ["Strided", "axpy", "copy", "dot", "reduce", "rot", "scal", "strided", "swap"]

Plan = Callable[..., None]


class Strided(NamedTuple):
    """A vector as the routines take it."""

    n: Any
    inc: Any
    first: int
    """Bytes from element 0 to the lowest address, which is where a routine starts."""


def strided(layout: Layout, *, either_way: bool = False) -> Strided:
    """The vector that a checked layout is.

    Args:
        layout: Layout of the vector.
        either_way: The order of the elements does not matter, so take them with a positive increment (routines with one
            vector do nothing for a negative one).
    """
    vector = _required(layout)
    inc = abs(vector.inc) if either_way else vector.inc
    return Strided(integer(vector.n), integer(inc), vector.first * layout.dtype.itemsize)


def _required(layout: Layout) -> Vector:
    vector = vector_of(layout)
    assert vector is not None, layout  # the message has refused it otherwise
    return vector


def _flat(layout: Layout) -> "Callable[[int], np.ndarray[Any, Any]]":
    """A view of the vector with one axis."""
    vector = _required(layout)
    return viewer(layout_of(layout.dtype, (vector.n,), (vector.inc,)))


@plans(Axpy)
def axpy(op: Axpy) -> Plan:
    """Called with ``(x, y, alpha)``."""
    dtype, read = op.x.dtype, reader(op.alpha)
    if dtype not in BLAS_FLOATS:
        view_x, view_y = _flat(op.x.layout), _flat(op.y.layout)

        def halves(x: int, y: int, alpha: Any) -> None:
            out, factor = view_y(y), np.float32(read(alpha))
            if factor != 0:
                out[...] = factor * view_x(x).astype(np.float32) + out.astype(np.float32)

        return halves
    call, pack = routine(prefix(dtype) + "axpy"), number(dtype)
    x_at, y_at = strided(op.x.layout), strided(op.y.layout)

    def work(x: int, y: int, alpha: Any) -> None:
        call(x_at.n, pack(read(alpha)), x + x_at.first, x_at.inc, y + y_at.first, y_at.inc)

    return work


@plans(Scal)
def scal(op: Scal) -> Plan:
    """Called with ``(x, alpha)``."""
    dtype, read = op.x.dtype, reader(op.alpha)
    if dtype not in BLAS_FLOATS:
        view = _flat(op.x.layout)

        def halves(x: int, alpha: Any) -> None:
            out = view(x)
            out[...] = np.float32(read(alpha)) * out.astype(np.float32)

        return halves
    if dtype.is_complex and isinstance(op.alpha, float):
        call, pack = routine({"c64": "csscal", "c128": "zdscal"}[dtype.name]), number(dtype.real)
    else:
        call, pack = routine(prefix(dtype) + "scal"), number(dtype)
    at = strided(op.x.layout, either_way=True)

    def work(x: int, alpha: Any) -> None:
        call(at.n, pack(read(alpha)), x + at.first, at.inc)

    return work


@plans(Copy)
def copy(op: Copy) -> Plan:
    """Called with ``(x, out)``."""
    out_layout = op.infer()["out"] if op.out is None else op.out.layout
    if op.x.dtype not in BLAS_FLOATS:
        view_x, view_out = _flat(op.x.layout), _flat(out_layout)
        return lambda x, out: np.copyto(view_out(out), view_x(x))
    call = routine(prefix(op.x.dtype) + "copy")
    x_at, out_at = strided(op.x.layout), strided(out_layout)

    def work(x: int, out: int) -> None:
        call(x_at.n, x + x_at.first, x_at.inc, out + out_at.first, out_at.inc)

    return work


@plans(Swap)
def swap(op: Swap) -> Plan:
    """Called with ``(x, y)``."""
    if op.x.dtype not in BLAS_FLOATS:
        view_x, view_y = _flat(op.x.layout), _flat(op.y.layout)

        def halves(x: int, y: int) -> None:
            first, second = view_x(x), view_y(y)
            kept = first.copy()
            first[...] = second
            second[...] = kept

        return halves
    call = routine(prefix(op.x.dtype) + "swap")
    x_at, y_at = strided(op.x.layout), strided(op.y.layout)

    def work(x: int, y: int) -> None:
        call(x_at.n, x + x_at.first, x_at.inc, y + y_at.first, y_at.inc)

    return work


@plans(Rot)
def rot(op: Rot) -> Plan:
    """Called with ``(x, y, c, s)``; complex vectors by LAPACK's ``crot``, whose sine may be complex."""
    dtype = op.x.dtype
    call = routine(prefix(dtype) + "rot")
    pack_c, pack_s, read_c, read_s = number(dtype.real), number(dtype), reader(op.c), reader(op.s)
    x_at, y_at = strided(op.x.layout), strided(op.y.layout)

    def work(x: int, y: int, c: Any, s: Any) -> None:
        call(x_at.n, x + x_at.first, x_at.inc, y + y_at.first, y_at.inc, pack_c(read_c(c)), pack_s(read_s(s)))

    return work


@plans(Dot, Dotc, Dotu)
def dot(op: Dot | Dotu | Dotc) -> Plan:
    """Called with ``(x, y, out)``."""
    dtype = op.x.dtype
    view_out = viewer(layout_of(dtype, ()))
    if dtype not in BLAS_FLOATS:
        view_x, view_y = _flat(op.x.layout), _flat(op.y.layout)

        def halves(x: int, y: int, out: int) -> None:
            view_out(out)[...] = np.dot(view_x(x).astype(np.float32), view_y(y).astype(np.float32))

        return halves
    name = {Dot: "dot", Dotu: "dotu", Dotc: "dotc"}[type(op)]
    call = routine(prefix(dtype) + name)
    x_at, y_at = strided(op.x.layout), strided(op.y.layout)

    def work(x: int, y: int, out: int) -> None:
        result = call(x_at.n, x + x_at.first, x_at.inc, y + y_at.first, y_at.inc)
        view_out(out)[...] = complex(result.real, result.imag) if dtype.is_complex else result

    return work


@plans(Asum, Iamax, Iamin, Nrm2)
def reduce(op: Nrm2 | Asum | Iamax | Iamin) -> Plan:
    """Called with ``(x, out)``."""
    dtype = op.x.dtype
    view_out = viewer(layout_of(op.infer()["out"].dtype, ()))
    if isinstance(op, Iamin) or dtype not in BLAS_FLOATS:
        view_x, function = _flat(op.x.layout), _BY_NUMPY[type(op)]

        def by_numpy(x: int, out: int) -> None:
            view_out(out)[...] = function(view_x(x))

        return by_numpy
    call = routine(_NAMES[type(op)][BLAS_FLOATS.index(dtype)])
    at = strided(op.x.layout, either_way=True)
    if isinstance(op, Iamax):
        last = op.x.size - 1

        def position(x: int, out: int) -> None:
            view_out(out)[...] = min(max(call(at.n, x + at.first, at.inc) - 1, 0), last)  # NaN may give anything

        return position

    def work(x: int, out: int) -> None:
        view_out(out)[...] = call(at.n, x + at.first, at.inc)

    return work


_NAMES: dict[type[Any], tuple[str, str, str, str]] = {
    Nrm2: ("snrm2", "dnrm2", "scnrm2", "dznrm2"),
    Asum: ("sasum", "dasum", "scasum", "dzasum"),
    Iamax: ("isamax", "idamax", "icamax", "izamax"),
}


def _magnitude(x: "np.ndarray[Any, Any]") -> Any:
    return np.abs(x.real) + np.abs(x.imag) if x.dtype.kind == "c" else np.abs(x.astype(np.float64))


_BY_NUMPY: dict[type[Any], Callable[[Any], Any]] = {
    Nrm2: lambda x: np.linalg.norm(x.astype(np.float64)),  # squares of bf16 leave the range of f32
    Asum: lambda x: _magnitude(x).sum(),
    Iamax: lambda x: np.argmax(_magnitude(x)),
    Iamin: lambda x: np.argmin(_magnitude(x)),
}
