"""A network of two layers learns handwritten digits: every product carries its bias, activation or derivative along."""

import asyncio
import sys

import numpy as np

import callboard as cb
from callboard.cli.demo.digits import load_digits

HIDDEN, RATE, EPOCHS, BATCH, TRAINED = 64, 0.3, 40, 128, 1408


def gelu(x: np.ndarray) -> np.ndarray:
    return np.asarray(x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


def numpy_gradients(x: np.ndarray, y: np.ndarray, weights: list[np.ndarray]) -> list[np.ndarray]:
    """The same step in f64; the derivative of GELU by a central difference."""
    w1, b1, w2, b2 = (w.astype(np.float64) for w in weights)
    hidden = x @ w1 + b1
    error = gelu(hidden) @ w2 + b2 - y
    below = error @ w2.T * (gelu(hidden + 1e-5) - gelu(hidden - 1e-5)) / 2e-5
    return [x.T @ below, below.sum(0), gelu(hidden).T @ error, error.sum(0)]


async def main(name: str) -> None:
    rng = np.random.default_rng(1)
    order = rng.permutation(1797)  # some writers come last
    pixels, labels = load_digits().images[order].astype("f4") / 16, load_digits().labels[order]
    wanted = np.eye(10, dtype="f4")[labels]
    start = [rng.normal(0, 0.15, shape) for shape in ((64, HIDDEN), HIDDEN, (HIDDEN, 10), 10)]
    async with cb.device(name) as gpu:
        lt = gpu.blas_lt
        w1, b1, w2, b2 = weights = [gpu.put(w.astype("f4")) for w in start]

        def gradients(x: cb.GpuRef, y: cb.GpuRef) -> list[cb.GpuRef]:
            """Of half the squared error; five products and nothing beside them."""
            hidden, aux = lt.matmul_aux(x, w1, bias=b1, epilogue="gelu_aux_bias")
            error = lt.matmul(hidden, w2, c=y, beta=-1.0, bias=b2, epilogue="bias")  # what it says minus what is wanted
            below, db1 = lt.matmul_bgrad(error, w2, transpose_b=True, aux=aux, epilogue="dgelu_bgrad")
            dw2, db2 = lt.matmul_bgrad(hidden, error, transpose_a=True, epilogue="bgrad_b")
            return [lt.matmul(x, below, transpose_a=True), db1, dw2, db2]

        x, y = gpu.put(pixels[:TRAINED]), gpu.put(wanted[:TRAINED])
        for g, true in zip(gradients(x, y), numpy_gradients(pixels[:TRAINED], wanted[:TRAINED], start), strict=True):
            assert np.allclose(await g.get(), true, rtol=1e-3, atol=1e-4 * np.abs(true).max())
        for _ in range(EPOCHS):
            for i in range(0, TRAINED, BATCH):
                for weight, g in zip(weights, gradients(x[i : i + BATCH], y[i : i + BATCH]), strict=True):
                    gpu.blas.axpy(g, weight, alpha=-RATE / BATCH)
        hidden = lt.matmul(gpu.put(pixels[TRAINED:]), w1, bias=b1, epilogue="gelu_bias")
        said = await lt.matmul(hidden, w2, bias=b2, epilogue="bias").get()
    right = float(np.mean(said.argmax(1) == labels[TRAINED:]))
    print(f"gradients as in NumPy; {right:.1%} of {len(said)} digits that it had not seen are right")
    assert right > 0.9


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
