"""The same without asyncio, for scripts and notebooks: what has to wait, waits on the calling thread."""

import sys
import threading

import numpy as np

import callboard as cb


class Counter(cb.ResidentActor):
    """Adds up what it is given."""

    def setup(self, ctx: cb.HostContext) -> None:
        self.total = 0.0

    def add(self, x: np.ndarray) -> float:
        self.total += float(x.sum())
        return self.total


def main(name: str) -> None:
    with cb.sync.device(name) as gpu:
        x = np.random.default_rng(1).random((256, 256), np.float32)
        a = gpu.put(x)
        c = gpu.blas.gemm(gpu.blas.gemm(a, a), a, alpha=0.5)  # accepted at once, as ever: a chain costs one wait
        found = c.get()  # the array
        assert np.allclose(found, 0.5 * (x @ x @ x), rtol=1e-4)
        print(c.shape, c.dtype, "on", gpu.name)
        try:
            gpu.blas.gemm(a, a[:2])
        except cb.ShapeError as e:
            print("refused:", e)

        # Your own actor: its calls give values. Threads may share it, and the device.
        counter = gpu.actor_of(cb.Props(Counter), name="counter")
        threads = [threading.Thread(target=counter.call, args=(Counter.add, np.full(10, i))) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        total = counter.call(Counter.add, np.zeros(1))
        assert total == 280.0
        print("counted", total, "in", gpu.stats().completed, "ops")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "auto")
