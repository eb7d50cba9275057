"""A tour of ``device.blas``: products, updates in place, solves, reductions; numbers that stay on the device."""

import asyncio
import sys

import numpy as np

import callboard as cb


async def main(name: str) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.random((6, 4)), rng.random((4, 3))
    v, w = rng.random(4), rng.random(4)
    lower = np.tril(rng.random((4, 4))) + 4 * np.eye(4)
    async with cb.device(name) as gpu:
        blas = gpu.blas
        a, b, p, q = gpu.put(x), gpu.put(y), gpu.put(v), gpu.put(w)

        product = blas.gemm(a, b)
        assert np.allclose(await product.get(), x @ y)
        assert np.allclose(await blas.gemm(a, product, transpose_a=True).get(), x.T @ (x @ y))
        assert np.allclose(await blas.gemm(a[:3, 1:], b[1:]).get(), x[:3, 1:] @ y[1:])  # views are operands
        assert np.allclose(await blas.gemv(a, p).get(), x @ v)
        assert np.allclose(await blas.trsm(gpu.put(lower), gpu.put(y)).get(), np.linalg.solve(lower, y))

        assert np.isclose(await blas.dot(p, q), v @ w)  # answers a number
        assert await blas.iamax(p) == np.argmax(np.abs(v))
        alpha = gpu.empty((), "f64")
        blas.dot(p, q, out=alpha)  # or leaves it on the device,
        assert np.allclose(await blas.axpy(p, q, alpha=alpha).get(), w + (v @ w) * v)  # as a factor

        half = gpu.put(x, dtype="bf16")
        print(await blas.gemm(half, half, transpose_a=True).get())
        try:
            blas.gemm(a, a)  # refused at the call, before anything is sent
        except cb.ShapeError as e:
            print(f"ShapeError: {e}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
