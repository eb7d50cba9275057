"""``scipy.ndimage``: filters of an image with a border, sums over labels, and linear interpolation.

A filter is a sum (or an extreme) of shifted views of the image with its border, along one axis after another where the
kernel is a product. A value outside is taken as SciPy's ``mode`` says.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy

from callboard.numpylike.binding import Array, Maybe, dtype_of
from callboard.scipylike.filtering import host_values
from callboard.scipylike.special import floats
from callboard.scipylike.table import function

__all__: list[str] = []

BORDERS = {
    "reflect": "symmetric",
    "grid-mirror": "symmetric",
    "mirror": "reflect",
    "nearest": "edge",
    "wrap": "wrap",
    "grid-wrap": "wrap",
    "constant": "constant",
    "grid-constant": "constant",
}
"""The modes of ``np.pad`` by SciPy's."""


def _bordered(np: Any, x: Any, widths: list[tuple[int, int]], mode: str, cval: float) -> Any:
    if mode not in BORDERS:
        raise ValueError(f"mode is {mode!r:.60}; use one of {', '.join(BORDERS)}")
    if not x.ndim:
        return x
    extra = {"constant_values": cval} if BORDERS[mode] == "constant" else {}
    return np.pad(x, widths, mode=BORDERS[mode], **extra)


def _axes(x: Any, axes: Any) -> list[int]:
    return [axis % x.ndim for axis in (range(x.ndim) if axes is None else [axes] if isinstance(axes, int) else axes)]


def _each(value: Any, axes: list[int]) -> list[Any]:
    found = [value] * len(axes) if isinstance(value, int | float | str) else list(value)
    if len(found) != len(axes):
        raise ValueError(f"{len(found)} values are given for {len(axes)} axes: {value!r:.60}")
    return found


def _along(np: Any, x: Any, weights: Any, axis: int, mode: str, cval: float, origin: int) -> Any:
    """The correlation with weights of the host along one axis, in f64 for integers."""
    shape = [1] * x.ndim
    shape[axis] = len(weights)
    origins = [origin if k == axis else 0 for k in range(x.ndim)]
    return _correlated(np, x, numpy.reshape(weights, shape), mode, cval, origins, zeros=True)


def _shifted(np: Any, x: Any, size: tuple[int, ...], mode: str, cval: float, origins: list[int]) -> Any:
    """The views of ``x`` with its border by their places in the kernel."""
    lows = [n // 2 + origin for n, origin in zip(size, origins, strict=True)]
    for n, low, origin in zip(size, lows, origins, strict=True):
        if not 0 <= low < n:
            raise ValueError(f"origin is {origin}; it must keep the kernel of {n} over its pixel")
    if not x.size:
        return lambda place: x
    wide = _bordered(np, x, [(low, n - 1 - low) for n, low in zip(size, lows, strict=True)], mode, cval)
    return lambda place: wide[tuple(slice(k, k + n) for k, n in zip(place, x.shape, strict=True))]


def _check_axes(x: Any, weights: Any) -> None:
    if weights.ndim != x.ndim:
        raise ValueError(f"weights have {weights.ndim} axes, and the input has {x.ndim}")


def _correlated(
    np: Any, x: Any, weights: Any, mode: str, cval: float, origins: list[int], *, zeros: bool = False
) -> Any:
    """The correlation with weights of the host; with ``zeros`` weights of 0 count, so that 0 of infinity is NaN."""
    _check_axes(x, weights)
    view = _shifted(np, floats(np, x), weights.shape, mode, cval, origins)
    places = [place for place in numpy.ndindex(weights.shape) if zeros or weights[place]]
    terms = (view(place) * weights[place].item() for place in places)
    return functools.reduce(lambda one, other: one + other, terms) if places else np.zeros_like(floats(np, x))


def _as(np: Any, found: Any, output: Any, x: Any) -> Any:
    """The result in the dtype of ``output``, or of the input; numbers are cut towards 0 to integers, as in SciPy."""
    to = x.dtype if output is None else dtype_of(output)
    return np.asarray(found, dtype=to)


@function("ndimage")
def correlate1d(
    np: Any,
    input: Array,
    weights: Any,
    axis: int = -1,
    output: Any = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int = 0,
) -> Any:
    """The correlation with weights along one axis. ``output`` is a dtype."""
    found = _along(np, input, host_values("weights", weights), axis % input.ndim, mode, cval, origin)
    return _as(np, found, output, input)


@function("ndimage")
def convolve1d(
    np: Any,
    input: Array,
    weights: Any,
    axis: int = -1,
    output: Any = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int = 0,
) -> Any:
    """The convolution with weights along one axis. ``output`` is a dtype."""
    weights = host_values("weights", weights)[::-1]
    return correlate1d(np, input, weights, axis, output, mode, cval, -origin - (len(weights) % 2 == 0))


@function("ndimage")
def correlate(
    np: Any,
    input: Array,
    weights: Any,
    output: Any = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: Any = 0,
) -> Any:
    """The correlation with weights, which are read on the host. ``output`` is a dtype."""
    origins = _each(origin, _axes(input, None))
    return _as(np, _correlated(np, input, host_values("weights", weights), mode, cval, origins), output, input)


@function("ndimage")
def convolve(
    np: Any,
    input: Array,
    weights: Any,
    output: Any = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: Any = 0,
) -> Any:
    """The convolution with weights, which are read on the host. ``output`` is a dtype."""
    weights = numpy.flip(host_values("weights", weights))
    _check_axes(input, weights)
    origins = [-o - (n % 2 == 0) for o, n in zip(_each(origin, _axes(input, None)), weights.shape, strict=True)]
    return correlate(np, input, weights, output, mode, cval, origins)


def _separable(np: Any, x: Any, kernels: dict[int, Any], output: Any, modes: list[str], cval: float) -> Any:
    found = x
    for (axis, kernel), mode in zip(kernels.items(), modes, strict=True):
        found = _as(np, _along(np, found, kernel, axis, mode, cval, 0), output, x)
    return found if kernels and x.ndim else _as(np, np.copy(x), output, x)


def _gaussian(sigma: float, order: int, radius: int) -> Any:
    """Samples of a Gaussian or of its derivative, from the recurrence of Hermite's polynomials."""
    places = numpy.arange(-radius, radius + 1)
    phi = numpy.exp(-0.5 / (sigma * sigma) * places**2)
    phi /= phi.sum()
    q = numpy.polynomial.Polynomial([1.0])
    for _ in range(order):
        q = q.deriv() + q * numpy.polynomial.Polynomial([0.0, -1 / sigma**2])
    return (q(places) * phi)[::-1]


@function("ndimage")
def gaussian_filter1d(
    np: Any,
    input: Array,
    sigma: float,
    axis: int = -1,
    order: int = 0,
    output: Any = None,
    mode: str = "reflect",
    cval: float = 0.0,
    truncate: float = 4.0,
    *,
    radius: int | None = None,
) -> Any:
    """A Gaussian of standard deviation ``sigma`` in pixels, or its derivative, along one axis."""
    return gaussian_filter(np, input, sigma, order, output, mode, cval, truncate, radius=radius, axes=(axis,))


@function("ndimage")
def gaussian_filter(
    np: Any,
    input: Array,
    sigma: Any,
    order: Any = 0,
    output: Any = None,
    mode: Any = "reflect",
    cval: float = 0.0,
    truncate: float = 4.0,
    *,
    radius: Any = None,
    axes: Any = None,
) -> Any:
    """A Gaussian of standard deviation ``sigma`` in pixels, or its derivatives, cut at ``truncate`` deviations."""
    axes = _axes(input, axes)
    kernels, modes = {}, []
    sizes = [None] * len(axes) if radius is None else _each(radius, axes)
    for axis, s, o, size, m in zip(axes, _each(sigma, axes), _each(order, axes), sizes, _each(mode, axes), strict=True):
        if s < 0 or not math.isfinite(s):
            raise ValueError(f"sigma is {s}; it must be at least 0")
        if s > 1e-15:
            kernels[axis] = _gaussian(s, o, int(truncate * s + 0.5) if size is None else size)
            modes.append(m)
    return _separable(np, input, kernels, output, modes, cval)


def _edge(smooth: list[float]) -> Callable[..., Any]:
    def made(
        np: Any, input: Array, axis: int = -1, output: Any = None, mode: Any = "reflect", cval: float = 0.0
    ) -> Any:
        axis %= input.ndim
        axes = [axis, *(k for k in range(input.ndim) if k != axis)]
        given = _each(mode, list(range(input.ndim)))
        kernels = {k: numpy.array([-1.0, 0, 1] if k == axis else smooth) for k in axes}
        return _separable(np, input, kernels, output, [given[k] for k in axes], cval)

    return made


for _name, _smooth in (("sobel", [1.0, 2, 1]), ("prewitt", [1.0, 1, 1])):
    _made = _edge(_smooth)
    _made.__doc__ = f"{_name.title()}'s filter along one axis. ``output`` is a dtype."
    function("ndimage", _name)(_made)


@function("ndimage")
def laplace(np: Any, input: Array, output: Any = None, mode: Any = "reflect", cval: float = 0.0) -> Any:
    """The sum of the second differences along all axes."""
    modes = _each(mode, _axes(input, None))
    if not input.ndim:
        return _as(np, np.copy(input), output, input)
    found = [_along(np, input, numpy.array([1.0, -2, 1]), k, modes[k], cval, 0) for k in range(input.ndim)]
    return _as(np, functools.reduce(lambda one, other: one + other, found), output, input)


@function("ndimage")
def uniform_filter(
    np: Any,
    input: Array,
    size: Any = 3,
    output: Any = None,
    mode: Any = "reflect",
    cval: float = 0.0,
    *,
    axes: Any = None,
) -> Any:
    """The mean over a box of ``size`` pixels."""
    axes = _axes(input, axes)
    kernels = {axis: numpy.full(n, 1 / n) for axis, n in zip(axes, _each(size, axes), strict=True)}
    return _separable(np, input, kernels, output, _each(mode, axes), cval)


def _extreme(name: str) -> Callable[..., Any]:
    def made(np: Any, input: Array, size: Any, *, mode: str = "reflect", cval: float = 0.0, axes: Any = None) -> Any:
        found, axes = input, _axes(input, axes)
        for axis, n in zip(axes, _each(size, axes), strict=True):
            extent = tuple(n if k == axis else 1 for k in range(input.ndim))
            view = _shifted(np, found, extent, mode, cval, [0] * input.ndim)
            found = functools.reduce(getattr(np, name), (view(place) for place in numpy.ndindex(extent)))
        return found

    return made


for _name, _of in (("maximum_filter", "maximum"), ("minimum_filter", "minimum")):
    _made = _extreme(_of)
    _made.__doc__ = f"The {_of} over a box of ``size`` pixels."
    function("ndimage", _name)(_made)


# -- labels ------------------------------------------------------------------------------------------------------------


def _over(np: Any, input: Any, labels: Any, index: Any) -> tuple[Any, Any]:
    """Sums and counts of the pixels of each label of ``index``; a single label is a 0-d result."""
    x = floats(np, input)
    if labels is None:
        return np.sum(x), float(x.size)
    x, labels = np.broadcast_arrays(x, labels)
    if index is None:
        inside = labels > 0
        return np.sum(np.where(inside, x, 0)), np.sum(np.asarray(inside, dtype=x.dtype))
    values = host_values("index", index)
    sums: list[Any] = []
    counts: list[Any] = []
    for value in values.reshape(-1).tolist():
        inside = labels == value
        sums.append(np.sum(np.where(inside, x, 0)))
        counts.append(np.sum(np.asarray(inside, dtype=x.dtype)))
    if not values.size:
        return (np.zeros(values.shape, dtype=x.dtype),) * 2
    return tuple(np.reshape(np.stack(one), values.shape) for one in (sums, counts))


@function("ndimage", "sum_labels", "sum")
def sum_labels(np: Any, input: Array, labels: Maybe = None, index: Any = None) -> Any:
    """The sums of the pixels of each label, two ops for each label of ``index``, which is read on the host."""
    return _over(np, input, labels, index)[0]


@function("ndimage")
def mean(np: Any, input: Array, labels: Maybe = None, index: Any = None) -> Any:
    """The means of the pixels of each label of ``index``, which is read on the host."""
    sums, counts = _over(np, input, labels, index)
    return sums / counts


# -- interpolation -----------------------------------------------------------------------------------------------------


def _sampled(np: Any, x: Any, places: list[Any], order: int, mode: str, cval: float) -> Any:
    """``x`` at coordinates that are one array of the host per axis."""
    if order not in (0, 1):
        raise ValueError(f"order is {order!r}; use order=0 or order=1: splines are not built")
    if mode not in ("constant", "nearest", "mirror", "reflect"):
        raise ValueError(f"mode is {mode!r:.60}; use 'constant', 'nearest', 'mirror' or 'reflect'")
    found = floats(np, x)
    for axis, at in enumerate(places):
        n = x.shape[axis]
        shape = [-1 if k == axis else 1 for k in range(x.ndim)]
        outside = numpy.reshape((at < 0) | (at > n - 1), shape)
        low = numpy.floor(at + (0.5 if order == 0 else 0)).astype(int)
        part = numpy.reshape(at - low, shape) if order else numpy.zeros(shape and (1,) * x.ndim)
        first, second = (np.take(found, np.asarray(_inside(low + k, n, mode)), axis=axis) for k in (0, 1))
        weight = np.asarray(part, dtype=found.dtype)
        found = first * (1 - weight) + second * weight if order else first
        if mode == "constant" and outside.any():
            found = np.where(np.asarray(outside), cval, found)
    return found


def _check_image(x: Any) -> None:
    if not x.ndim:
        raise ValueError(f"input is {x.layout!r}; an image has at least one axis")


def _nearest(np: Any, found: Any, output: Any, x: Any) -> Any:
    """Interpolated numbers as :func:`_as` gives them, but the nearest whole ones of integers, as in SciPy."""
    to = dtype_of(output) or x.dtype
    return np.asarray(found + np.copysign(0.5, found) if to.kind in ("int", "uint") else found, dtype=to)


def _inside(places: Any, n: int, mode: str) -> Any:
    if mode == "mirror" and n > 1:
        places = numpy.abs(places) % (2 * n - 2)
        return numpy.where(places >= n, 2 * n - 2 - places, places)
    if mode == "reflect":
        places = places % (2 * n)
        return numpy.where(places >= n, 2 * n - 1 - places, places)
    return numpy.clip(places, 0, n - 1)


@function("ndimage")
def shift(
    np: Any, input: Array, shift: Any, output: Any = None, order: int = 3, mode: str = "constant", cval: float = 0.0
) -> Any:
    """The input moved by pixels along each axis, interpolated by ``order`` 0 or 1, which must be given."""
    _check_image(input)
    moves = _each(shift, _axes(input, None))
    if not all(map(math.isfinite, moves)):
        raise ValueError(f"shift is {shift!r:.60}; it must be finite")
    places = [numpy.arange(n) - by for n, by in zip(input.shape, moves, strict=True)]
    return _nearest(np, _sampled(np, input, places, order, mode, cval), output, input)


@function("ndimage")
def zoom(
    np: Any, input: Array, zoom: Any, output: Any = None, order: int = 3, mode: str = "constant", cval: float = 0.0
) -> Any:
    """The input with each axis longer by a factor, interpolated by ``order`` 0 or 1, which must be given."""
    _check_image(input)
    factors = _each(zoom, _axes(input, None))
    places = []
    for n, by in zip(input.shape, factors, strict=True):
        count = round(n * by)
        places.append(numpy.arange(count) * ((n - 1) / (count - 1) if count > 1 else 1.0))
    return _nearest(np, _sampled(np, input, places, order, mode, cval), output, input)
