"""Subject: cuBLAS through nvmath's bindings and copies through the CUDA runtime, called directly."""

import ctypes
import statistics
import time
from typing import Any

import numpy as np
from _worker import missing, serve

clock = time.perf_counter

try:
    from cuda.bindings import runtime
    from nvmath.bindings import cublas
except ImportError as e:
    missing(f"{e}; pip install 'callboard[cuda13]'")

NON_BLOCKING = 1
TO_DEVICE, TO_HOST = runtime.cudaMemcpyKind.cudaMemcpyHostToDevice, runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost


def checked(answer: Any) -> Any:
    """What a call of the runtime gave, without its status."""
    status, *rest = answer
    if int(status):
        raise RuntimeError(f"{status}")
    return rest[0] if rest else None


class Raw:
    """A handle, a stream, and operands made once per size."""

    def __init__(self) -> None:
        checked(runtime.cudaSetDevice(0))
        self._stream = int(checked(runtime.cudaStreamCreateWithFlags(NON_BLOCKING)))
        self._handle = cublas.create()
        cublas.set_stream(self._handle, self._stream)
        self._factors = (ctypes.c_float * 2)(1.0, 0.0)
        self._alpha = ctypes.addressof(self._factors)
        self._beta = self._alpha + 4
        self._operands: dict[int, list[int]] = {}
        self._buffers: dict[int, tuple[int, int]] = {}

    def _matrices(self, n: int) -> list[int]:
        found = self._operands.get(n)
        if found is None:
            rng = np.random.default_rng(1)
            found = self._operands[n] = [int(checked(runtime.cudaMalloc(n * n * 4))) for _ in range(10)]
            for address in found:
                data = rng.random((n, n), np.float32)
                checked(runtime.cudaMemcpy(address, data.ctypes.data, data.nbytes, TO_DEVICE))
        return found

    def _synchronize(self) -> None:
        checked(runtime.cudaStreamSynchronize(self._stream))

    def _enqueue(self, n: int, a: int, b: int, out: int) -> None:
        cublas.sgemm(self._handle, 0, 0, n, n, n, self._alpha, b, n, a, n, self._beta, out, n)

    def ask(self, n: int, count: int) -> float:
        """Median seconds of one enqueue and synchronize."""
        return self._asks(n, count, 0.0)

    def ask_unlike(self, n: int, count: int) -> float:
        """The same, with another factor each time."""
        return self._asks(n, count, 1e-6)

    def _asks(self, n: int, count: int, step: float) -> float:
        a, b, out, *_ = self._matrices(n)
        times = []
        for i in range(count + 20):
            alpha = 1.0 + i * step
            start = clock()
            self._factors[0] = alpha
            self._enqueue(n, a, b, out)
            self._synchronize()
            if i >= 20:
                times.append(clock() - start)
        return statistics.median(times)

    def pipelined(self, n: int, count: int) -> float:
        """Seconds per product; one synchronize at the end; outputs take turns."""
        a, b, *outs = self._matrices(n)
        for out in outs:
            self._enqueue(n, a, b, out)
        self._synchronize()
        start = clock()
        for i in range(count):
            self._enqueue(n, a, b, outs[i % 8])
        self._synchronize()
        return (clock() - start) / count

    def _memory(self, nbytes: int) -> tuple[int, int]:
        found = self._buffers.get(nbytes)
        if found is None:
            host = int(checked(runtime.cudaMallocHost(nbytes)))
            ctypes.memset(host, 1, nbytes)
            found = self._buffers[nbytes] = int(checked(runtime.cudaMalloc(nbytes))), host
            for _ in range(2):  # the first copy of a pair of buffers is slower
                checked(runtime.cudaMemcpyAsync(found[0], host, nbytes, TO_DEVICE, self._stream))
            self._synchronize()
        return found

    def put_locked(self, nbytes: int) -> float:
        """Seconds of a copy of page-locked memory to the device."""
        device, host = self._memory(nbytes)
        start = clock()
        checked(runtime.cudaMemcpyAsync(device, host, nbytes, TO_DEVICE, self._stream))
        self._synchronize()
        return clock() - start

    def get_locked(self, nbytes: int) -> float:
        """Seconds of the way back."""
        device, host = self._memory(nbytes)
        start = clock()
        checked(runtime.cudaMemcpyAsync(host, device, nbytes, TO_HOST, self._stream))
        self._synchronize()
        return clock() - start


if __name__ == "__main__":
    try:
        raw = Raw()
    except Exception as e:  # whatever is missing is the reason
        missing(f"{type(e).__name__}: {e}")
    serve({name: getattr(raw, name) for name in ("ask", "ask_unlike", "pipelined", "put_locked", "get_locked")})
