"""``scipy.signal``: spectra of segments, which are gathered by one index and transformed by one FFT."""

from typing import Any

import numpy

from callboard.numpylike.binding import Array
from callboard.scipylike.filtering import detrended, host_values
from callboard.scipylike.special import floats
from callboard.scipylike.table import function

__all__: list[str] = []


@function("signal")
def get_window(np: Any, window: Any, Nx: int, fftbins: bool = True) -> Any:  # SciPy's name
    """A window of SciPy's, made on the host and copied to the device, f64."""
    return np.asarray(_made(window, Nx, fftbins))


def _made(window: Any, length: int, periodic: bool = True) -> Any:
    from scipy.signal import get_window  # takes long to import

    return get_window(window, length, periodic)


def _window(window: Any, nperseg: int | None, n: int) -> Any:
    """The window as an array of the host. Its length is that of a segment."""
    if isinstance(window, str | tuple):
        return _made(window, min(256 if nperseg is None else nperseg, n))
    found = host_values("window", window)
    if found.ndim != 1 or len(found) > n or nperseg not in (None, len(found)):
        raise ValueError(f"window has the shape {found.shape}, nperseg is {nperseg}, and the signal has {n} samples")
    return found


def _segments(np: Any, x: Any, length: int, step: int) -> Any:
    """Segments of the last axis: ``(..., count, length)``."""
    count = (x.shape[-1] - length) // step + 1
    places = numpy.arange(count)[:, None] * step + numpy.arange(length)
    found = np.take(x, np.asarray(places.reshape(-1)), axis=-1)
    return np.reshape(found, (*x.shape[:-1], count, length))


def _spectra(
    np: Any, x: Any, fs: float, win: Any, noverlap: int | None, nfft: int | None, detrend: Any, sides: bool | None
) -> tuple[Any, Any, Any, bool]:
    """Frequencies, times, spectra ``(..., frequencies, times)`` of windowed segments, and whether one side is left."""
    length = len(win)
    noverlap = length // 2 if noverlap is None else noverlap
    nfft = length if nfft is None else nfft
    if not 0 <= noverlap < length:
        raise ValueError(f"noverlap is {noverlap}; it must be at least 0 and less than nperseg, {length}")
    if nfft < length:
        raise ValueError(f"nfft is {nfft}; it must be at least nperseg, {length}")
    step = length - noverlap
    parts = _segments(np, x, length, step)
    if detrend:
        parts = detrended(np, parts, {"l": "linear", "c": "constant"}.get(detrend) or detrend)
    parts = parts * np.asarray(win, dtype=np.real(x).dtype)
    one_sided = not x.dtype.is_complex and sides is not False
    found = np.fft.rfft(parts, nfft) if one_sided else np.fft.fft(parts, nfft)
    f = (numpy.fft.rfftfreq if one_sided else numpy.fft.fftfreq)(nfft, 1 / fs)
    t = (numpy.arange(parts.shape[-2]) * step + length / 2) / fs
    return np.asarray(f), np.asarray(t), np.swapaxes(found, -1, -2), one_sided


def _density(np: Any, cross: Any, fs: float, win: Any, nfft: int, scaling: str, one_sided: bool) -> Any:
    """Products of spectra as a density, or as a power, with both sides in one."""
    if scaling not in ("density", "spectrum"):
        raise ValueError(f"scaling is {scaling!r:.60}; use 'density' or 'spectrum'")
    scale = 1 / (fs * (win * win).sum()) if scaling == "density" else 1 / win.sum() ** 2
    factors = numpy.full((cross.shape[-2], 1), scale)
    if one_sided:
        factors[1 : (-1 if nfft % 2 == 0 else None)] *= 2
    return cross * np.asarray(factors, dtype=np.real(cross).dtype)


@function("signal")
def stft(
    np: Any,
    x: Array,
    fs: float = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = False,
    return_onesided: bool = True,
    boundary: str | None = "zeros",
    padded: bool = True,
    axis: int = -1,
    scaling: str = "spectrum",
) -> Any:
    """Frequencies, times, and the transforms of windowed segments; ``nperseg`` is 256 or the length if that is less."""
    if boundary not in ("zeros", None):
        raise ValueError(f"boundary is {boundary!r:.60}; use 'zeros' or None")
    if not x.size:
        return (np.zeros(x.shape),) * 3
    x = np.moveaxis(floats(np, x), axis, -1)
    win = _window(window, nperseg, x.shape[-1])
    length = len(win)
    step = length - (length // 2 if noverlap is None else noverlap)
    edge = length // 2 if boundary else 0
    extra = -(x.shape[-1] + 2 * edge - length) % step if padded and step > 0 else 0
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(edge, edge + extra)])
    f, t, found, _ = _spectra(np, x, fs, win, noverlap, nfft, detrend, return_onesided)
    scale = 1 / win.sum() if scaling == "spectrum" else 1 / numpy.sqrt(fs * (win * win).sum())
    return (
        f,
        (t - length / 2 / fs if boundary else t),
        np.moveaxis(found * float(scale), -2, axis if axis >= 0 else axis - 1),
    )


@function("signal")
def istft(
    np: Any,
    Zxx: Array,  # SciPy's name
    fs: float = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    input_onesided: bool = True,
    boundary: bool = True,
    scaling: str = "spectrum",
) -> Any:
    """Times and the signal whose :func:`stft` is ``Zxx``, of axes ``(..., frequencies, times)``."""
    bins, count = Zxx.shape[-2:]
    points: int = (nperseg or (2 * (bins - 1) if input_onesided else bins)) if nfft is None else nfft
    length = points if nperseg is None else nperseg
    win = _window(window, length, length)
    step = length - (length // 2 if noverlap is None else noverlap)
    parts = np.swapaxes(Zxx, -1, -2)
    parts = (np.fft.irfft if input_onesided else np.fft.ifft)(parts, points)[..., :length]
    scale = win.sum() if scaling == "spectrum" else numpy.sqrt(fs * (win * win).sum())
    parts = parts * np.asarray(win * scale, dtype=np.real(parts).dtype)
    total = length + (count - 1) * step
    norm = numpy.zeros(total)
    for k in range(count):
        norm[k * step : k * step + length] += win * win
    found = _added(np, parts, step, total)
    window_of = slice(length // 2, total - length // 2) if boundary else slice(None)
    norm = numpy.where(norm > 1e-10, norm, 1.0)
    found = (found / np.asarray(norm, dtype=np.real(found).dtype))[..., window_of]
    return np.arange(found.shape[-1]) / fs, found


def _added(np: Any, parts: Any, step: int, total: int) -> Any:
    """Segments added where they overlap: columns of ``step`` samples, shifted by one place each."""
    length = parts.shape[-1]
    columns = -(-length // step)
    parts = np.pad(parts, [(0, 0)] * (parts.ndim - 1) + [(0, columns * step - length)])
    parts = np.reshape(parts, (*parts.shape[:-1], columns, step))
    rows: Any = 0
    for k in range(columns):
        rows = rows + np.pad(parts[..., k, :], [(0, 0)] * (parts.ndim - 3) + [(k, columns - 1 - k), (0, 0)])
    return np.reshape(rows, (*rows.shape[:-2], -1))[..., :total]


@function("signal")
def spectrogram(
    np: Any,
    x: Array,
    fs: float = 1.0,
    window: Any = ("tukey", 0.25),
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    mode: str = "psd",
) -> Any:
    """Frequencies, times, and the power of windowed segments; ``noverlap`` is an eighth of a segment by default."""
    if mode not in ("psd", "complex", "magnitude"):
        raise ValueError(f"mode is {mode!r:.60}; use 'psd', 'complex' or 'magnitude'")
    if not x.size:
        return (np.zeros(x.shape),) * 3
    x = np.moveaxis(floats(np, x), axis, -1)
    win = _window(window, nperseg, x.shape[-1])
    noverlap = len(win) // 8 if noverlap is None else noverlap
    f, t, found, one_sided = _spectra(np, x, fs, win, noverlap, nfft, detrend, return_onesided)
    if mode == "psd":
        found = _density(np, np.abs(found) ** 2, fs, win, nfft or len(win), scaling, one_sided)
    else:
        scale = 1 / win.sum() if scaling == "spectrum" else 1 / numpy.sqrt(fs * (win * win).sum())
        found = (np.abs(found) if mode == "magnitude" else found) * float(scale)
    return f, t, np.moveaxis(found, -2, axis if axis >= 0 else axis - 1)


@function("signal")
def csd(
    np: Any,
    x: Array,
    y: Array,
    fs: float = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> Any:
    """Frequencies and the cross power spectral density of two signals of one shape, by Welch's method."""
    if average != "mean":
        raise ValueError(f"average is {average!r:.60}; only 'mean' is supported")
    if not x.size or not y.size:
        return (np.zeros((y if x.size else x).shape),) * 2
    one_signal = y is x
    x, y = (np.moveaxis(floats(np, one), axis, -1) for one in (x, y))
    if x.shape[-1] != y.shape[-1]:
        raise ValueError(f"x has {x.shape[-1]} samples and y has {y.shape[-1]}; pad the shorter with zeros")
    win = _window(window, nperseg, x.shape[-1])
    f, _, first, one_sided = _spectra(np, x, fs, win, noverlap, nfft, detrend, return_onesided)
    second = first if one_signal else _spectra(np, y, fs, win, noverlap, nfft, detrend, return_onesided)[2]
    cross = np.abs(first) ** 2 if one_signal else np.conj(first) * second
    found = _density(np, cross, fs, win, nfft or len(win), scaling, one_sided)
    return f, np.moveaxis(np.mean(found, axis=-1), -1, axis)


@function("signal")
def welch(np: Any, x: Array, fs: float = 1.0, window: Any = "hann", *args: Any, **kwargs: Any) -> Any:
    """Frequencies and the power spectral density by Welch's method; the parameters are those of :func:`csd`."""
    f, found = csd(np, x, x, fs, window, *args, **kwargs)
    return f, np.real(found)


@function("signal")
def periodogram(
    np: Any,
    x: Array,
    fs: float = 1.0,
    window: Any = "boxcar",
    nfft: int | None = None,
    detrend: Any = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
) -> Any:
    """Frequencies and the power spectral density of the whole signal, as one segment."""
    n = x.shape[axis]
    return welch(np, x, fs, window, n, 0, nfft, detrend, return_onesided, scaling, axis)


@function("signal")
def coherence(np: Any, x: Array, y: Array, fs: float = 1.0, window: Any = "hann", **kwargs: Any) -> Any:
    """Frequencies and the magnitude squared coherence; further parameters are those of :func:`csd`."""
    f, both = csd(np, x, y, fs, window, **kwargs)
    return f, np.abs(both) ** 2 / welch(np, x, fs, window, **kwargs)[1] / welch(np, y, fs, window, **kwargs)[1]
