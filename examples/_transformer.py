"""A transformer over bytes, forward and backward by callboard's ops: no positions but the distances of ALiBi."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np

import callboard as cb

LAYERS, WIDTH, HEADS, INNER, BYTES = 2, 32, 4, 128, 256
DIM = WIDTH // HEADS

ADAM = "m = 0.9 * m + 0.1 * g; v = 0.99 * v + 0.01 * g * g; w = w - rate * m / (sqrt(v) + 1e-8)"
adam = cb.elementwise(ADAM, results=("w", "m", "v"))  # Kingma and Ba, 2015: one kernel for all weights

SHAPES = {"bytes": (BYTES, WIDTH), "head": (WIDTH, BYTES)}
for i in range(LAYERS):
    SHAPES |= {f"qkv{i}": (WIDTH, 3 * WIDTH), f"out{i}": (WIDTH, WIDTH)}
    SHAPES |= {f"up{i}": (WIDTH, INNER), f"down{i}": (INNER, WIDTH)}

TEXT = 3 * "\n".join(name for name in dir(asyncio) if name[0].islower())
STEPS, BATCH, LENGTH, RATE = 100, 8, 32, 1e-2

Attend = Callable[[int, Any, Any, Any], Any]
"""``attend(layer, q, k, v)``, each ``[tokens, heads, dim]``: what a layer's queries see."""


class Transformer:
    """Weights in one array, and what is computed with them."""

    def __init__(self, gpu: cb.Device) -> None:
        self.gpu, rng = gpu, np.random.default_rng(1)
        start = [rng.normal(0, shape[0] ** -0.5, shape).astype("f4").ravel() for shape in SHAPES.values()]
        self.flat = gpu.put(np.concatenate(start))
        self.m, self.v, self.g = (gpu.zeros(self.flat.shape) for _ in range(3))
        self.slopes = gpu.put((2.0 ** (-8 * np.arange(1, HEADS + 1) / HEADS)).astype("f4"))
        self.one = gpu.put(np.float32(1.0))
        ends = np.cumsum([part.size for part in start])
        self.w, self.d = (
            {n: x[end - a * b : end].reshape(a, b) for (n, (a, b)), end in zip(SHAPES.items(), ends, strict=True)}
            for x in (self.flat, self.g)
        )

    def logits(self, tokens: cb.GpuRef, attend: Attend) -> cb.GpuRef:
        """Of the byte behind each token."""
        dnn, gemm, w = self.gpu.dnn, self.gpu.blas.gemm, self.w
        x = dnn.embedding(w["bytes"], tokens)
        for i in range(LAYERS):
            qkv = gemm(dnn.rms_norm(x), w[f"qkv{i}"]).reshape(-1, 3, HEADS, DIM)
            seen = attend(i, *(qkv[:, j] for j in range(3)))
            x = x + gemm(seen.reshape(-1, WIDTH), w[f"out{i}"])
            x = x + gemm(dnn.gelu(gemm(dnn.rms_norm(x), w[f"up{i}"])), w[f"down{i}"])
        return gemm(dnn.rms_norm(x), w["head"])

    def train(self, tokens: cb.GpuRef, target: cb.GpuRef, shape: tuple[int, int], rate: float) -> cb.GpuRef:
        """One step on sequences of equal length, one after the other; the loss before it."""
        dnn, gemm, w, d = self.gpu.dnn, self.gpu.blas.gemm, self.w, self.d
        settings: Any = {"causal": True, "alibi_slopes": self.slopes}
        x, kept = dnn.embedding(w["bytes"], tokens), []
        for i in range(LAYERS):
            first = dnn.rms_norm_training(x)
            qkv = gemm(first.out, w[f"qkv{i}"]).reshape(*shape, 3, HEADS, DIM)
            q, k, v = (qkv[:, :, j] for j in range(3))
            seen = self.gpu.attention.forward(q, k, v, **settings)
            middle = x + gemm(seen.out.reshape(-1, WIDTH), w[f"out{i}"])
            second = dnn.rms_norm_training(middle)
            up = gemm(second.out, w[f"up{i}"])
            kept.append((x, first, (q, k, v), seen, middle, second, up))
            x = middle + gemm(dnn.gelu(up), w[f"down{i}"])
        last = dnn.rms_norm_training(x)
        said = gemm(last.out, w["head"])
        loss = dnn.cross_entropy(said, target)
        d_said = dnn.cross_entropy_backward(self.one, said, target, loss.log_sum)
        gemm(last.out, d_said, transpose_a=True, out=d["head"])
        dx = dnn.rms_norm_backward(gemm(d_said, w["head"], transpose_b=True), x, last.inverse).dx
        for i, (x, first, (q, k, v), seen, middle, second, up) in reversed(list(enumerate(kept))):
            gemm(dnn.gelu(up), dx, transpose_a=True, out=d[f"down{i}"])
            d_up = dnn.activation_backward(gemm(dx, w[f"down{i}"], transpose_b=True), up, "gelu")
            gemm(second.out, d_up, transpose_a=True, out=d[f"up{i}"])
            inner = gemm(d_up, w[f"up{i}"], transpose_b=True)
            dx = dx + dnn.rms_norm_backward(inner, middle, second.inverse).dx
            gemm(seen.out.reshape(-1, WIDTH), dx, transpose_a=True, out=d[f"out{i}"])
            d_seen = gemm(dx, w[f"out{i}"], transpose_b=True).reshape(*shape, HEADS, DIM)
            d_qkv = self.gpu.empty((*shape, 3, HEADS, DIM))
            into: Any = {name: d_qkv[:, :, j] for j, name in enumerate(("dq", "dk", "dv"))}
            self.gpu.attention.backward(d_seen, q, k, v, seen.out, seen.lse, **settings, **into)
            d_qkv = d_qkv.reshape(-1, 3 * WIDTH)
            gemm(first.out, d_qkv, transpose_a=True, out=d[f"qkv{i}"])
            inner = gemm(d_qkv, w[f"qkv{i}"], transpose_b=True)
            dx = dx + dnn.rms_norm_backward(inner, x, first.inverse).dx
        dnn.embedding_backward(dx, tokens, BYTES, dtable=d["bytes"])
        adam(w=self.flat, m=self.m, v=self.v, g=self.g, rate=rate)
        return loss.loss


def codes(text: bytes) -> np.ndarray:
    """Bytes as tokens."""
    return np.frombuffer(text, np.uint8).astype("i4")


async def trained(gpu: cb.Device) -> Transformer:
    """One that has read parts of a short text; steps are called one after the other, and only losses are waited for."""
    model, text, rng = Transformer(gpu), codes(TEXT.encode()), np.random.default_rng(2)
    losses = []
    for n in range(STEPS):
        at = rng.integers(0, len(text) - LENGTH, BATCH)[:, None] + np.arange(LENGTH)
        tokens, target = (gpu.put(text[x].ravel()) for x in (at, at + 1))
        losses.append(model.train(tokens, target, (BATCH, LENGTH), RATE * 0.98**n))
    first, last = [float(await loss.get()) for loss in (losses[0], losses[-1])]
    print(f"cross-entropy {first:.2f}, after {STEPS} steps {last:.2f}")
    return model
