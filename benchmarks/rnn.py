"""Cost of a training step of an LSTM: through callboard, with cuDNN called directly, and in eager torch.

    python benchmarks/rnn.py --json rnn.json
    python benchmarks/rnn.py --quick --device cpu

Forward and backward of two layers of 512, a batch of 64, 128 steps, into arrays made ahead (torch makes its own). f32
may be multiplied in TF32, as torch does by default. On the CPU the direct call is torch's; beside other programs that
keep the cores busy, ``OPENBLAS_NUM_THREADS=1`` makes the figures steady (NumPy's threads wait for each other).
"""

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
from _maths import Problem, Run, Subjects, compare

import callboard as cb
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.operand import Placeholder
from callboard.kernel.dnn import RnnForwardTraining

NUMPY: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}


def problems(kind: str, quick: bool) -> list[Problem]:
    if kind == "cpu":
        settings = {"size": 32 if quick else 256, "batch": 16, "steps": 16, "dtype": "f32"}
        title = "LSTM 2x{size}, batch {batch}, {steps} steps {dtype}".format(**settings)
        return [Problem(title, settings, 100 if quick else 10)]
    found = []
    for dtype in NUMPY:
        settings = {"size": 512, "batch": 64, "steps": 128, "dtype": dtype}
        title = f"LSTM 2x512, batch 64, 128 steps {dtype}"
        found.append(Problem(f"{title}, beside cuDNN", settings, 20, bar=0.97, without=("cupy", "torch")))
        found.append(Problem(f"{title}, beside torch", settings, 20, bar=1.0, base="torch", without=("cupy", "raw")))
    return found


def net(size: int) -> cb.RnnParams:
    return cb.RnnParams("lstm", size, size, 2)


def operands(size: int, batch: int, steps: int, dtype: str) -> tuple[Any, Any]:
    """Input and packed weights."""
    x = np.random.default_rng(2).standard_normal((steps, batch, size)).astype(NUMPY[dtype])
    return x, net(size).initial_weights(1, dtype)


async def ours(device: Any, size: int, batch: int, steps: int, dtype: str) -> Run:
    x, w = map(device.put, operands(size, batch, steps, dtype))
    dnn, options = device.dnn, {"tf32": dtype == "f32"}
    made = dnn.rnn_forward_training(x, w, net(size), **options)
    into = made._asdict()
    found = dnn.rnn_backward(x, w, net(size), made.y, made.reserve, dy=made.y, **options)._asdict()
    await found["dx"]

    def step() -> Any:
        dnn.rnn_forward_training(x, w, net(size), **options, **into)
        return dnn.rnn_backward(x, w, net(size), made.y, made.reserve, dy=made.y, **options, **found).dweights

    return Run(step, found["dweights"].get)


def torch_step(torch: Any, where: str, size: int, batch: int, steps: int, dtype: str) -> Run:
    x, w = operands(size, batch, steps, dtype)
    kind = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[dtype]
    module = torch.nn.LSTM(size, size, 2)
    wide = net(size).unpack(w.astype(np.float32))
    module.load_state_dict({name: torch.from_numpy(array) for name, array in wide.items()})
    module = module.to(where, kind)
    given = torch.from_numpy(x.astype(np.float32)).to(where, kind).requires_grad_()

    def step() -> Any:
        module.zero_grad(set_to_none=True)
        given.grad = None
        y, _ = module(given)
        y.backward(y.detach())
        return given.grad

    def gradients() -> Any:
        step()
        state = {name: p.grad.float().cpu().numpy() for name, p in module.named_parameters()}
        return net(size).pack(state).astype(NUMPY[dtype])

    return Run(step, gradients)


def direct(size: int, batch: int, steps: int, dtype: str) -> Run:
    import torch

    return torch_step(torch, "cpu", size, batch, steps, dtype)


def torch(torch: Any, size: int, batch: int, steps: int, dtype: str) -> Run:
    return torch_step(torch, "cuda", size, batch, steps, dtype)


def raw(cuda: Any, size: int, batch: int, steps: int, dtype: str) -> Run:
    from cuda.bindings import runtime

    from callboard.backends.cuda.dnn.legacy import Cudnn, Destroyed
    from callboard.backends.cuda.dnn.rnn.descriptors import Descriptors

    arrays, kind, params = operands(size, batch, steps, dtype), DTYPES[dtype], net(size)
    x, w = (Placeholder(layout_of(kind, array.shape)) for array in arrays)
    op = RnnForwardTraining(x=x, weights=w, params=params, tf32=dtype == "f32")
    network = Descriptors(Cudnn(), op, params, True, Destroyed())
    stream: Any = SimpleNamespace(native=cuda.stream)
    at_x, at_w = map(cuda.put, arrays)
    cell = 2 * batch * size * kind.itemsize
    y, dx, h, c, dh, dc = (cuda.empty(n) for n in (arrays[0].nbytes, arrays[0].nbytes, cell, cell, cell, cell))
    work, reserve, dw = (cuda.empty(n) for n in network.sizes)

    def step() -> None:
        network.forward(stream, at_x, y, None, h, None, c, at_w, work, reserve)
        network.backward_data(stream, y, y, dx, (None, None, dh), (None, None, dc), at_w, work, reserve)
        runtime.cudaMemsetAsync(dw, 0, arrays[1].nbytes, cuda.stream)
        network.backward_weights(stream, at_x, None, y, dw, work, reserve)

    return Run(step, lambda: cuda.get(dw, arrays[1].shape, NUMPY[dtype]))


if __name__ == "__main__":
    compare(__doc__, "dnn", problems, Subjects(ours, direct, raw, None, torch), name="rnn")
