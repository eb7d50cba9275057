"""An ONNX file as a model: a plan of ``dev.engine``."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import callboard as cb
from callboard.core.dtype import DTYPES
from callboard.core.errors import AccelError, ShapeError
from callboard.core.layout import OpenLayout
from callboard.kernel.engine.files.rewriting import with_outputs
from callboard.kernel.engine.inputs.profiles import Port
from callboard.kernel.engine.inputs.refused import cure
from callboard.kernel.engine.onnxfile import Model, ValueInfo
from callboard.serve.bundled.onnxfile import OnnxFile, Opened, RunOptions
from callboard.serve.tensors import DATATYPES, Array

__all__ = ["opened_plan"]

NAMES = {dtype: name for name, dtype in DATATYPES.items() if dtype.kind != "O"}
"""Datatypes of the protocol, by NumPy's dtype."""


async def opened_plan(device: cb.Device, path: Path, data: bytes, model: Model, options: RunOptions) -> Opened:
    """The file as a plan, with its inputs and outputs.

    Args:
        device: Device that the model computes on.
        path: Where it came from, for errors.
        data: The file, with its weights.
        model: What is in it. Outputs that the protocol does not have are left out.
        options: As for ``dev.engine.build`` and ``dev.engine.context``.

    Raises:
        ValueError: No output is left; or an input is no tensor that the protocol has, or has no declared shape.
        UnsupportedOp: The engine lacks operators of the model; names all of them.
        BackendUnavailable: The engine is not installed.
        LibraryError: ONNX Runtime refuses the model.
    """
    left_out = [each for each in model.graph.outputs if not _served(each.dtype)]
    if left_out:
        kept = [each.name for each in model.graph.outputs if each not in left_out]
        if not kept:
            raise ValueError(f"{path} cannot be served: {', '.join(map(_text, left_out))}")
        data = await asyncio.to_thread(with_outputs, data, kept)
    plan = await device.engine.build(data, engine=options.engine, threads=options.threads, title=path.name)
    file = OnnxFile(
        inputs=[_described(path, each) for each in plan.inputs],
        outputs=[_described(path, each) for each in plan.outputs],
        left_out=[_text(each) for each in left_out],
        provider=plan.engine,
    )
    context = device.engine.context(plan, record=device.record, budget=options.budget)
    half = max(1, device.config.max_in_flight // 2)
    names = [each.name for each in plan.inputs]
    turn = asyncio.Lock()

    async def run(arrays: list[Array]) -> list[Array]:
        async with turn:  # the ops of many requests at once could fill the device's mailbox
            given = dict(zip(names, arrays, strict=True))
            outs = await context.run(given, room=lambda: device.room(half), unchanged=True)
            try:
                return [await _array(out) for out in (outs if isinstance(outs, tuple) else (outs,))]
            except ShapeError as e:  # an op of the model, which names its operands
                known = str(e).startswith(path.name)
                raise e if known else ShapeError(f"{path.name}: {e}; {cure(names)}") from e

    def stop() -> None:
        with contextlib.suppress(AccelError):  # the device has stopped, and the session with it
            device.engine.release(plan)

    async def end() -> None:
        with contextlib.suppress(AccelError):
            await device.engine.release(plan)

    return Opened(file, run, stop, end)


async def _array(out: Any) -> Array:
    """The items of an output; its extents may not be known before."""
    if isinstance(out.layout, OpenLayout):
        await out
    found: Array = await out.get()
    return found


def _served(dtype: str | None) -> bool:
    return dtype is not None and DTYPES[dtype].np in NAMES


def _text(info: ValueInfo) -> str:
    return f"{info.name} is {info.kind or info.dtype}"


def _described(path: Path, port: Port) -> tuple[str, str, list[int]]:
    dtype: Any = DTYPES[port.dtype].np
    if port.shape is None or dtype not in NAMES:
        what = "declares no number of axes" if port.shape is None else f"is {port.dtype}"
        raise ValueError(f"{path} cannot be served: {port.name} {what}")
    return port.name, NAMES[dtype], [each if isinstance(each, int) else -1 for each in port.shape]
