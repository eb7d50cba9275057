"""``Trials``: a model in some precisions, with some of its layers lowered, on the same batches."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from callboard.core.errors import ShapeError
from callboard.kernel.engine.onnxfile import Model
from callboard.kernel.engine.precision.calibrating import Range
from callboard.kernel.engine.precision.config import IBuilderConfig
from callboard.kernel.engine.precision.editing import Edit, edited
from callboard.kernel.engine.precision.layers import Layer, Scaled, factors_of, lowered_edit

__all__ = ["Batch", "Execute", "LayerCost", "Lowered", "Trials"]

Array = np.ndarray[Any, Any]
Batch = Mapping[str, Any]
Execute = Callable[[bytes, Sequence[Batch]], Awaitable["tuple[list[list[Array]], float]"]]
OLDEST = {"int8": 13, "fp8": 19}
"""Opsets that have scales for channels, and numbers of eight bits."""


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
        kept: For ``"best"``: names of the layers that stayed in f32 because they cost too much.
        tried: For ``"best"``: seconds of the batches and error by precision, or why it was refused.
    """

    data: bytes = field(repr=False)
    precision: str
    error: float
    layers: list[LayerCost]
    tried: dict[str, str] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)

    def explain(self) -> str:
        """Precision, error of the outputs, and of each layer, in lines."""
        lines = [f"{self.precision}: outputs differ from f32 by {self.error:.2e}, {len(self.layers)} layers lowered"]
        lines += [f"tried {precision}: {text}" for precision, text in self.tried.items()]
        lines += [f"kept in f32: {', '.join(self.kept)}"] if self.kept else []
        return "\n".join(lines + [f"{each.error:9.2e}  {each.op} {each.name}" for each in self.layers])


class Trials:
    """A model in some precisions, with some of its layers lowered, on the same batches.

    Args:
        model: An ONNX file in f32.
        config: Calibration.
        batches: Inputs by name.
        execute: Gives the outputs of a file for batches, and the seconds that they took.
        layers: The layers that may be lowered.
        read: The model, as it was read.
    """

    def __init__(
        self,
        model: bytes,
        config: IBuilderConfig,
        batches: Sequence[Batch],
        execute: Execute,
        layers: list[Layer],
        read: Model,
    ) -> None:
        self.model, self.config, self.batches, self.execute, self.layers = model, config, batches, execute, layers
        self._opset, graph = read.opset, read.graph
        own, given = [port.name for port in graph.outputs], {port.name for port in graph.inputs}
        self._given, self._own = given, len(own)
        self._results = [layer.output for layer in layers if layer.output not in own]
        sources = sorted({layer.source for layer in layers} - given - {*own, *self._results})
        self._shown = [*own, *self._results, *sources]
        self._plain: list[list[Array]] | None = None
        self._inputs: dict[str, dict[str, Scaled]] = {}

    async def plain(self) -> list[list[Array]]:
        """The outputs, and the values at the layers, in f32."""
        if self._plain is None:
            shown = dict.fromkeys(self._shown[self._own :], "f32")
            data = await asyncio.to_thread(edited, self.model, Edit(shown=shown))
            self._plain, _ = await self.execute(data, self.batches)
        return self._plain

    async def inputs(self, precision: str) -> dict[str, Scaled]:
        """Ranges and factors of the layers' inputs, by name; none for halves."""
        if precision not in OLDEST:
            return {}
        found = self._inputs.setdefault(precision, {})
        smooth = self.config.smooth if precision == "int8" else 0.0  # floats keep the digits of small channels
        for source in {layer.source for layer in self.layers} - found.keys():
            values = [
                np.asarray(batch[source]) if source in self._given else outs[self._shown.index(source)]
                for batch, outs in zip(self.batches, await self.plain(), strict=True)
            ]
            readers = [layer for layer in self.layers if layer.source == source]
            found[source] = await asyncio.to_thread(_scaled, values, readers, smooth, self.config)
        return found

    async def lowered(self, precision: str, layers: list[Layer], show: bool = False) -> tuple[bytes, list[list[Array]]]:
        """The model with these layers lowered, and its outputs; with ``show``, also those of all layers."""
        if self._opset < OLDEST.get(precision, 0):
            raise ShapeError(
                f"lower: {precision} needs opset {OLDEST[precision]}, and the model has {self._opset}; export it again"
            )
        inputs = await self.inputs(precision)

        def changed() -> bytes:
            edit = lowered_edit(layers, precision, inputs, self.config.symmetric)
            edit.shown = dict.fromkeys(self._results, "f32") if show else {}
            return edited(self.model, edit)

        data = await asyncio.to_thread(changed)
        outs, _ = await self.execute(data, self.batches)
        return data, outs

    async def error(self, outs: list[list[Array]]) -> float:
        """The largest error of an output."""
        plain = await self.plain()
        own = range(self._own)
        return await asyncio.to_thread(lambda: max(_error(_at(outs, at), _at(plain, at)) for at in own))

    async def told(self, precision: str, layers: list[Layer]) -> Lowered:
        """The model with these layers lowered, and what each of them costs."""
        if precision == "f32":
            return Lowered(self.model, precision, 0.0, [])
        data, outs = await self.lowered(precision, layers)
        _, shown = await self.lowered(precision, layers, show=True)
        plain, costs = await self.plain(), []
        for layer in layers:
            at = self._shown.index(layer.output)
            error = await asyncio.to_thread(_error, _at(shown, at), _at(plain, at))
            costs.append(LayerCost(layer.name, layer.op, error))
        kept = [layer.name for layer in self.layers if layer not in layers]
        return Lowered(data, precision, await self.error(outs), costs, kept=kept)

    async def within(self, precision: str) -> Lowered:
        """With as many layers lowered as the tolerance allows: those that cost most alone stay in f32."""
        every = await self.told(precision, self.layers)
        if every.error <= self.config.tolerance or precision != "int8":
            return every
        alone = []
        for layer in self.layers:
            _, outs = await self.lowered(precision, [layer])
            alone.append((await self.error(outs), layer.at))
        order = [at for _, at in sorted(alone, reverse=True)]

        def without(count: int) -> list[Layer]:
            return [layer for layer in self.layers if layer.at not in order[:count]]

        enough, too_few = len(order), 0
        while enough - too_few > 1:
            middle = (enough + too_few) // 2
            _, outs = await self.lowered(precision, without(middle))
            if await self.error(outs) <= self.config.tolerance:
                enough = middle
            else:
                too_few = middle
        return every if enough == len(order) else await self.told(precision, without(enough))


def _scaled(values: list[Array], readers: list[Layer], smooth: float, config: IBuilderConfig) -> Scaled:
    """What is known of an input of layers, by its values in all batches."""
    largest = None
    if smooth and all(layer.inner is not None for layer in readers):
        largest = np.max([np.abs(each).reshape(-1, each.shape[-1]).max(0) for each in values], axis=0)
    factors, one = factors_of(readers, largest, smooth), Range()
    for each in values:
        one.add(each if factors is None else each / factors)
    return Scaled(one.limits(config), factors)


def _at(outs: list[list[Array]], number: int) -> list[Array]:
    return [each[number] for each in outs]


def _error(found: list[Array], expected: list[Array]) -> float:
    """``|a - b| / |b|`` over all batches."""
    parts = [(a.astype(np.float64), b.astype(np.float64)) for a, b in zip(found, expected, strict=True)]
    size = sum(float(np.sum(b * b)) for _, b in parts)
    return float(np.sqrt(sum(float(np.sum((a - b) ** 2)) for a, b in parts) / max(size, 1e-300)))
