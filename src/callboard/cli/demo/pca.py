"""Principal components by block power iteration, in BLAS messages only.

Orthogonal iteration (Golub and Van Loan, Matrix Computations, 4th ed., 8.2.4): the block is multiplied by the
covariance and its rows are made orthonormal again, by classical Gram-Schmidt done twice (Giraud et al., Numer. Math.
101, 2005). Every number stays on the device: lengths are 0-d arrays, and a row is divided by its length with a 1 x 1
``trsm``.
"""

from typing import Any, NamedTuple

import numpy as np

from callboard.core.ref import GpuRef
from callboard.device.client.handle import Device

__all__ = ["Problem", "pose", "step", "variances"]

Array = np.ndarray[Any, np.dtype[np.float64]]


class Problem(NamedTuple):
    """State of the iteration; lives for one generation.

    Attributes:
        centred: ``[n, d]`` f64, the samples less their mean.
        covariance: ``[d, d]`` f64.
        total: 0-d f64, the variance of all features together.
    """

    centred: GpuRef
    covariance: GpuRef
    total: GpuRef


def pose(device: Device, samples: Array) -> Problem:
    """Centre the samples ``[n, d]`` on the device and form their covariance; returns at once."""
    n = samples.shape[0]
    blas = device.blas
    centred = device.put(samples)
    ones = device.full(n, 1.0, "f64")
    mean = blas.gemv(centred, ones, transpose=True, alpha=1.0 / n)
    blas.ger(ones, mean, centred, alpha=-1.0)
    covariance = blas.gemm(centred, centred, transpose_a=True, alpha=1.0 / (n - 1))
    total = device.empty((), "f64")
    entries = centred.reshape(-1)
    blas.dot(entries, entries, out=total)
    return Problem(centred, covariance, blas.scal(total.reshape(1), 1.0 / (n - 1)).reshape())


def step(device: Device, problem: Problem, block: GpuRef) -> GpuRef:
    """One iteration: the next orthonormal block ``[rank, features]``; returns at once."""
    blas = device.blas
    image = blas.gemm(block, problem.covariance)
    rank = image.shape[0]
    lengths = device.empty(rank, "f64")
    for i in range(rank):
        row, before = image[i], image[:i]
        for _ in range(2 if i else 0):
            blas.gemv(before, blas.gemv(before, row), transpose=True, alpha=-1.0, beta=1.0, y=row, out=row)
        blas.nrm2(row, out=lengths[i])
        blas.trsm(lengths[i : i + 1].reshape(1, 1), image[i : i + 1])
    return image


def variances(device: Device, problem: Problem, block: GpuRef) -> GpuRef:
    """The variance along each row of an orthonormal block, ``[rank]`` f64 (Rayleigh quotients); returns at once."""
    blas = device.blas
    image = blas.gemm(block, problem.covariance)
    found = device.empty(block.shape[0], "f64")
    for i in range(block.shape[0]):
        blas.dot(block[i], image[i], out=found[i])
    return found
