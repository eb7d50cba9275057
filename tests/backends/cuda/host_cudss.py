"""A stand-in for ``nvmath.bindings.cudss`` that executes on host memory, and the kernels beside it.

Like cuDSS it replaces small pivots and counts them: with the default order it takes pivots from the diagonal alone,
with the order by columns the largest of each column; there, a pivot that it finds nothing for is left as it was in its
memory. It wants all arrays on the device, and phases in their order.
"""

import ctypes
from typing import Any

import numpy as np
from host_driver import HostDriver, StatusError, array_at
from host_solver_kernels import Kernel

from callboard.backends.cpu.solver.lapack import Array
from callboard.backends.cuda.solver.jobs import SolverArgs
from callboard.backends.cuda.solver.plans import BAD_INDICES, DIAGONAL, FAILED, HOLLOW, RESIDUAL, ZEROS
from callboard.kernel.solver.failures import hermitian_tolerance

KINDS: dict[int, Any] = {0: np.float32, 1: np.float64, 4: np.complex64, 5: np.complex128}


class CudssError(StatusError):
    pass


class HostCudss:
    """The functions of the binding that the backend calls.

    Attributes:
        alive: What has not been destroyed, by handle.
        phases: That were executed.
        streams: Of handles.
        memory: Addresses that the handler gave.
    """

    def __init__(self, driver: HostDriver) -> None:
        self._driver = driver
        self._handler: Any = None
        self._made = 0xD0
        self._waits = 0
        self.alive: dict[int, Any] = {}
        self.phases: list[int] = []
        self.streams: dict[int, int] = {}
        self.memory: list[int] = []

    def _new(self, made: Any) -> int:
        self._made += 1
        self.alive[self._made] = made
        return self._made

    def create(self) -> int:
        return self._new("handle")

    def destroy(self, handle: int) -> None:
        assert self.alive.pop(handle) == "handle"

    def set_stream(self, handle: int, stream: int) -> None:
        assert self.alive[handle] == "handle"
        self.streams[handle] = stream

    def set_device_mem_handler(self, handle: int, address: int) -> None:
        from callboard.backends.cuda.solver.cudss import _Handler

        assert self.alive[handle] == "handle"
        self._handler = _Handler.from_address(address)
        assert self._handler.name == b"callboard"

    def matrix_create_csr(
        self, rows: int, cols: int, count: int, offsets: int, end: int, indices: int, values: int, offset_type: int,
        index_type: int, kind: int, what: int, view: int, base: int,
    ) -> int:  # fmt: skip
        assert rows == cols > 0
        assert count > 0
        assert (end, offset_type, index_type, view, base) == (0, 10, 10, 0, 0)
        return self._new((rows, count, offsets, indices, values, KINDS[kind], what))

    def matrix_create_dn(self, rows: int, cols: int, ld: int, values: int, kind: int, layout: int) -> int:
        assert rows == ld
        assert cols > 0
        assert layout == 0
        return self._new([rows, cols, KINDS[kind], values])

    def matrix_set_values(self, matrix: int, values: int) -> None:
        self.alive[matrix][3] = values

    def config_create(self) -> int:
        return self._new({})

    def config_set(self, config: int, parameter: int, value: int, nbytes: int) -> None:
        kind = {0: np.int32, 3: np.int32, 9: np.float64}[parameter]
        assert nbytes == np.dtype(kind).itemsize
        self.alive[config][parameter] = array_at(value, kind, (1,), (1,))[0]

    def data_create(self, handle: int) -> int:
        assert self.alive[handle] == "handle"
        return self._new({"info": 0, "pivots": 0})

    def data_destroy(self, handle: int, data: int) -> None:
        assert self.alive[handle] == "handle"
        for address in self.alive.pop(data).get("memory", ()):
            self.memory.remove(address)
            assert self._handler.free(None, address, 64, None) == 0

    def matrix_destroy(self, matrix: int) -> None:
        del self.alive[matrix]

    def config_destroy(self, config: int) -> None:
        assert isinstance(self.alive.pop(config), dict)

    def data_get(self, handle: int, data: int, parameter: int, value: int, nbytes: int, written: int) -> None:
        assert nbytes == 4
        assert self._driver.waits > self._waits  # cuDSS does not wait itself
        array_at(value, np.int32, (1,), (1,))[0] = self.alive[data][{0: "info", 2: "pivots"}[parameter]]

    def execute(self, handle: int, phase: int, config: int, data: int, matrix: int, x: int, b: int) -> None:
        assert self.alive[handle] == "handle"
        self._driver.streams.add(self.streams[handle])
        self.phases.append(phase)
        self._waits = self._driver.waits
        state, settings = self.alive[data], self.alive[config]
        n, count, offsets, indices, values, kind, what = self.alive[matrix]
        starts, places = self._at(offsets, n + 1, np.int32), self._at(indices, count, np.int32)
        if phase == 3:
            out = ctypes.c_void_p(1)
            assert self._handler.allocate(None, ctypes.pointer(out), 0, None) == 0
            assert out.value is None  # cuDSS gives back whatever is not 0, and fails
            if self._handler.allocate(None, ctypes.pointer(out), 64, None):
                raise CudssError(2)
            assert out.value is not None
            self.memory.append(out.value)
            state["memory"], state["pattern"] = [out.value], (starts.copy(), places.copy())
        elif phase == 4:
            assert all((a == b).all() for a, b in zip(state["pattern"], (starts, places), strict=True))
            full = np.zeros((n, n), kind)
            full[np.repeat(np.arange(n), np.diff(starts)), places] = self._at(values, count, kind)
            state["info"], state["pivots"], state["factors"] = factored(
                full, what, settings[0] == 2, settings[9], self._at(state["memory"][0], 1, np.float64)
            )
        else:
            assert phase == 1008
            (rows, cols, side, at_x), at_b = self.alive[x], self.alive[b][3]
            assert side is kind
            right = self._at(at_b, rows * cols, kind).reshape(cols, rows).T
            factors, order = state["factors"]
            with np.errstate(all="ignore"):
                self._at(at_x, rows * cols, kind).reshape(cols, rows).T[...] = substituted(factors, order, right)

    def _at(self, address: int, n: int, kind: Any) -> Array:
        assert self._driver.on_device(address, n * np.dtype(kind).itemsize)
        return array_at(address, kind, (n,), (1,))


def factored(
    a: Array, what: int, by_columns: bool, least: float, memory: Array
) -> tuple[int, int, tuple[Array, Array]]:
    """``info``, how many pivots were replaced, and the factors with their order of rows."""
    n, replaced, order = len(a), 0, np.arange(len(a))
    a = a.copy()
    for k in range(n):
        if by_columns:
            best = k + int(np.argmax(abs(a[k:, k])))
            a[[k, best]], order[[k, best]] = a[[best, k]], order[[best, k]]
        if what in (3, 4) and not a[k, k].real > 0:
            return k + 1, 0, (a, order)
        if by_columns and not a[k, k]:
            a[k, k] = memory[0]
        if abs(a[k, k]) < least:
            a[k, k], replaced = least, replaced + 1
        with np.errstate(all="ignore"):
            a[k + 1 :, k] /= a[k, k]
            a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    memory[0] = abs(a[-1, -1])
    return 0, replaced, (a, order)


def substituted(a: Array, order: Array, right: Array) -> Array:
    x = right[order].copy()
    for k in range(len(a)):
        x[k + 1 :] -= np.outer(a[k + 1 :, k], x[k])
    for k in reversed(range(len(a))):
        x[k] /= a[k, k]
        x[:k] -= np.outer(a[:k, k], x[k])
    return x


class CsrKernel(Kernel):
    """The kernels of sparse systems."""

    def _lists(self, address: int, p: SolverArgs) -> tuple[Array, Array]:
        starts = self._at(address, p.rows + 1, np.int32)
        return starts, self._at(address + 4 * (p.rows + 1), int(starts[-1]), np.int32)

    def _csr_check(self, p: SolverArgs) -> None:
        kind = np.int64 if p.mode else np.int32
        starts, places = self._at(p.x, p.rows + 1, kind), self._at(p.y, p.cols, kind)
        bad = int(starts[0] != 0) + int(starts[-1] != p.cols) + np.count_nonzero(np.diff(starts) < 0)
        bad += np.count_nonzero((starts < 0) | (starts > p.cols)) + np.count_nonzero((places < 0) | (places >= p.rows))
        self._status(p)[BAD_INDICES] += bad
        self._at(p.z, p.rows + 1 + p.cols, np.int32)[...] = [*starts, *places]

    def _csr_ascending(self, p: SolverArgs) -> None:
        if not self._status(p)[BAD_INDICES]:
            starts, places = self._lists(p.x, p)
            rows = np.split(places, starts[1:-1])
            self._status(p)[FAILED] += sum(int(np.count_nonzero(np.diff(row) <= 0)) for row in rows)

    def _full(self, p: SolverArgs, lists: int, values: int) -> Array:
        starts, places = self._lists(lists, p)
        full = np.zeros((p.rows, p.rows), self._dtype)
        full[np.repeat(np.arange(p.rows), np.diff(starts)), places] = self._at(values, len(places))
        return full

    def _csr_mirrored(self, p: SolverArgs) -> None:
        if not self._status(p)[BAD_INDICES] and not self._status(p)[FAILED]:
            full = self._full(p, p.y, p.x)
            diagonal = np.sqrt(np.abs(full.diagonal().real))
            limit = hermitian_tolerance(full.dtype) * np.outer(diagonal, diagonal)
            self._status(p)[DIAGONAL] += np.count_nonzero(abs(full - full.conj().T) > limit)

    def _csr_zeros(self, p: SolverArgs) -> None:
        if not self._status(p)[BAD_INDICES] and not self._status(p)[FAILED]:
            stored = int(self._at(p.y + 4 * p.rows, 1, np.int32)[0])
            self._status(p)[ZEROS] += np.count_nonzero(self._at(p.x, stored) == 0)
            self._status(p)[HOLLOW] += np.count_nonzero(self._full(p, p.y, p.x).diagonal() == 0)

    def _differing(self, p: SolverArgs) -> None:
        differ = self._at(p.x, p.rows, np.int32) != self._at(p.y, p.rows, np.int32)
        self._status(p)[p.mode] += int(differ.any())

    def _csr_residual(self, p: SolverArgs) -> None:
        full = self._full(p, p.x, p.y).astype(np.complex128)
        b, x = (self._at(at, p.rows * p.batch).reshape(p.batch, p.rows).T for at in (p.z, p.status + p.cols))
        norms = self._at(p.status + p.ld, 1 + 3 * p.batch, np.float64)
        assert not norms.any()
        with np.errstate(all="ignore"):
            left = b - full @ x.astype(np.complex128)
        norms[0] = abs(full).sum(axis=1).max()
        for i, found in enumerate((b, x, left)):
            norms[1 + i :: 3] = abs(found).max(axis=0)

    def _csr_judge(self, p: SolverArgs) -> None:
        norms = self._at(p.status + p.ld, 1 + 3 * p.batch, np.float64)
        b, x, left = norms[1::3], norms[2::3], norms[3::3]
        with np.errstate(all="ignore"):
            fine = np.isfinite(x) & np.isfinite(left) & ~(left / norms[0] > p.low * (x + b / norms[0]))
        self._status(p)[RESIDUAL] += np.count_nonzero(~fine)
