"""``lower``: a model in a lower precision, with what it costs."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from callboard.core.errors import AccelError, ShapeError, UnsupportedOp
from callboard.kernel.engine.plan import read_model
from callboard.kernel.engine.precision.calibrating import Range
from callboard.kernel.engine.precision.config import IBuilderConfig
from callboard.kernel.engine.precision.editing import Edit, edited
from callboard.kernel.engine.precision.layers import Layer, layers_of, lowered_edit

__all__ = ["LayerCost", "Lowered", "lower"]

Array = np.ndarray[Any, Any]
Batch = Mapping[str, Any]
Execute = Callable[[bytes, Sequence[Batch]], Awaitable["tuple[list[list[Array]], float]"]]
OLDEST = {"int8": 13, "fp8": 19}
"""Opsets that have scales for channels, and numbers of eight bits."""
MEASURED = ("f32", "f16", "bf16", "int8")


@dataclass(frozen=True)
class LayerCost:
    """What a layer has lost, with all layers before it.

    Attributes:
        name: Of the layer.
        op: Its operator.
        error: ``|a - b| / |b|`` of its outputs in the lowered model and in f32, by Euclidean norms.
    """

    name: str
    op: str
    error: float


@dataclass(frozen=True)
class Lowered:
    """A model in another precision; ``dev.engine.build(lowered.data)``.

    Attributes:
        data: The ONNX file.
        precision: Of its layers.
        error: The largest ``|a - b| / |b|`` of an output over the batches, by Euclidean norms.
        layers: The layers that were lowered, in order.
        tried: For ``"best"``: seconds of the batches and error by precision, or why it was refused.
    """

    data: bytes = field(repr=False)
    precision: str
    error: float
    layers: list[LayerCost]
    tried: dict[str, str] = field(default_factory=dict)

    def explain(self) -> str:
        """Precision, error of the outputs, and of each layer, in lines."""
        lines = [f"{self.precision}: outputs differ from f32 by {self.error:.2e}, {len(self.layers)} layers lowered"]
        lines += [f"tried {precision}: {text}" for precision, text in self.tried.items()]
        return "\n".join(lines + [f"{each.error:9.2e}  {each.op} {each.name}" for each in self.layers])


async def lower(
    device: Any, model: bytes, config: IBuilderConfig, batches: Sequence[Batch], *, engine: str | None = None
) -> Lowered:
    """Rewrite the layers of a model: convolutions and products with weights in f32.

    Args:
        device: An open device, whose engine computes the ranges and the errors.
        model: An ONNX file in f32.
        config: Precision and calibration.
        batches: Inputs by name, such as the model will get; they are executed one after the other.
        engine: As for ``dev.engine.build``.

    Returns:
        The rewritten file, its error on the batches, and that of each layer.

    Raises:
        ShapeError: There are no batches or no layers, a name in ``keep`` is no layer, or the opset is too old.
        LibraryError, UnsupportedOp: The engine cannot execute this precision; names what it lacks.
    """
    if not batches:
        raise ShapeError("lower: there are no batches; pass inputs such as the model will get")
    found = read_model(model, "model")
    layers = layers_of(found)
    names = {layer.name for layer in layers}
    if unknown := [name for name in config.keep if name not in names]:
        raise ShapeError(f"lower: keep has {unknown[0]!r}, which is no layer; layers are {', '.join(sorted(names))}")
    chosen = [layer for layer in layers if layer.name not in config.keep]
    if not chosen:
        raise ShapeError("lower: the model has no layers to lower: no convolution or product with a weight in f32")

    async def execute(data: bytes, given: Sequence[Batch]) -> tuple[list[list[Array]], float]:
        context = device.engine.context(await device.engine.build(data, engine=engine))
        outs: list[list[Array]] = []
        seconds = 0.0
        for at, batch in enumerate((given[0], *given)):  # the first one again: it opens a session
            begin = time.perf_counter()
            refs = context(batch)
            arrays = []
            for ref in refs if isinstance(refs, tuple) else (refs,):
                await ref
                arrays.append(await ref.get())
            if at:
                outs.append(arrays)
                seconds += time.perf_counter() - begin
        return outs, seconds

    if config.precision == "best":
        return await _best(model, config, batches, chosen, execute, found.opset)
    return await _one(model, config, config.precision, batches, chosen, execute, found.opset)


async def _best(
    model: bytes, config: IBuilderConfig, batches: Sequence[Batch], layers: list[Layer], execute: Execute, opset: int
) -> Lowered:
    """The fastest precision with an error that is small enough."""
    tried: dict[str, str] = {}
    best: tuple[float, Lowered] | None = None
    for precision in MEASURED:
        try:
            found = await _one(model, config, precision, batches, layers, execute, opset)
            _, seconds = await execute(found.data, batches)
        except (AccelError, UnsupportedOp) as e:
            tried[precision] = f"refused: {e}"
            continue
        tried[precision] = f"{seconds * 1e3:.2f} ms, error {found.error:.2e}"
        if found.error <= config.tolerance and (best is None or seconds < best[0]):
            best = seconds, found
    if best is None:
        raise UnsupportedOp(f"lower: no precision can be executed: {tried}")
    found = best[1]
    return Lowered(found.data, found.precision, found.error, found.layers, tried)


async def _one(
    model: bytes,
    config: IBuilderConfig,
    precision: str,
    batches: Sequence[Batch],
    layers: list[Layer],
    execute: Execute,
    opset: int,
) -> Lowered:
    if precision == "f32":
        return Lowered(model, precision, 0.0, [])
    if opset < OLDEST.get(precision, 0):
        raise ShapeError(
            f"lower: {precision} needs opset {OLDEST[precision]}, and the model has {opset}; export it again"
        )
    graph = read_model(model, "model").graph
    own, given = [port.name for port in graph.outputs], {port.name for port in graph.inputs}
    results = [layer.output for layer in layers if layer.output not in own]
    sources = sorted({layer.source for layer in layers} - given - {*own, *results})
    shown = [*own, *results, *sources]
    plain, _ = await execute(edited(model, Edit(shown=dict.fromkeys(shown[len(own) :], "f32"))), batches)
    ranges: dict[str, Range] = {layer.source: Range() for layer in layers}
    for batch, outs in zip(batches, plain, strict=True):
        values = {**{name: np.asarray(batch[name]) for name in given}, **dict(zip(shown, outs, strict=True))}
        for name, one in ranges.items():
            one.add(values[name])
    limits = {name: one.limits(config) for name, one in ranges.items()}
    edit = lowered_edit(layers, precision, limits, config.symmetric)
    edit.shown = dict.fromkeys(results, "f32")
    lowered, _ = await execute(edited(model, edit), batches)
    edit.shown = {}
    data = edited(model, edit)
    final, _ = await execute(data, batches)
    error = max(_error([outs[at] for outs in final], [outs[at] for outs in plain]) for at in range(len(own)))
    costs = []
    for layer in layers:
        at = shown.index(layer.output)
        costs.append(LayerCost(layer.name, layer.op, _error([o[at] for o in lowered], [o[at] for o in plain])))
    return Lowered(data, precision, error, costs)


def _error(found: list[Array], expected: list[Array]) -> float:
    """``|a - b| / |b|`` over all batches."""
    parts = [(a.astype(np.float64), b.astype(np.float64)) for a, b in zip(found, expected, strict=True)]
    size = sum(float(np.sum(b * b)) for _, b in parts)
    return float(np.sqrt(sum(float(np.sum((a - b) ** 2)) for a, b in parts) / max(size, 1e-300)))
