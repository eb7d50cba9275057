"""Deep learning: a classifier of two spirals, trained from scratch: norm, GELU, dropout, loss and their gradients.

python examples/spirals.py [device]
"""

import sys
from typing import Any

import numpy as np

import callboard as cb

POINTS, WIDTH, STEPS, RATE = 512, 64, 100, 0.3


def spirals(rng: np.random.Generator) -> tuple[Any, Any]:
    label = np.arange(POINTS) % 2
    reach = rng.random(POINTS) ** 0.5 * 5
    angle = reach + np.pi * label
    points = np.stack([reach * np.cos(angle), reach * np.sin(angle)], 1) + rng.normal(0, 0.05, (POINTS, 2))
    return np.insert(points, 2, 1, axis=1).astype("f4"), label  # a column of ones, for the bias


with cb.sync.device(sys.argv[1] if len(sys.argv) > 1 else "auto") as gpu:
    dnn, gemm, rng = gpu.dnn, gpu.blas.gemm, np.random.default_rng(0)
    points, label = spirals(rng)
    x, target, one = gpu.put(points), gpu.put(label), gpu.full((), 1.0, "f32")
    first = gpu.put(rng.normal(0, 1, (3, WIDTH)).astype("f4"))
    second = gpu.put(rng.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype("f4"))
    last = gpu.put(rng.normal(0, WIDTH**-0.5, (WIDTH, 2)).astype("f4"))
    scale, bias = gpu.full((WIDTH,), 1.0, "f32"), gpu.zeros((WIDTH,), "f32")
    step = cb.elementwise("w = w - rate * g")

    for turn in range(STEPS):
        drawn: dict[str, Any] = {"probability": 0.05, "seed": 7, "offset": turn * POINTS * WIDTH}
        a = gemm(x, first)
        norm = dnn.layer_norm_training(dnn.gelu(a), scale=scale, bias=bias)
        b = gemm(dnn.dropout(norm.out, **drawn), second)
        logits = gemm(dnn.silu(b), last)
        loss = dnn.cross_entropy(logits, target)
        # backwards: each gradient is an operand of the next before it has been computed
        d_logits = dnn.cross_entropy_backward(one, logits, target, loss.log_sum)
        db = dnn.activation_backward(gemm(d_logits, last, transpose_b=True), b, "swish")
        d_norm = dnn.dropout_backward(gemm(db, second, transpose_b=True), **drawn)
        back = dnn.layer_norm_backward(d_norm, dnn.gelu(a), norm.mean, norm.inverse, scale=scale)
        da = dnn.activation_backward(back.dx, a, "gelu")
        for weight, gradient in (
            (last, gemm(dnn.silu(b), d_logits, transpose_a=True)),
            (second, gemm(dnn.dropout(norm.out, **drawn), db, transpose_a=True)),
            (first, gemm(x, da, transpose_a=True)),
            (scale, back.dscale),
            (bias, back.dbias),
        ):
            step(w=weight, g=gradient, rate=RATE, out=weight)
        if turn % 25 == 0:
            print(f"step {turn:3}: loss {float(loss.loss.get()):.3f}")
    hidden = dnn.silu(gemm(dnn.layer_norm(dnn.gelu(gemm(x, first)), scale=scale, bias=bias), second))
    found = dnn.top_k(gemm(hidden, last), 1).indices.get()[:, 0]
    print(f"{(found == label).mean():.0%} of {POINTS} points are on the right spiral")
