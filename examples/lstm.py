"""An LSTM reads handwritten digits row by row, trained from scratch by backpropagation through time on the device."""

import asyncio
import sys
from typing import Any

import numpy as np

import callboard as cb
from callboard.cli.demo.digits import load_digits

EPOCHS, BATCH, RATE, TRAINED = 15, 64, 0.01, 1408
NET = cb.RnnParams("lstm", input_size=8, hidden_size=48, num_layers=2)
OPTIONS: Any = {"layout": "batch_major", "dropout": 0.2}

ADAM = "m = 0.9 * m + 0.1 * g; v = 0.99 * v + 0.01 * g * g; w = w - rate * m / (sqrt(v) + 1e-8)"
adam = cb.elementwise(ADAM, results=("w", "m", "v"))  # Kingma and Ba, 2015: one kernel, all three written in place


async def main(name: str) -> None:
    rng = np.random.default_rng(1)
    order = rng.permutation(1797)  # some writers come last
    rows = (load_digits().images[order].astype("f4") / 16).reshape(-1, 8, 8)  # of a picture: the steps of a sequence
    labels = load_digits().labels[order].astype("i4")
    async with cb.device(name) as gpu:
        dnn, size = gpu.dnn, NET.weight_size
        start = np.concatenate([NET.initial_weights(seed=1), rng.normal(0, 0.1, 48 * 10).astype("f4")])
        w, m, v, g = gpu.put(start), gpu.zeros(start.size), gpu.zeros(start.size), gpu.empty(start.size)
        head, d_head, one = w[size:].reshape(48, 10), g[size:].reshape(48, 10), gpu.put(np.float32(1.0))

        def train(x: cb.GpuRef, target: cb.GpuRef, rate: float, seed: int) -> cb.GpuRef:
            net = dnn.rnn_forward_training(x, w[:size], NET, seed=seed, **OPTIONS)
            last = net.h_n[1]  # what the upper layer says of the whole picture
            said = gpu.blas.gemm(last, head)
            loss = dnn.cross_entropy(said, target)
            d_said = dnn.cross_entropy_backward(one, said, target, loss.log_sum)
            gpu.blas.gemm(last, d_said, transpose_a=True, out=d_head)
            d_states = gpu.zeros((2, len(x), 48))
            gpu.blas.gemm(d_said, head, transpose_b=True, out=d_states[1])
            dnn.rnn_backward(x, w[:size], NET, net.y, net.reserve, dh_n=d_states, dweights=g[:size], **OPTIONS)
            adam(w=w, m=m, v=v, g=g, rate=rate)
            return loss.loss

        x, target = gpu.put(rows[:TRAINED]), gpu.put(labels[:TRAINED])
        for epoch in range(EPOCHS):  # called one after the other; only the losses are waited for
            rate, cuts = RATE * 0.9**epoch, range(0, TRAINED, BATCH)
            steps = [train(x[i : i + BATCH], target[i : i + BATCH], rate, 9999 * epoch + i) for i in cuts]
            losses = [float(await loss.get()) for loss in steps]
            if epoch % 5 == 4:
                print(f"epoch {epoch + 1}: cross-entropy {np.mean(losses):.3f}")
        net = dnn.rnn_forward(gpu.put(rows[TRAINED:]), w[:size], NET, layout="batch_major")
        said = await gpu.blas.gemm(net.h_n[1], head).get()
    right = float(np.mean(said.argmax(1) == labels[TRAINED:]))
    print(f"{size:,} weights; {right:.1%} of {len(said)} digits that it had not seen are right")
    assert right > 0.9


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
