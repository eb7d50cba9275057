"""Scaling of matrices by powers of two, for elements at the ends of a dtype's range.

Powers of two change no digit of a normal number (J. Demmel et al., "LAPACK Users' Guide", §4.4, equilibration).
"""

import math
from typing import Any

from callboard.backends.torch.vendor import Tensor, torch

__all__ = ["Equilibrated", "centred", "product", "shifted"]

CHUNK = 32
"""Factors of a product that are multiplied before it is scaled: their mantissas stay in the range of every dtype."""


def _sizes(a: Tensor) -> Tensor:
    """Absolute values, of a complex number the larger one of its parts: they never overflow."""
    return torch.maximum(a.real.abs(), a.imag.abs()) if a.is_complex() else a.abs()


def _limits(a: Tensor) -> tuple[float, float]:
    info = torch.finfo(a.dtype)
    return info.tiny / info.eps, info.max * info.eps


def _power(x: Tensor, exponents: Tensor) -> Tensor:
    return x * torch.exp2(exponents.to(x.dtype))


def shifted(a: Tensor, exponents: Any) -> Tensor:
    """``a * 2**exponents``, in three steps: the power itself may overflow, the result is rounded once at most."""
    if a.is_complex():
        return torch.complex(shifted(a.real, exponents), shifted(a.imag, exponents))
    exponents = torch.as_tensor(exponents, device=a.device)
    if not bool((exponents != 0).any()):
        return a
    limit = 2 ** (7 if a.dtype == torch.float32 else 10) - 8
    first = exponents.clamp(-limit, limit)
    second = (exponents - first).clamp(-limit, limit)
    third = exponents - first - second
    mantissa, own = torch.frexp(a)
    within = (own + exponents).abs() < limit  # no intermediate result leaves the range
    plain = _power(mantissa, (own + exponents).clamp(-limit, limit))
    return torch.where(within, plain, _power(_power(_power(a, first), second), third))


def exponents_of(sizes: Tensor) -> Tensor:
    """The powers of two that bring sizes to ``[0.5, 1)``; 0 for those that are 0 or not finite."""
    _, exponents = torch.frexp(sizes)
    return torch.where((sizes > 0) & torch.isfinite(sizes), -exponents, 0)


def _outside(sizes: Tensor, low: float, high: float) -> bool:
    return bool((((sizes < low) & (sizes > 0)) | (sizes > high)).any())


def _uneven(tops: Tensor, low: float, high: float) -> bool:
    """The largest elements of rows are at an end of the range, or so far apart that their quotients would be."""
    least = torch.where(tops > 0, tops, torch.inf).min()
    return _outside(tops, low, high) or bool(tops.max() * math.sqrt(low) > least)


def _spread(exponents: Tensor) -> int:
    return int(exponents.max() - exponents.min())


class Equilibrated:
    """The system ``a @ x = b`` with rows and columns of ``a`` in the middle of the range.

    Args:
        a: Square matrix.

    Attributes:
        a: The matrix, scaled if it has to be.
        exponent: The determinant of the given matrix is that of :attr:`a` times two to this power.
    """

    def __init__(self, a: Tensor) -> None:
        self.a = a
        self._scales: dict[int, Tensor] = {}
        self.exponent = 0
        if not a.numel():
            return
        low, high = _limits(a)
        sizes = _sizes(a)
        tops = {1: sizes.amax(1), 0: sizes.amax(0)}
        if not (_uneven(tops[1], low, high) or _outside(tops[0], low, high)):
            return
        rows_first = _spread(exponents_of(tops[1])) >= _spread(exponents_of(tops[0]))
        for axis in (1, 0) if rows_first else (0, 1):
            exponents = exponents_of(_sizes(self.a).amax(axis))
            self.a = shifted(self.a, exponents.unsqueeze(axis))
            self._scales[axis] = exponents
        self.exponent = -int(self._scales[0].sum() + self._scales[1].sum())

    def begin(self, b: Tensor) -> tuple[Tensor, Tensor | int]:
        """Right-hand sides ``[n, k]`` of the scaled system, and what :meth:`finish` needs."""
        if not self._scales:
            return b, 0
        _, own = torch.frexp(_sizes(b))
        rows = self._scales[1][:, None]
        places = torch.where(_sizes(b) > 0, own + rows, -(2**30))
        top = places.amax(0)
        down = torch.where(top == -(2**30), 0, -top)
        return shifted(b, rows + down), down

    def finish(self, x: Tensor, down: Any) -> Tensor:
        """The solutions of the given system, from those of the scaled one."""
        return shifted(x, self._scales[0][:, None] - down) if self._scales else x


def centred(a: Tensor) -> tuple[Tensor, int]:
    """A matrix whose largest element is at an end of the range, scaled, and the exponent of the scale."""
    if not a.numel():
        return a, 0
    low, high = _limits(a)
    top = _sizes(a).max()
    if not _outside(top, low, high) or not bool(torch.isfinite(top)):
        return a, 0
    exponent = int(exponents_of(top))
    return shifted(a, exponent), exponent


def product(values: Tensor, exponent: int) -> Tensor:
    """``prod(values) * 2**exponent`` of a vector, without an overflow or underflow on the way to it."""
    exponents = exponents_of(_sizes(values))
    mantissas = shifted(values, exponents)
    found, exponent = torch.ones((), dtype=values.dtype, device=values.device), exponent - int(exponents.sum())
    for chunk in mantissas.split(CHUNK):
        found = found * chunk.prod()
        scale = int(exponents_of(_sizes(found)))
        found, exponent = shifted(found, scale), exponent - scale
    return shifted(found, exponent)
