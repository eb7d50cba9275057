"""``xp.fft``: Fourier transforms, by :mod:`callboard.kernel.fft`.

Input is padded with zeros or cut to the requested number of points. Real input of a complex transform becomes complex;
integers and bools are transformed in float64, halves in float32. More than three axes are transformed in several
passes.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal

from callboard.actors.handles import Handle
from callboard.arrays.creation import Creation
from callboard.arrays.elementwise import apply
from callboard.arrays.handles import Ref, axes_of, axis_of, cast, check_array, device_of, submit
from callboard.arrays.introspection.unknown import unknown
from callboard.arrays.manipulation import roll
from callboard.core.dtype import DTYPES, DType, DTypeLike, as_dtype
from callboard.core.errors import ShapeError
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.core.ref.naming import naming
from callboard.core.ref.tokens import INSTEAD_OF_PICKLING
from callboard.kernel.elementwise.promotion import complex_of
from callboard.kernel.fft.numpylike import Fft, Irfft, Rfft
from callboard.kernel.memory import Copy

__all__ = [
    "Fourier",
    "fft",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfftn",
    "rfft",
    "rfftn",
]

Norm = Literal["backward", "ortho", "forward"]
MOST = 3
"""Axes of one call of the library."""
INVERSE: dict[str, Norm] = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _floating(x: Ref) -> Ref:
    if x.dtype.kind not in ("float", "complex"):
        return cast(x, DTYPES["f64"])
    return cast(x, DTYPES["f32"]) if x.dtype.itemsize < 4 else x


def _complex(x: Ref) -> Ref:
    floats = _floating(x)
    return cast(floats, complex_of(floats.dtype))


def _real(function: str, x: Ref) -> Ref:
    if x.dtype.is_complex:
        raise TypeError(f"xp.fft.{function}: x is {x.layout!r}; it must be real (xp.fft.fft takes complex numbers)")
    return _floating(x)


def _resized(function: str, x: Ref, n: int | None, axis: int) -> Ref:
    """With ``n`` points along an axis: cut, or padded with zeros at the end."""
    have = x.shape[axis]
    if n is None or n == have:
        return x
    if n < 1:
        raise ShapeError(f"xp.fft.{function}: n is {n}; it must be >= 1")
    front = (slice(None),) * axis
    if n < have:
        return x[(*front, slice(n))]
    padded: Ref = device_of(x).zeros((*x.shape[:axis], n, *x.shape[axis + 1 :]), dtype=x.dtype)
    written: Ref = submit(x, Copy(src=x, out=padded[(*front, slice(have))]))
    return written._view(padded.layout, padded.offset)


def _axes(
    function: str, x: Ref, s: Sequence[int] | None, axes: Sequence[int] | None
) -> tuple[list[int], list[int | None]]:
    """The axes, counted from 0, and the points along each."""
    if axes is None:
        axes = range(x.ndim - len(s), x.ndim) if s is not None else range(x.ndim)
    found = [axis_of(f"fft.{function}", x, axis) for axis in axes]
    points: list[int | None] = [None] * len(found) if s is None else [None if n == -1 else n for n in s]
    if len(points) != len(found):
        raise ShapeError(f"xp.fft.{function}: s is {s} and axes is {axes}; give as many")
    return found, points


def _transformed(x: Ref, axes: Sequence[int], direction: Literal["forward", "inverse"], norm: Norm) -> Any:
    for start in range(0, len(axes), MOST):
        x = submit(x, Fft(x=x, axes=tuple(axes[start : start + MOST]), direction=direction, norm=norm))
    return x


def fft(x: GpuRef[Mode], /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> GpuRef[Mode]:
    """The transform along an axis, of ``n`` points."""
    found: GpuRef[Mode] = _along("fft", x, n, axis, "forward", norm)
    return found


def ifft(x: GpuRef[Mode], /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> GpuRef[Mode]:
    """The inverse of :func:`fft`."""
    found: GpuRef[Mode] = _along("ifft", x, n, axis, "inverse", norm)
    return found


def _along(
    function: str, x: Ref, n: int | None, axis: int, direction: Literal["forward", "inverse"], norm: Norm
) -> Any:
    check_array(f"fft.{function}", "x", x)
    along = axis_of(f"fft.{function}", x, axis)
    return _transformed(_resized(function, _complex(x), n, along), [along], direction, norm)


def fftn(
    x: GpuRef[Mode], /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = "backward"
) -> GpuRef[Mode]:
    """The transform along several axes, all when None, of ``s`` points (-1: as many as there are)."""
    found: GpuRef[Mode] = _several("fftn", x, s, axes, "forward", norm)
    return found


def ifftn(
    x: GpuRef[Mode], /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = "backward"
) -> GpuRef[Mode]:
    """The inverse of :func:`fftn`."""
    found: GpuRef[Mode] = _several("ifftn", x, s, axes, "inverse", norm)
    return found


def _several(function: str, x: Ref, s: Any, axes: Any, direction: Literal["forward", "inverse"], norm: Norm) -> Any:
    check_array(f"fft.{function}", "x", x)
    places, points = _axes(function, x, s, axes)
    found = _complex(x)
    for axis, n in zip(places, points, strict=True):
        found = _resized(function, found, n, axis)
    return _transformed(found, places, direction, norm)


def rfft(x: GpuRef[Mode], /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> GpuRef[Mode]:
    """The transform of a real array along an axis: the first ``n // 2 + 1`` of ``n`` points."""
    return rfftn(x, s=None if n is None else (n,), axes=(axis,), norm=norm)


def rfftn(
    x: GpuRef[Mode], /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = "backward"
) -> GpuRef[Mode]:
    """The transform of a real array along several axes: of the last one the first half of the points."""
    check_array("fft.rfftn", "x", x)
    places, points = _axes("rfftn", x, s, axes)
    found = _real("rfftn", x)
    for axis, n in zip(places, points, strict=True):
        found = _resized("rfftn", found, n, axis)
    first: Any = submit(x, Rfft(x=found, axes=tuple(places[-1:]), norm=norm))
    return _transformed(first, places[:-1], "forward", norm)  # type: ignore[no-any-return]


def irfft(x: GpuRef[Mode], /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> GpuRef[Mode]:
    """The inverse of :func:`rfft`: ``n`` real points, an even number when None."""
    return irfftn(x, s=None if n is None else (n,), axes=(axis,), norm=norm)


def irfftn(
    x: GpuRef[Mode], /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = "backward"
) -> GpuRef[Mode]:
    """The inverse of :func:`rfftn`."""
    check_array("fft.irfftn", "x", x)
    places, points = _axes("irfftn", x, s, axes)
    found, last = _complex(x), places[-1]
    for axis, n in zip(places[:-1], points[:-1], strict=True):
        found = _resized("irfftn", found, n, axis)
    n = 2 * (found.shape[last] - 1) if points[-1] is None else points[-1]
    if n < 1:
        raise ShapeError(f"xp.fft.irfftn: n is {n} for x {x.layout!r} along axis {last}; it must be >= 1")
    found = _resized("irfftn", found, n // 2 + 1, last)
    found = _transformed(found, places[:-1], "inverse", norm)
    real: GpuRef[Mode] = submit(x, Irfft(x=found, n=n, axes=(last,), norm=norm))
    return real


def hfft(x: GpuRef[Mode], /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> GpuRef[Mode]:
    """The transform of a Hermitian array, given by its first half: ``n`` real points."""
    check_array("fft.hfft", "x", x)
    return irfft(apply("conj(x)", x=_complex(x)), n=n, axis=axis, norm=INVERSE.get(norm, norm))


def ihfft(x: GpuRef[Mode], /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> GpuRef[Mode]:
    """The inverse of :func:`hfft`."""
    check_array("fft.ihfft", "x", x)
    return apply("conj(x)", x=rfft(x, n=n, axis=axis, norm=INVERSE.get(norm, norm)))  # type: ignore[no-any-return]


def fftshift(x: GpuRef[Mode], /, *, axes: int | tuple[int, ...] | None = None) -> GpuRef[Mode]:
    """Frequency 0 in the middle of the axes."""
    places = axes_of("fft.fftshift", check_array("fft.fftshift", "x", x), axes)
    return roll(x, tuple(x.shape[a] // 2 for a in places), axis=places)


def ifftshift(x: GpuRef[Mode], /, *, axes: int | tuple[int, ...] | None = None) -> GpuRef[Mode]:
    """The inverse of :func:`fftshift`."""
    places = axes_of("fft.ifftshift", check_array("fft.ifftshift", "x", x), axes)
    return roll(x, tuple(-(x.shape[a] // 2) for a in places), axis=places)


@naming("xp.fft")
class Fourier(Handle, Generic[Mode]):
    """``xp.fft`` of one device.

    Args:
        creation: Makes arrays there.
    """

    instead_of_pickling = INSTEAD_OF_PICKLING

    def __init__(self, creation: Creation[Mode]) -> None:
        self._creation = creation

    if not TYPE_CHECKING:  # type checkers would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            if name.endswith("2") and hasattr(self, f"{name[:-1]}n"):
                raise AttributeError(f"xp.fft has no {name!r}; use {name[:-1]}n(x, axes=(-2, -1))", name=name, obj=self)
            raise unknown("xp.fft", name, dir(type(self)))

    fft = staticmethod(fft)
    fftn = staticmethod(fftn)
    fftshift = staticmethod(fftshift)
    hfft = staticmethod(hfft)
    ifft = staticmethod(ifft)
    ifftn = staticmethod(ifftn)
    ifftshift = staticmethod(ifftshift)
    ihfft = staticmethod(ihfft)
    irfft = staticmethod(irfft)
    irfftn = staticmethod(irfftn)
    rfft = staticmethod(rfft)
    rfftn = staticmethod(rfftn)

    def fftfreq(
        self, n: int, /, *, d: float = 1.0, dtype: DTypeLike | None = None, device: str | None = None
    ) -> GpuRef[Mode]:
        """The frequencies of the points of :func:`fft`, for samples ``d`` apart."""
        return self._frequencies("fftfreq", n, d, -(n // 2), n, dtype, device, (n - 1) // 2 + 1)

    def rfftfreq(
        self, n: int, /, *, d: float = 1.0, dtype: DTypeLike | None = None, device: str | None = None
    ) -> GpuRef[Mode]:
        """The frequencies of the points of :func:`rfft`, for samples ``d`` apart."""
        return self._frequencies("rfftfreq", n, d, 0, n // 2 + 1, dtype, device, 0)

    def _frequencies(
        self, function: str, n: int, d: float, first: int, count: int, dtype: Any, device: Any, shift: int
    ) -> GpuRef[Mode]:
        if n < 1:
            raise ShapeError(f"xp.fft.{function}: n is {n}; it must be >= 1")
        to: DType = DTYPES["f64"] if dtype is None else as_dtype(dtype)
        numbers = self._creation.arange(first, first + count, dtype="f64", device=device)
        found: Any = apply("k / m", k=numbers, m=float(n * d))
        return cast(roll(found, shift, axis=0) if shift else found, to)
