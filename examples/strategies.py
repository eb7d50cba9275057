"""A stream allocator and a completion strategy of one's own, in the process of the context."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import callboard as cb


class CopiesApart(cb.StreamAllocator):
    """Two streams for the libraries, one of them for copies; one more for each resident actor."""

    def __init__(self, libraries: Sequence[str]) -> None:
        self.libraries = libraries
        self.shared: dict[bool, Any] = {}

    def acquire(self, actor: str, priority: int, new: Callable[[int], Any]) -> Any:
        library = actor.partition(".")[0]
        if library not in self.libraries:
            return new(priority)
        copies = library == "memory"
        if copies not in self.shared:
            self.shared[copies] = new(priority)
        return self.shared[copies]

    def release(self, stream: Any) -> bool:
        return stream not in self.shared.values()


class Naps(cb.CompletionStrategy):
    """Looks for completed work at an interval: it leaves the core free, and needs no other thread."""

    def __init__(self, interval: float) -> None:
        self.interval = interval

    def wait(self, flying: bool) -> float | None:
        return self.interval if flying else None

    def watch(self, timelines: Sequence[cb.StreamWork]) -> None:
        """Nothing wakes the thread, so there is nothing to prepare."""


async def main(name: str) -> None:
    allocator = CopiesApart(["memory", "blas", "elementwise", "array", "solver"])
    async with cb.device(name, isolation="process", streams=allocator, completion=Naps(0.0002)) as gpu:
        a = np.eye(256) + np.ones((256, 256)) / 256
        ref = gpu.put(a)
        product = gpu.blas.gemm(ref, ref)
        inverse = gpu.solver.inverse(product)
        assert np.allclose(await inverse.get() @ (a @ a), np.eye(256))
        print(f"{(await gpu.stats()).live_streams} streams")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
