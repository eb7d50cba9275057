"""Plans of BLAS level 1: vectors, which may have any number of axes."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from callboard.backends.torch.blas.forms import wide
from callboard.backends.torch.conversion import added
from callboard.backends.torch.library import Plan, TorchLibrary
from callboard.backends.torch.vendor import Tensor, torch
from callboard.core.library import plans
from callboard.kernel import blas

__all__ = ["vectors"]


def _size(x: Tensor) -> Tensor:
    """``|re| + |im|``, at least in f32."""
    x = wide(x)
    return x.real.abs() + x.imag.abs() if x.is_complex() else x.abs()


def _norm(op: Any, x: Tensor) -> Tensor:
    """The Euclidean length, of numbers scaled by the largest: the squares stay in range."""
    x = wide(x)
    if not x.numel():
        return torch.zeros((), device=x.device)
    size = torch.maximum(x.real.abs(), x.imag.abs()) if x.is_complex() else x.abs()
    most = size.max()
    scale = torch.where((most > 0) & torch.isfinite(most), most, torch.ones_like(most))
    return torch.linalg.vector_norm(x / scale) * scale


def _rotated(op: Any, x: Tensor, y: Tensor, c: Any, s: Any) -> tuple[Tensor, Tensor]:
    return c * x + s * y, c * y - (s.conjugate() if x.is_complex() else s) * x


def _added(op: Any, x: Tensor, y: Tensor, alpha: Any) -> Tensor:
    return y if alpha == 0 else added(wide(x) * alpha, wide(y))


def _dot(op: Any, x: Tensor, y: Tensor) -> Tensor:
    x, y = wide(x).reshape(-1), wide(y).reshape(-1)
    return torch.vdot(x, y) if isinstance(op, blas.Dotc) else torch.dot(x, y)


TABLE: Mapping[type[Any], Callable[..., Any]] = {
    blas.Asum: lambda op, x: _size(x).sum(),
    blas.Axpy: _added,
    blas.Copy: lambda op, x: x,
    blas.Dot: _dot,
    blas.Dotc: _dot,
    blas.Dotu: _dot,
    blas.Iamax: lambda op, x: _size(x).reshape(-1).argmax(),
    blas.Iamin: lambda op, x: _size(x).reshape(-1).argmin(),
    blas.Nrm2: _norm,
    blas.Rot: _rotated,
    blas.Scal: lambda op, x, alpha: wide(x) * alpha,
    blas.Swap: lambda op, x, y: (y.clone(), x.clone()),
}


@plans(*TABLE)
def vectors(library: TorchLibrary, op: Any) -> Plan:
    """Functions of vectors, by the table."""
    return library.planned(op, partial(TABLE[type(op)], op))
