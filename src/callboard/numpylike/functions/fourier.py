"""``np.fft``."""

from typing import Any

from callboard.numpylike.binding import Array, function

FFT = "fft"


def _entered() -> None:
    def one(name: str) -> None:
        def along(np: Any, a: Array, n: Any, axis: int, norm: Any) -> Any:
            if (n is not None and n < 1) or (n is None and a.ndim and -a.ndim <= axis < a.ndim and not a.shape[axis]):
                raise ValueError(f"Invalid number of FFT data points ({n or 0}) specified.")
            return getattr(np.xp.fft, name)(a, n=n, axis=axis, norm=norm or "backward")

        along.__name__, along.__doc__ = name, f"``xp.fft.{name}``."
        function(FFT)(along)

    def several(name: str, base: str) -> None:
        def over(np: Any, a: Array, s: Any, axes: Any, norm: Any) -> Any:
            axes = None if axes is None else tuple(axes)
            s = None if s is None else tuple(s)
            if axes is not None and not axes:
                raise IndexError("at least 1 axis must be transformed")
            return _each_axis(np, base, a, s, axes, norm or "backward")

        over.__name__, over.__doc__ = name, f"``xp.fft.{base}``."
        function(FFT)(over)

    for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
        one(name)
    for name in ("fftn", "ifftn", "rfftn", "irfftn"):
        several(name, name)
        several(f"{name[:-1]}2", name)


def _each_axis(np: Any, base: str, a: Any, s: Any, axes: Any, norm: str) -> Any:
    """Axes that occur twice are transformed twice, as in NumPy."""
    if axes is None or len(set(axes)) == len(axes):
        return getattr(np.xp.fft, base)(a, s=s, axes=axes, norm=norm)
    name = base[:-1]
    points = (None,) * len(axes) if s is None else s
    for n, axis in list(zip(points, axes, strict=True))[::-1]:
        a = getattr(np.xp.fft, name)(a, n=n, axis=axis, norm=norm)
    return a


_entered()


@function(FFT)
def fftshift(np: Any, x: Array, axes: Any) -> Any:
    """Frequency 0 in the middle."""
    return np.xp.fft.fftshift(x, axes=axes if axes is None or isinstance(axes, int) else tuple(axes))


@function(FFT)
def ifftshift(np: Any, x: Array, axes: Any) -> Any:
    """The inverse of fftshift."""
    return np.xp.fft.ifftshift(x, axes=axes if axes is None or isinstance(axes, int) else tuple(axes))


@function(FFT)
def fftfreq(np: Any, n: int, d: Any) -> Any:
    """The frequencies of the points of a transform."""
    return np.xp.fft.fftfreq(n, d=d)


@function(FFT)
def rfftfreq(np: Any, n: int, d: Any) -> Any:
    """The frequencies of the points of a real transform."""
    return np.xp.fft.rfftfreq(n, d=d)
