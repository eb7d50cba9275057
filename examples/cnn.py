"""A small convolutional network reads handwritten digits, trained from scratch by gradients of `dnn` alone."""

import sys

import numpy as np

import callboard as cb
from callboard.cli.demo.digits import load_digits

EPOCHS, BATCH, RATE, TRAINED = 8, 64, 0.004, 1408
SHAPES = {"w1": (16, 1, 3, 3), "b1": (16,), "w2": (32, 16, 3, 3), "b2": (32,), "w3": (128, 10), "b3": (10,)}
ADAM = "m = 0.9 * m + 0.1 * g; v = 0.99 * v + 0.01 * g * g; w = w - rate * m / (sqrt(v) + 1e-8)"
adam, add = cb.elementwise(ADAM, results=("w", "m", "v")), cb.elementwise("x + y")


def main(gpu: cb.sync.Device) -> None:
    dnn, gemm, reduce, rng = gpu.dnn, gpu.blas.gemm, gpu.elementwise.reduce, np.random.default_rng(1)
    digits, order, one = load_digits(), rng.permutation(1797), gpu.put(np.float32(1))
    images, labels = (digits.images[order].astype("f4") / 16).reshape(-1, 1, 8, 8), digits.labels[order].astype("i4")
    x, target = gpu.put(images), gpu.put(labels)
    start = [rng.normal(0, (2 / np.prod(s[1:])) ** 0.5 if len(s) == 4 else 0.05, s) for s in SHAPES.values()]
    weights = gpu.put(np.concatenate([array.ravel() for array in start]).astype("f4"))
    gradients, m, v = (gpu.zeros(weights.size) for _ in range(3))
    ends = np.cumsum([array.size for array in start]).tolist()
    spans = list(zip(SHAPES.items(), [0, *ends], ends, strict=False))  # each a view of the one array
    p, g = ({name: flat[i:j].reshape(s) for (name, s), i, j in spans} for flat in (weights, gradients))

    def forward(x: cb.sync.Ref) -> list[cb.sync.Ref]:
        a = dnn.conv(x, p["w1"], bias=p["b1"], padding=1, activation="relu")
        first = dnn.max_pool_indices(a, 2)
        b = dnn.conv(first.out, p["w2"], bias=p["b2"], padding=1, activation="relu")
        second = dnn.max_pool_indices(b, 2)
        said = add(gemm(second.out.reshape(len(x), 128), p["w3"]), p["b3"])
        return [a, first.out, first.indices, b, second.out, second.indices, said]

    def train(x: cb.sync.Ref, wanted: cb.sync.Ref) -> cb.sync.Ref:
        a, pooled, at_a, b, features, at_b, said = forward(x)
        loss = dnn.cross_entropy(said, wanted)
        d = dnn.cross_entropy_backward(one, said, wanted, loss.log_sum)
        gemm(features.reshape(len(x), 128), d, transpose_a=True, out=g["w3"])
        reduce("sum(x)", d, axis=0, out=g["b3"])
        d = gemm(d, p["w3"], transpose_b=True).reshape(*features.shape)
        for layer, given, made, at in (("2", pooled, b, at_b), ("1", x, a, at_a)):
            d = dnn.activation_backward(dnn.max_pool_backward(d, at, 2, made.shape), made, "relu")
            dnn.conv_backward_filter(given, d, SHAPES[f"w{layer}"], padding=1, out=g[f"w{layer}"])
            reduce("sum(x)", d, axis=(0, 2, 3), out=g[f"b{layer}"])
            d = dnn.conv_backward_data(d, p[f"w{layer}"], given.shape, padding=1)
        adam(w=weights, m=m, v=v, g=gradients, rate=RATE)
        return loss.loss

    for epoch in range(EPOCHS):  # called one after the other; only the losses are waited for
        losses = [train(x[i : i + BATCH], target[i : i + BATCH]) for i in range(0, TRAINED, BATCH)]
        print(f"epoch {epoch + 1}: cross-entropy {np.mean([loss.get() for loss in losses]):.3f}")
    right = float(np.mean(forward(x[TRAINED:])[-1].get().argmax(1) == labels[TRAINED:]))
    print(f"{weights.size:,} weights; {right:.1%} of {1797 - TRAINED} digits that it had not seen are right")
    assert right > 0.95


with cb.sync.device(sys.argv[1] if len(sys.argv) > 1 else "auto") as opened:
    main(opened)
