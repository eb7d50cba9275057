"""A layer that learned handwritten digits loses half of its weights, learns on, and knows them as well as before."""

import asyncio
import sys

import numpy as np

import callboard as cb
from callboard.cli.demo.digits import load_digits

HIDDEN, RATE, BATCH, TRAINED = 128, 0.3, 128, 1405


def train(gpu: cb.Device, x: cb.GpuRef, wanted: cb.GpuRef, weights: list[cb.GpuRef], steps: int, prune: bool) -> None:
    """Two layers with ReLU, by gradient descent on the squared error; the first is pruned after each step."""
    lt, (w1, b1, w2, b2) = gpu.blas_lt, weights
    for at in range(0, steps * BATCH, BATCH):
        start = at % (TRAINED - BATCH)
        a, y = x[start : start + BATCH], wanted[start : start + BATCH]
        hidden, aux = lt.matmul_aux(a, w1, transpose_b=True, bias=b1, epilogue="relu_aux_bias")
        error = lt.matmul(hidden, w2, c=y, beta=-1.0, bias=b2, epilogue="bias")
        below, db1 = lt.matmul_bgrad(error, w2, transpose_b=True, aux=aux, epilogue="drelu_bgrad")
        dw2, db2 = lt.matmul_bgrad(hidden, error, transpose_a=True, epilogue="bgrad_b")
        for weight, g in zip(weights, (lt.matmul(below, a, transpose_a=True), db1, dw2, db2), strict=True):
            gpu.blas.axpy(g, weight, alpha=-RATE / BATCH)
        if prune:
            gpu.sparse_lt.prune(w1, out=w1)


async def main(name: str) -> None:
    rng, order = np.random.default_rng(1), np.random.default_rng(2).permutation(1797)  # some writers come last
    pixels, labels = load_digits().images[order].astype("f4") / 16, load_digits().labels[order]
    shapes = ((HIDDEN, 64), HIDDEN, (HIDDEN, 10), 10)
    async with cb.device(name) as gpu:
        x, unseen = gpu.put(pixels[:TRAINED]), gpu.put(pixels[TRAINED:])
        wanted = gpu.put(np.eye(10, dtype="f4")[labels[:TRAINED]])
        weights = w1, b1, w2, b2 = [gpu.put(rng.normal(0, 0.15, shape).astype("f4")) for shape in shapes]

        async def right(hidden: cb.GpuRef) -> float:
            said = await gpu.blas_lt.matmul(hidden, w2, bias=b2, epilogue="bias").get()
            return float(np.mean(said.argmax(1) == labels[TRAINED:]))

        def compressed() -> cb.GpuRef:
            """The first layer by what was kept of it: of each two weights of a neuron the larger one."""
            layer = gpu.sparse_lt.compress(gpu.sparse_lt.prune(w1))
            return gpu.sparse_lt.linear(unseen, layer, bias=b1, activation="relu")

        train(gpu, x, wanted, weights, 300, prune=False)
        whole = await right(gpu.blas_lt.matmul(unseen, w1, transpose_b=True, bias=b1, epilogue="relu_bias"))
        half = await right(compressed())
        train(gpu, x, wanted, weights, 300, prune=True)
        again, kept = await right(compressed()), np.count_nonzero(await w1.get())
    print(f"{whole:.1%} of {len(labels) - TRAINED} digits are right with {HIDDEN * 64} weights in the first layer,")
    print(f"{half:.1%} with the larger half of them, {again:.1%} with {kept} that learned on")
    assert again > whole - 0.02
    assert kept <= HIDDEN * 64 // 2


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
