"""Random vectors, elements and orders: the rest of ``np.random``."""

import math
from typing import Any

import numpy

from callboard.core.ref import GpuRef
from callboard.numpylike.random import entered, gamma_of, number, size_of


@entered()
def dirichlet(rng: Any, alpha: Any, size: Any) -> Any:
    """Parts of a whole."""
    host = numpy.asarray(alpha.get() if isinstance(alpha, GpuRef) else alpha, dtype=float)
    if (host <= 0).any():
        raise ValueError("alpha <= 0")
    shape = size_of(size)
    parts = rng.np.stack([gamma_of(rng, float(a), shape) for a in host], axis=-1)
    return parts / rng.np.sum(parts, axis=-1, keepdims=True)


@entered()
def multivariate_normal(rng: Any, mean: Any, cov: Any, size: Any) -> Any:
    """Normal vectors."""
    np, mean, cov = rng.np, rng.asarray(mean), rng.asarray(cov)
    if mean.ndim != 1:
        raise ValueError("mean must be 1 dimensional")
    if cov.ndim != 2 or cov.shape[0] != cov.shape[1]:
        raise ValueError("cov must be 2 dimensional and square")
    if mean.shape[0] != cov.shape[0]:
        raise ValueError("mean and cov must have same length")
    u, s, _ = np.linalg.svd(cov * 1.0)
    z = rng.base.standard_normal((*size_of(size), mean.shape[0]))
    return np.matmul(z, np.transpose(u * np.sqrt(s))) + mean


@entered()
def choice(rng: Any, a: Any, size: Any, replace: bool, p: Any, axis: int = 0, shuffle: bool = True) -> Any:
    """Random elements of an array, or of the integers below a number."""
    np = rng.np
    if not numpy.ndim(a):
        count, lines = int(number("a", a)), None
        if count <= 0 and (size is None or numpy.prod(size) != 0):
            raise ValueError("a must be greater than 0 unless no samples are taken")
    else:
        lines = rng.asarray(a)
        if rng._section == "random" and lines.ndim != 1:
            raise ValueError("a must be 1-dimensional")
        count = lines.shape[axis]
        if not count and (size is None or numpy.prod(size) != 0):
            raise ValueError("'a' cannot be empty unless no samples are taken")
    shape = size_of(size)
    drawn = math.prod(shape)
    weights = None
    if p is not None:
        host = numpy.asarray(p.get() if isinstance(p, GpuRef) else p, dtype=float)
        for wrong, why in (
            (host.ndim != 1, "'p' must be 1-dimensional"),
            (host.size != count, "'a' and 'p' must have same size"),
            (numpy.isnan(host).any(), "probabilities contain NaN"),
            ((host < 0).any(), "probabilities are not non-negative"),
            (abs(host.sum() - 1) > 1e-8, "probabilities do not sum to 1"),
        ):
            if wrong:
                raise ValueError(why)
        weights = rng.asarray(host)
        if not replace and numpy.count_nonzero(host) < drawn:
            raise ValueError("Fewer non-zero entries in p than size")
    if not replace and drawn > count:
        raise ValueError("Cannot take a larger sample than population when 'replace=False'")
    if not drawn:
        places = np.zeros(shape, dtype="i64")
    elif weights is not None and not replace:  # the largest of exponential races
        races = rng.base.standard_exponential((count,)) / weights
        places = np.reshape(np.argsort(races)[:drawn], shape)
    else:
        places = rng.base.choice(count, shape, replace, weights)
    return places if lines is None else np.take(lines, places, axis=axis)


@entered()
def permutation(rng: Any, x: Any, axis: int = 0) -> Any:
    """The integers below a number, or the lines of an array, in random order."""
    if isinstance(x, int | numpy.integer):
        return rng.base.permutation(int(x))
    x = rng.asarray(x)
    if not x.ndim:
        raise numpy.exceptions.AxisError("x must be an integer or at least 1-dimensional")
    return rng.np.take(x, rng.base.permutation(x.shape[axis]), axis=axis)


@entered()
def shuffle(rng: Any, x: Any, axis: int = 0) -> None:
    """The lines of an array in random order, in place."""
    if not isinstance(x, GpuRef):
        raise TypeError(
            f"np.random.shuffle: x is {type(x).__name__}; it is shuffled in place, so pass an array of the device"
        )
    x[...] = permutation(rng, x, axis)


@entered()
def permuted(rng: Any, x: Any, axis: Any) -> Any:
    """Each line in an order of its own; all elements when there is no axis."""
    x = rng.asarray(x)
    if axis is None:
        return rng.np.reshape(permutation(rng, rng.np.ravel(x)), x.shape)
    return rng.np.take_along_axis(x, rng.np.argsort(rng.base.random(x.shape), axis=axis), axis=axis)
