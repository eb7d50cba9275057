"""Subject: eager torch."""

import statistics
import sys
import time
from typing import Any

from _worker import missing, serve

clock = time.perf_counter

try:
    import torch
except ImportError as e:
    missing(f"{e}; pip install torch")


class Torch:
    """Operands are made once per size."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._operands: dict[int, list[Any]] = {}
        self._arrays: dict[int, tuple[Any, Any]] = {}
        self._synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
        torch.zeros(1, device=device)

    def _matrices(self, n: int) -> list[Any]:
        found = self._operands.get(n)
        if found is None:
            found = self._operands[n] = [torch.rand((n, n), device=self._device) for _ in range(10)]
            torch.mm(found[0], found[1], out=found[2])
            self._synchronize()
        return found

    def ask_unlike(self, n: int, count: int) -> float:
        """Median seconds of one ``torch.addmm`` and synchronize, with another factor each time."""
        a, b, out, *_ = self._matrices(n)
        times = []
        for i in range(count + 20):
            alpha = 1.0 + i * 1e-6
            start = clock()
            torch.addmm(out, a, b, beta=0, alpha=alpha, out=out)
            self._synchronize()
            if i >= 20:
                times.append(clock() - start)
        return statistics.median(times)

    def ask(self, n: int, count: int) -> float:
        """Median seconds of one ``torch.mm`` and synchronize."""
        a, b, out, *_ = self._matrices(n)
        times = []
        for i in range(count + 20):
            start = clock()
            torch.mm(a, b, out=out)
            self._synchronize()
            if i >= 20:
                times.append(clock() - start)
        return statistics.median(times)

    def pipelined(self, n: int, count: int) -> float:
        """Seconds per ``torch.mm``; one synchronize at the end; outputs take turns."""
        a, b, *outs = self._matrices(n)
        for out in outs:
            torch.mm(a, b, out=out)
        self._synchronize()
        start = clock()
        for i in range(count):
            torch.mm(a, b, out=outs[i % 8])
        self._synchronize()
        return (clock() - start) / count

    def _pair(self, nbytes: int) -> tuple[Any, Any]:
        found = self._arrays.get(nbytes)
        if found is None:
            host = torch.full((nbytes // 4,), 0.5)
            found = self._arrays[nbytes] = host.to(self._device, copy=True), host
            self._synchronize()
        return found

    def put_pageable(self, nbytes: int) -> float:
        """Seconds of a copy of an ordinary array to the device."""
        device, host = self._pair(nbytes)
        start = clock()
        device.copy_(host)
        self._synchronize()
        return clock() - start

    def get_pageable(self, nbytes: int) -> float:
        """Seconds of the way back, into an array that has been touched before."""
        device, host = self._pair(nbytes)
        start = clock()
        host.copy_(device)
        self._synchronize()
        return clock() - start


if __name__ == "__main__":
    try:
        subject = Torch(sys.argv[1])
    except Exception as e:  # whatever is missing is the reason
        missing(f"{type(e).__name__}: {e}")
    serve({name: getattr(subject, name) for name in ("ask", "ask_unlike", "pipelined", "put_pageable", "get_pageable")})
