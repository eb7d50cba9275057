"""``scipy.signal``: convolutions by FFT, recursive filters by blocks and doubling, resampling, trends.

A recursive filter is a linear recurrence of a state, ``z' = A z + B x`` and ``y = C z + D x`` (SciPy's transposed
direct form II). A block of samples is a product with a triangular Toeplitz matrix; the states between blocks are summed
by doubling with powers of ``A`` (Blelloch, *Prefix sums and their applications*, 1990): ``log2(blocks)`` products.
"""

from typing import Any

import numpy

from callboard.core.ref import GpuRef
from callboard.numpylike.binding import Array, Maybe
from callboard.scipylike.special import floats
from callboard.scipylike.table import function

__all__ = ["BLOCK", "detrended", "host_values"]

BLOCK = 64
"""Samples of one block of a recursive filter."""


def host_values(name: str, value: Any) -> Any:
    """Coefficients as an array of the host; those on a device are read where it waits, and refused elsewhere."""
    if not isinstance(value, GpuRef):
        return numpy.asarray(value)
    if not value._port.services.blocking:
        raise TypeError(f"{name} is on the device, and its values are needed now; give a list or an array of NumPy")
    return numpy.asarray(value.get())


# -- convolutions ------------------------------------------------------------------------------------------------------


def _product(np: Any, a: Any, v: Any, axes: Any, mode: str) -> Any:
    """The convolution along axes, cut as ``mode`` says; the other axes broadcast."""
    if a.ndim != v.ndim:
        raise ValueError(f"both must have as many axes; they are {a.layout!r} and {v.layout!r}")
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"mode is {mode!r:.60}; use 'full', 'same' or 'valid'")
    axes = range(a.ndim) if axes is None else [axes] if isinstance(axes, int) else axes
    axes = [axis % a.ndim for axis in axes]
    if mode == "valid" and any(a.shape[k] < v.shape[k] for k in axes):
        if any(a.shape[k] > v.shape[k] for k in axes):
            raise ValueError(f"for 'valid', one must be at least as large along every axis: {a.shape}, {v.shape}")
        a, v = v, a
    whole = not {a.dtype.kind, v.dtype.kind} & {"float", "complex"}
    kept = np.result_type(a.dtype, v.dtype)
    full = [a.shape[k] + v.shape[k] - 1 for k in axes]
    if not a.size or not v.size:
        return np.zeros((0,), dtype=kept)
    a, v = floats(np, a), floats(np, v)
    if axes:
        complexes = "complex" in (a.dtype.kind, v.dtype.kind)
        there, back = (np.fft.fftn, np.fft.ifftn) if complexes else (np.fft.rfftn, np.fft.irfftn)
        found = back(there(a, full, axes) * there(v, full, axes), full, axes)
    else:
        found = a * v
    window = [slice(None)] * a.ndim
    for k in axes:
        if mode == "same":
            start = (v.shape[k] - 1) // 2
            window[k] = slice(start, start + a.shape[k])
        elif mode == "valid":
            window[k] = slice(v.shape[k] - 1, a.shape[k])
    found = found[tuple(window)]
    return np.asarray(np.rint(found), dtype=kept) if whole else found


@function("signal", "fftconvolve", "oaconvolve")
def fftconvolve(np: Any, in1: Array, in2: Array, mode: str = "full", axes: Any = None) -> Any:
    """The convolution of two arrays along axes, by FFT; the other axes broadcast."""
    return floats(np, _product(np, floats(np, in1), floats(np, in2), axes, mode))


@function("signal")
def convolve(np: Any, in1: Array, in2: Array, mode: str = "full", method: str = "auto") -> Any:
    """The convolution of two arrays. It is computed by FFT whatever the method; integers are rounded."""
    _check_method(method)
    return _product(np, in1, in2, None, mode)


@function("signal")
def correlate(np: Any, in1: Array, in2: Array, mode: str = "full", method: str = "auto") -> Any:
    """The cross-correlation of two arrays. It is computed by FFT whatever the method; integers are rounded."""
    _check_method(method)
    other = np.flip(in2)
    other = np.conj(other) if other.dtype.is_complex else other
    if mode == "valid" and any(a < b for a, b in zip(in1.shape, in2.shape, strict=False)):
        raise ValueError(f"for 'valid', in1 must be at least as large along every axis: {in1.shape}, {in2.shape}")
    return _product(np, in1, other, None, mode)


def _check_method(method: str) -> None:
    if method not in ("auto", "fft", "direct"):
        raise ValueError(f"method is {method!r:.60}; use 'auto', 'fft' or 'direct'")


@function("signal")
def hilbert(np: Any, x: Array, N: int | None = None, axis: int = -1) -> Any:  # SciPy's name
    """The analytic signal: ``x`` with its Hilbert transform as imaginary part."""
    if x.dtype.is_complex:
        raise ValueError("x must be real.")
    n = x.shape[axis] if N is None else N
    if n <= 0:
        raise ValueError("N must be positive.")
    factors = numpy.zeros(n)
    factors[0] = 1
    factors[1 : (n + 1) // 2] = 2
    if n % 2 == 0:
        factors[n // 2] = 1
    x = floats(np, x)
    factors = factors.reshape([-1 if k == axis % x.ndim else 1 for k in range(x.ndim)])
    return np.fft.ifft(np.fft.fft(x, n, axis) * np.asarray(factors, dtype=x.dtype), axis=axis)


@function("signal")
def resample(np: Any, x: Array, num: int, *, axis: int = 0) -> Any:
    """``num`` samples of the periodic, band-limited signal through ``x`` along an axis, by FFT."""
    x, n = floats(np, x), x.shape[axis]
    spectrum = np.moveaxis(np.fft.fft(x, axis=axis), axis, -1)
    least = min(num, n)
    positive, negative = spectrum[..., : least // 2 + 1], spectrum[..., n - (least - 1) // 2 :]
    if least % 2 == 0 and num != n:  # the component at the Nyquist frequency is split or joined
        last = positive[..., -1:]
        if num < n:
            last = last + spectrum[..., n - least // 2 : n - least // 2 + 1]
            positive = np.concatenate([positive[..., :-1], last], axis=-1)
        else:
            positive = np.concatenate([positive[..., :-1], last * 0.5], axis=-1)
            negative = np.concatenate([last * 0.5, negative], axis=-1)
    missing = num - positive.shape[-1] - negative.shape[-1]
    middle = np.zeros((*spectrum.shape[:-1], missing), dtype=spectrum.dtype)
    found = np.fft.ifft(np.concatenate([positive, middle, negative], axis=-1), axis=-1) * (num / n)
    return np.moveaxis(found if x.dtype.is_complex else np.real(found), -1, axis)


def detrended(np: Any, x: Any, kind: str) -> Any:
    """``x`` without its mean (``"constant"``) or its line of least squares (``"linear"``) along the last axis."""
    if kind not in ("constant", "linear"):
        raise ValueError(f"the kind of trend is {kind!r:.60}; use 'constant' or 'linear'")
    found = x - np.mean(x, axis=-1, keepdims=True)
    n = x.shape[-1]
    if kind == "constant" or n < 2:
        return found
    line = numpy.arange(n) - (n - 1) / 2
    line = np.asarray(line / numpy.sqrt((line**2).sum()), dtype=np.real(x).dtype)
    return found - np.sum(found * line, axis=-1, keepdims=True) * line


@function("signal")
def detrend(np: Any, data: Array, axis: int = -1, type: str = "linear") -> Any:
    """The data without their mean or line of least squares along an axis."""
    kind = {"l": "linear", "c": "constant"}.get(type, type)
    return np.moveaxis(detrended(np, np.moveaxis(floats(np, data), axis, -1), kind), -1, axis)


# -- recursive filters -------------------------------------------------------------------------------------------------


@function("signal")
def lfilter(np: Any, b: Any, a: Any, x: Array, axis: int = -1, zi: Maybe = None) -> Any:
    """The filter with numerator ``b`` and denominator ``a`` along an axis; with ``zi`` also the last state.

    Coefficients are read on the host. The recursion runs by blocks, so results differ from SciPy's by rounding; f64
    coefficients make f64 results, as in SciPy. With ``zi`` the digits that are lost grow with the order: prefer
    :func:`sosfilt` above 4.
    """
    b, a = (numpy.atleast_1d(host_values(name, value)) for name, value in (("b", b), ("a", a)))
    if b.ndim != 1 or a.ndim != 1 or not b.size or not a.size or a[0] == 0:
        raise ValueError("b and a must have one axis and at least one number, and a[0] must not be 0")
    x = _promoted(np, x, b, a)
    order = max(len(a), len(b)) - 1
    b, a = (numpy.pad(one / a[0], (0, order + 1 - len(one))) for one in (b, a))
    x = np.moveaxis(x, axis, -1)
    state = None if zi is None else np.moveaxis(floats(np, zi), axis, -1)
    if state is not None and state.shape[-1] != order:
        raise ValueError(f"zi has {state.shape[-1]} numbers along the axis, and the filter has a state of {order}")
    if zi is None and order > 2 and a[1:].any() and b.any() and not numpy.iscomplexobj(b + a):
        return np.moveaxis(_in_sections(np, b, a, x), -1, axis)
    found, last = _filtered(np, b, a, x, state)
    found = np.moveaxis(found, -1, axis)
    return found if zi is None else (found, np.moveaxis(last, -1, axis))


@function("signal")
def sosfilt(np: Any, sos: Any, x: Array, axis: int = -1, zi: Maybe = None) -> Any:
    """The filter of second-order sections along an axis, one after the other; with ``zi`` also the last states."""
    sections = numpy.atleast_2d(host_values("sos", sos))
    if sections.ndim != 2 or sections.shape[1] != 6 or (sections[:, 3] != 1).any():
        raise ValueError("sos must have the shape (sections, 6), with sos[:, 3] all 1")
    x = np.moveaxis(_promoted(np, x, sections), axis, -1)
    states = None if zi is None else np.moveaxis(floats(np, zi), axis % x.ndim + 1, -1)
    lasts = []
    for k, row in enumerate(sections):
        x, last = _filtered(np, row[:3], row[3:], x, None if states is None else states[k])
        lasts.append(last)
    x = np.moveaxis(x, -1, axis)
    return x if zi is None else (x, np.moveaxis(np.stack(lasts), -1, axis % x.ndim + 1))


def _in_sections(np: Any, b: Any, a: Any, x: Any) -> Any:
    """The filter as sections of order two: powers of the matrix of a higher order lose digits."""
    from scipy.signal import tf2sos  # takes long to import

    delay, n = int(numpy.flatnonzero(b)[0]), x.shape[-1]
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(delay, 0)])[..., :n]
    for row in tf2sos(numpy.roll(b, -delay), a):
        x = _filtered(np, row[:3], row[3:], x, None)[0]
    return x


def _promoted(np: Any, x: Any, *coefficients: Any) -> Any:
    """``x`` in the dtype of the results, which is at least that of the coefficients."""
    return np.asarray(x, dtype=np.result_type(floats(np, x).dtype, *(numpy.result_type(c, "f4") for c in coefficients)))


def _filtered(np: Any, b: Any, a: Any, x: Any, state: Any) -> tuple[Any, Any]:
    """The filter along the last axis from a state, and the state after it."""
    order, n = len(a) - 1, x.shape[-1]
    shift = numpy.eye(order, k=1, dtype=numpy.result_type(a, b))
    shift[:, :1] -= a[1:, None]
    inward = b[1:] - a[1:] * b[0]
    powers = [numpy.eye(order)]
    for _ in range(BLOCK):
        powers.append(powers[-1] @ shift)
    drawn = numpy.array([power @ inward for power in powers[:BLOCK]]).reshape(BLOCK, order)  # A^k B
    response: Any = numpy.concatenate([[b[0]], drawn[:-1, 0] if order else numpy.zeros(BLOCK - 1)])
    place = numpy.subtract.outer(numpy.arange(BLOCK), numpy.arange(BLOCK))
    toeplitz = numpy.where(place >= 0, response[abs(place)], 0)

    def there(array: Any) -> Any:
        if numpy.iscomplexobj(array):
            return np.asarray(array)
        return np.asarray(array, dtype=np.real(x).dtype)

    if not order or not n:
        empty = np.zeros((*x.shape[:-1], order), dtype=x.dtype) if state is None else state
        return x * there(b[0]), empty
    count = -(-n // BLOCK)
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, count * BLOCK - n)])
    blocks = np.reshape(padded, (*x.shape[:-1], count, BLOCK))
    sums = np.matmul(blocks, there(drawn[::-1].copy()))  # what each block adds to the state
    first = np.zeros((*x.shape[:-1], 1, order), dtype=sums.dtype) if state is None else state[..., None, :]
    first = np.broadcast_to(first, (*x.shape[:-1], 1, order))
    states = np.concatenate([first, sums[..., :-1, :]], axis=-2)
    step, reach = powers[BLOCK], 1
    while reach < count:
        moved = np.matmul(states[..., :-reach, :], there(step.T.copy()))
        states = np.concatenate([states[..., :reach, :], states[..., reach:, :] + moved], axis=-2)
        step, reach = step @ step, 2 * reach
    seen = numpy.array([power[0] for power in powers[:BLOCK]])
    found = np.matmul(blocks, there(toeplitz.T.copy())) + np.matmul(states, there(seen.T.copy()))
    rest = n - (count - 1) * BLOCK
    last = np.matmul(states[..., -1, :][..., None, :], there(powers[rest].T.copy()))
    last = last + np.matmul(blocks[..., -1, :rest][..., None, :], there(drawn[:rest][::-1].copy()))
    return np.reshape(found, padded.shape)[..., :n], last[..., 0, :]
