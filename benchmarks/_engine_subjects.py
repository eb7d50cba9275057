"""The subjects of `engines.py`: each computes one model, called several times before its last result is read."""

import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import callboard as cb
from callboard.kernel.engine.files.rewrites import switched_off
from callboard.kernel.engine.onnxfile import field_bytes, info_bytes, tensor_bytes

__all__ = [
    "LAYER",
    "Subject",
    "by_context",
    "by_hand",
    "by_session",
    "by_torch",
    "chain",
    "chain_by_hand",
    "layer_by_hand",
    "session",
]

Array = np.ndarray[Any, Any]
Call = dict[str, Array]


WEIGHT = 0.1 * np.random.default_rng(2).standard_normal((64, 64)).astype("f4")
BIAS = np.arange(64, dtype="f4") / 64


def _layer() -> bytes:
    """``y = relu(x @ w + b)``."""
    nodes = ((("x", "w"), "m", "MatMul"), (("m", "b"), "a", "Add"), (("a",), "y", "Relu"))
    body = [
        field_bytes(1, b"".join(field_bytes(1, name) for name in names) + field_bytes(2, out) + field_bytes(4, op))
        for names, out, op in nodes
    ]
    body += [
        field_bytes(2, "layer"),
        field_bytes(5, tensor_bytes("w", WEIGHT)),
        field_bytes(5, tensor_bytes("b", BIAS)),
    ]
    body += [field_bytes(at, info_bytes(name, "f32", ["n", 64])) for at, name in ((11, "x"), (12, "y"))]
    return field_bytes(1, 9) + field_bytes(7, b"".join(body)) + field_bytes(8, field_bytes(2, 20))


LAYER = _layer()


class Subject(NamedTuple):
    """Something that computes a model.

    Attributes:
        step: Calls it once; on a device, without waiting for it.
        result: The result of the last call.
    """

    step: Callable[[], Any]
    result: Callable[[], Awaitable[Array]]


def _weights(columns: int, layers: int) -> list[tuple[Array, Array]]:
    rng = np.random.default_rng(3)
    scale = (2 / columns) ** 0.5
    made = [scale * rng.standard_normal((columns, columns)).astype("f4") for _ in range(layers)]
    return [(w, np.linspace(-1, 1, columns, dtype="f4")) for w in made]


def chain(columns: int, layers: int) -> bytes:
    """``x = relu(x @ w + b)``, so many times."""
    body, now = [field_bytes(2, "chain")], "x"
    for at, (w, b) in enumerate(_weights(columns, layers)):
        out = "y" if at == layers - 1 else f"x{at}"
        nodes = (
            ((now, f"w{at}"), f"m{at}", "MatMul"),
            ((f"m{at}", f"b{at}"), f"a{at}", "Add"),
            ((f"a{at}",), out, "Relu"),
        )
        for names, result, op in nodes:
            inputs = b"".join(field_bytes(1, name) for name in names)
            body.append(field_bytes(1, inputs + field_bytes(2, result) + field_bytes(4, op)))
        body += [field_bytes(5, tensor_bytes(f"w{at}", w)), field_bytes(5, tensor_bytes(f"b{at}", b))]
        now = out
    body += [field_bytes(at, info_bytes(name, "f32", ["n", columns])) for at, name in ((11, "x"), (12, "y"))]
    return field_bytes(1, 9) + field_bytes(7, b"".join(body)) + field_bytes(8, field_bytes(2, 20))


async def chain_by_hand(device: cb.Device, x: Array, layers: int) -> Any:
    """The recording of `chain` as one op for each layer."""
    weights = [(device.put(w), device.put(b)) for w, b in _weights(x.shape[1], layers)]
    given = device.put(x)

    def run() -> Any:
        y: Any = given
        for w, b in weights:
            y = device.blas_lt.matmul(y, w, bias=b, epilogue="relu_bias")
        return y

    await run()
    with device.record(x=given) as model:
        model.returns(run())
    return model


def session(data: bytes, threads: int = 0) -> Any:
    """ONNX Runtime as `dev.engine` opens it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or len(os.sched_getaffinity(0))
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(
        data, options, providers=["CPUExecutionProvider"], disabled_optimizers=switched_off(data)
    )


def by_session(opened: Any, call: Call) -> Subject:
    """ONNX Runtime without callboard."""
    last: list[Array] = []

    def step() -> None:
        last[:] = opened.run(None, call)

    async def result() -> Array:
        return last[0]

    return Subject(step, result)


def by_context(context: Any, refs: dict[str, Any]) -> Subject:
    """A context of ``dev.engine``."""
    last: list[Any] = []

    def step() -> None:
        last.clear()  # as a caller does that has read the result
        outs = context(refs)
        last[:] = outs if isinstance(outs, tuple) else (outs,)

    async def result() -> Array:
        await last[0]  # whose extents may be known only now
        found: Array = await last[0].get()
        return found

    return Subject(step, result)


async def by_hand(device: cb.Device, folder: Path, dtype: str, call: Call) -> Subject:
    """MiniLM written in callboard's ops, recorded."""
    from callboard.serve.bundled.minilm_ops import encoded, padded, weights_on

    lengths = call["mask"].sum(axis=1)
    given = padded([row[:n].tolist() for row, n in zip(call["ids"], lengths, strict=True)])
    if (lengths == call["ids"].shape[1]).all():
        del given["lengths"]
    weights = weights_on(device, folder, dtype)
    text = {name: device.put(array) for name, array in given.items()}
    await encoded(device, weights, text)
    with device.record(**text) as model:
        model.returns(encoded(device, weights, text))
    return _replayed(model)


async def layer_by_hand(device: cb.Device, call: Call) -> Subject:
    """`LAYER` as one op, recorded."""
    w, b, x = device.put(WEIGHT), device.put(BIAS), device.put(call["x"])

    def layer() -> Any:
        return device.blas_lt.matmul(x, w, bias=b, epilogue="relu_bias")

    await layer()
    with device.record(x=x) as model:
        model.returns(layer())
    return _replayed(model)


def _replayed(model: Any) -> Subject:
    last: list[Any] = []

    def step() -> None:
        last[:] = [model.replay()]

    async def result() -> Array:
        found: Array = await last[0].get()
        return found

    return Subject(step, result)


def by_torch(folder: Path, dtype: str, call: Call, compiled: bool) -> Subject:
    """MiniLM by torch's own encoder layers on the GPU, in inference mode."""
    import torch
    from safetensors.torch import load_file

    from callboard.serve.bundled.minilm_torch import network

    kind = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    config = json.loads((folder / "config.json").read_text("utf-8"))
    weights = {name: x.to(kind) for name, x in load_file(folder / "model.safetensors").items()}
    layers = network(torch, config, weights, torch.device("cuda"))
    run = torch.compile(layers) if compiled else layers
    tokens = torch.from_numpy(call["ids"]).to("cuda")
    padding = None if call["mask"].all() else torch.from_numpy(call["mask"] == 0).to("cuda")
    last: list[Any] = []

    def step() -> None:
        with torch.inference_mode():
            last[:] = [run(tokens, padding)]

    async def result() -> Array:
        found: Array = last[0].float().cpu().numpy()
        return found

    return Subject(step, result)
