"""``lower``: a model in a lower precision, with what it costs."""

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from callboard.core.errors import AccelError, ShapeError, UnsupportedOp
from callboard.kernel.engine.files.rewriting import whole
from callboard.kernel.engine.plan import read_model
from callboard.kernel.engine.precision.config import IBuilderConfig
from callboard.kernel.engine.precision.layers import layers_of
from callboard.kernel.engine.precision.trials import Batch, Execute, Lowered, Trials

__all__ = ["executing", "lower"]

Array = np.ndarray[Any, Any]
MEASURED = ("f32", "f16", "bf16", "int8")


async def lower(
    device: Any,
    model: "bytes | bytearray | str | os.PathLike[str]",
    config: IBuilderConfig,
    batches: Sequence[Batch],
    *,
    engine: str | None = None,
) -> Lowered:
    """Rewrite the layers of a model: convolutions and products with weights in f32.

    Args:
        device: An open device, whose engine computes the ranges and the errors.
        model: An ONNX file in f32, its path or its bytes, as for ``dev.engine.build``.
        config: Precision and calibration.
        batches: Inputs by name, such as the model will get; they are executed one after the other.
        engine: As for ``dev.engine.build``.

    Returns:
        The rewritten file, its error on the batches, and that of each layer.

    Raises:
        OnnxError, OSError: The file is no model, or cannot be read.
        ShapeError: There are no batches or no layers, a name in ``keep`` is no layer, or the opset is too old.
        LibraryError, UnsupportedOp: The engine cannot execute this precision; names what it lacks.
    """
    if not batches:
        raise ShapeError("lower: there are no batches; pass inputs such as the model will get")
    title = "model" if isinstance(model, bytes | bytearray) else Path(model).name
    data = await asyncio.to_thread(lambda: bytes(model) if isinstance(model, bytes | bytearray) else whole(model))
    found = await asyncio.to_thread(read_model, data, title)
    layers = await asyncio.to_thread(layers_of, found)
    names = {layer.name for layer in layers}
    if unknown := [name for name in config.keep if name not in names]:
        raise ShapeError(f"lower: keep has {unknown[0]!r}, which is no layer; layers are {', '.join(sorted(names))}")
    chosen = [layer for layer in layers if layer.name not in config.keep]
    if not chosen:
        raise ShapeError("lower: the model has no layers to lower: no convolution or product with a weight in f32")

    trials = Trials(data, config, batches, executing(device, engine), chosen, found)
    if config.precision == "best":
        return await _best(trials)
    return await trials.told(config.precision, chosen)


def executing(device: Any, engine: str | None) -> Execute:
    """Executes files on a device, by an engine."""

    async def execute(data: bytes, given: Sequence[Batch]) -> tuple[list[list[Array]], float]:
        plan = await device.engine.build(data, engine=engine)
        context = device.engine.context(plan)
        outs: list[list[Array]] = []
        seconds = 0.0
        for at, batch in enumerate((given[0], *given)):  # the first one again: it opens a session
            begin = time.perf_counter()
            refs = await context.run(batch)
            arrays = []
            for ref in refs if isinstance(refs, tuple) else (refs,):
                await ref
                arrays.append(await ref.get())
            if at:
                outs.append(arrays)
                seconds += time.perf_counter() - begin
        await device.engine.release(plan)
        return outs, seconds

    return execute


async def _best(trials: Trials) -> Lowered:
    """The fastest precision with an error that is small enough."""
    tried: dict[str, str] = {}
    best: tuple[float, Lowered] | None = None
    for precision in MEASURED:
        try:
            found = await trials.within(precision)
            _, seconds = await trials.execute(found.data, trials.batches)
        except (AccelError, UnsupportedOp) as e:
            tried[precision] = f"refused: {e}"
            continue
        kept = f", {len(found.kept)} layers in f32" if found.kept else ""
        tried[precision] = f"{seconds * 1e3:.2f} ms, error {found.error:.2e}{kept}"
        if found.error <= trials.config.tolerance and (best is None or seconds < best[0]):
            best = seconds, found
    if best is None:
        raise UnsupportedOp(f"lower: no precision can be executed: {tried}")
    return replace(best[1], tried=tried)
