"""An ONNX file as a model: a plan of ``dev.engine``, executed by the ops of the device."""

import asyncio
from pathlib import Path
from typing import Any

import callboard as cb
from callboard.core.dtype import DTYPES
from callboard.kernel.engine.profiles import Port
from callboard.serve.bundled.onnxfile import OnnxFile, Opened
from callboard.serve.tensors import DATATYPES, Array

__all__ = ["opened_plan"]

NAMES = {dtype: name for name, dtype in DATATYPES.items() if dtype.kind != "O"}
"""Datatypes of the protocol, by NumPy's dtype."""


async def opened_plan(device: cb.Device, path: Path) -> Opened:
    """The file as a plan of callboard's own engine, with its inputs and outputs.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no model; or an input or output is no tensor that the protocol has, or has no declared shape.
        UnsupportedOp: The engine lacks operators of the model; names all of them.
    """
    data = await asyncio.to_thread(path.read_bytes)
    plan = await device.engine.build(data, engine="callboard", title=path.name)
    file = OnnxFile(
        inputs=[_described(path, each) for each in plan.inputs],
        outputs=[_described(path, each) for each in plan.outputs],
        left_out=[],
        provider="callboard",
    )
    context = device.engine.context(plan, record=device.record)
    names = [each.name for each in plan.inputs]
    turn = asyncio.Lock()

    async def run(arrays: list[Array]) -> list[Array]:
        async with turn:  # the ops of many requests at once could fill the device's mailbox
            outs = context(dict(zip(names, arrays, strict=True)))
            return [await out.get() for out in (outs if isinstance(outs, tuple) else (outs,))]

    async def end() -> None:
        """The arrays of a plan end with it."""

    return Opened(file, run, lambda: None, end)


def _described(path: Path, port: Port) -> tuple[str, str, list[int]]:
    dtype: Any = DTYPES[port.dtype].np
    if port.shape is None or dtype not in NAMES:
        what = "declares no number of axes" if port.shape is None else f"is {port.dtype}"
        raise ValueError(f"{path} cannot be served: {port.name} {what}")
    return port.name, NAMES[dtype], [each if isinstance(each, int) else -1 for each in port.shape]
