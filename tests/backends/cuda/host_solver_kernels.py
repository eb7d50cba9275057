"""The kernels of ``data/solver.cu`` as stand-ins that execute on host memory."""

from typing import Any

import numpy as np
from host_driver import HostDriver, array_at

from callboard.backends.cpu.solver.lapack import Array
from callboard.backends.cuda.solver.jobs import SolverArgs
from callboard.backends.cuda.solver.plans import (
    BAD_INDICES,
    DIAGONAL,
    FAILED,
    FOUND,
    INFO,
    ITEM,
    NOT_FINITE,
    WITHOUT_RESULT,
)
from callboard.core.dtype import DTYPES

FIRST = 6


class Kernel:
    """A kernel of ``data/solver.cu`` by its name."""

    def __init__(self, driver: HostDriver, name: str) -> None:
        self._driver = driver
        lib, _, kind = name.rpartition("_")
        self._dtype = DTYPES[kind].np if kind in DTYPES else None
        self._run = getattr(self, f"_{lib if self._dtype is not None else name}")

    def __call__(self, params: Any, blocks: int, threads: int) -> None:
        self._run(SolverArgs.from_address(params[0]))

    def _at(self, address: int, n: int, dtype: Any = None) -> Array:
        dtype = self._dtype if dtype is None else dtype
        assert self._driver.on_device(address, n * np.dtype(dtype).itemsize)
        return array_at(address, dtype, (n,), (1,))

    def _status(self, p: SolverArgs) -> Array:
        return self._at(p.status, 16, np.int32)

    def _finite(self, p: SolverArgs) -> None:
        x = self._at(p.x, p.rows).reshape(-1, 2 if p.mode & 1 else 1)
        bad = ~np.isfinite(x).all(axis=1)
        x[bad] = 0
        self._status(p)[WITHOUT_RESULT if p.mode & 2 else NOT_FINITE] += np.count_nonzero(bad)

    def _without_result(self, p: SolverArgs) -> None:
        if self._status(p)[WITHOUT_RESULT]:
            self._at(p.x, p.rows)[...] = np.nan

    def _stack(self, p: SolverArgs) -> Array:
        return self._at(p.x, p.rows * p.cols * p.batch).reshape(p.batch, p.cols, p.rows).swapaxes(1, 2)

    def _triangle(self, p: SolverArgs) -> None:
        stack = self._stack(p)
        stack[...] = np.triu(stack) if p.mode else np.tril(stack)

    def _identity(self, p: SolverArgs) -> None:
        self._at(p.x, p.rows * p.cols).reshape(p.cols, p.rows)[...] = np.eye(p.cols, p.rows)

    def _conjugate(self, p: SolverArgs) -> None:
        self._at(p.x, 2 * p.rows)[1::2] *= -1

    def _diagonal(self, p: SolverArgs) -> None:
        zeros = np.flatnonzero(self._at(p.x, (p.rows - 1) * p.ld + p.rows)[:: p.ld + 1] == 0)
        if zeros.size:
            self._status(p)[DIAGONAL] = zeros[0] + 1

    def _pivots_out(self, p: SolverArgs) -> None:
        kinds = [np.int64 if p.mode & bit else np.int32 for bit in (1, 2)]
        self._at(p.y, p.rows, kinds[1])[...] = self._at(p.x, p.rows, kinds[0]) - 1

    def _pivots_in(self, p: SolverArgs) -> None:
        kinds = [np.int64 if p.mode & bit else np.int32 for bit in (1, 2)]
        given = self._at(p.x, p.rows, kinds[0]).astype(np.int64)
        bad = (given < 0) | (given >= p.cols)
        self._status(p)[BAD_INDICES] += np.count_nonzero(bad)
        self._at(p.y, p.rows, kinds[1])[...] = np.where(bad, np.arange(p.rows) % p.cols, given) + 1

    def _pointers(self, p: SolverArgs) -> None:
        self._at(p.x, p.rows, np.uint64)[...] = [p.y + i * p.cols for i in range(p.rows)]

    def _infos(self, p: SolverArgs) -> None:
        told = self._at(p.x, p.rows, np.int32)
        failed = np.flatnonzero(told)
        if failed.size:
            self._status(p)[[INFO, ITEM, FAILED]] = told[failed[0]], failed[0], failed.size

    def _range_values(self, p: SolverArgs) -> None:
        w = self._at(p.x, p.rows)
        first, last = np.searchsorted(w, [p.low, p.high], side="right")
        self._status(p)[[FIRST, FOUND]] = first, last - first
        self._at(p.z, 1, np.int64)[0] = last - first
        out = self._at(p.y, p.cols)
        out[...] = np.nan
        out[: last - first] = w[first:last][: p.cols]

    def _range_vectors(self, p: SolverArgs) -> None:
        first, found = (int(i) for i in self._status(p)[[FIRST, FOUND]])
        out = self._at(p.y, p.rows * p.cols).reshape(p.cols, p.rows)
        out[...] = np.nan
        if p.rows:
            out[:found] = self._at(p.x, p.rows * p.rows).reshape(p.rows, p.rows)[first : first + found][: p.cols]

    def _unpack(self, p: SolverArgs) -> None:
        n, wide = p.rows, np.result_type(self._dtype, np.complex64)
        w, packed = self._at(p.x, n, wide), self._at(p.y, n * n).reshape(n, n)
        v = self._at(p.z, n * n, wide).reshape(n, n)
        v[...] = packed
        for j in np.flatnonzero(w.imag > 0):
            v[j], v[j + 1] = packed[j] + 1j * packed[j + 1], packed[j] - 1j * packed[j + 1]
