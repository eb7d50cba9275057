"""``MultiPassAnalysisActor``: several passes over each frame, which share what they compute, on a device."""

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from callboard.core.errors import ContextLost, ShapeError
from callboard.core.ref.handle import GpuRef
from callboard.device.client.handle import Device
from callboard.realtime.base.asking import Asked
from callboard.realtime.base.checks import count
from callboard.realtime.base.dag import ordered
from callboard.realtime.passes import messages
from callboard.realtime.passes.passes import AnalysisPass

__all__ = ["MultiPassAnalysisActor"]

ATTEMPTS = 3
"""Contexts that a frame may lose before it fails."""
SHAPES = 8
"""Recordings that are kept: one for each shape and dtype of frames."""
Roi = tuple[int, int, int, int]


class MultiPassAnalysisActor(Asked):
    """Runs passes over frames. A pass takes the frame and results of other passes, and each is computed once.

    ::

        analysis = cb.MultiPassAnalysisActor(
            gpu,
            {
                "smooth": cb.AnalysisPass(lambda gpu, frame: gpu.xp.multiply(frame, 0.5)),
                "peak": cb.AnalysisPass(lambda gpu, smooth: gpu.xp.max(smooth), ("smooth",)),
                "all": cb.frame_statistics(),
            },
            results=("peak", "all"),
        )
        found = await analysis.analyze(frame)
        print(found["peak"], found["all"].mean)

    The passes are recorded for the first frame of a shape and dtype, and replayed for the next ones. A lost device
    costs no frame of the host: it is sent and analysed again.

    Args:
        device: Open.
        passes: By name, in any order, or a sequence, whose names are its places: ``"0"``, ``"1"``. A function stands
            for a pass that takes the frame.
        results: Names of passes whose results come to the host; None: all.

    Class attributes:
        Analyze: The message that :meth:`ask` takes.

    Raises:
        TypeError, ValueError: An argument does not fit, an input is unknown, or passes take each other in a circle.
    """

    Analyze: ClassVar = messages.Analyze

    def __init__(
        self,
        device: Device,
        passes: Mapping[str, AnalysisPass | Callable[..., GpuRef]] | Sequence[AnalysisPass | Callable[..., GpuRef]],
        *,
        results: Sequence[str] | None = None,
    ) -> None:
        super().__init__(device)
        given = passes if isinstance(passes, Mapping) else {str(n): one for n, one in enumerate(passes)}
        if not given:
            raise ValueError("passes is empty; pass at least one")
        self._passes = {
            name: one if isinstance(one, AnalysisPass) else AnalysisPass(one) for name, one in given.items()
        }
        self._order = ordered("pass", {name: one.inputs for name, one in self._passes.items()}, ("frame",))
        self._results = tuple(self._passes if results is None else results)
        unknown = [name for name in self._results if name not in self._passes]
        if unknown or not self._results:
            raise ValueError(f"results has {unknown}; pass some of {', '.join(map(repr, self._passes))}")
        self._generation = -1
        self._recorded: dict[tuple[Any, ...], tuple[GpuRef, Any]] = {}

    async def analyze(self, frame: Any, *, roi: Roi | None = None, tiles: tuple[int, int] | None = None) -> Any:
        """Run all passes on a frame.

        Args:
            frame: An array of the host, or on the device, with any shape; two axes first for ``roi`` and ``tiles``.
            roi: First row, end of the rows, first column, end of the columns: the passes see this part alone.
            tiles: Rows and columns of tiles, which are analysed each on its own; parts that do not divide evenly differ
                by one.

        Returns:
            A dict of results by name; with tiles, a list of rows of such dicts.

        Raises:
            ShapeError, TypeError, ValueError: It is no frame, or has no such part, or a pass does not take it.
        """
        sent = frame if isinstance(frame, GpuRef) else np.asarray(frame)
        if not isinstance(sent, GpuRef) and sent.dtype.kind not in "fiub":
            raise TypeError(f"frame has dtype {sent.dtype}; pass real numbers")
        if 0 in sent.shape or not sent.shape:
            raise ShapeError(f"frame has shape {list(sent.shape)}; pass at least one element")
        if (roi is not None or tiles is not None) and len(sent.shape) < 2:
            raise ShapeError(f"frame has shape {list(sent.shape)}; roi and tiles need rows and columns")
        if roi is not None:
            sent = sent[_part(sent.shape, roi)]
        if not isinstance(sent, GpuRef):
            sent = np.array(sent, order="C")  # the caller may write the next one into it
        if tiles is None:
            return await self._analyzed(sent)
        down, across = (count(f"tiles[{n}]", tiles[n], most=sent.shape[n]) for n in (0, 1))
        ys, xs = (
            [extent * n // many for n in range(many + 1)]
            for extent, many in zip(sent.shape, (down, across), strict=False)
        )
        cells = [[sent[y:yy, x:xx] for x, xx in itertools.pairwise(xs)] for y, yy in itertools.pairwise(ys)]
        found = iter(await asyncio.gather(*(self._analyzed(cell) for row in cells for cell in row)))
        return [[next(found) for _ in row] for row in cells]

    async def _analyzed(self, frame: Any) -> dict[str, Any]:
        found: list[Any] = []
        for attempt in range(ATTEMPTS):
            try:
                replies = self._replayed(frame)
                found = [np.asarray(await reply) for reply in replies]
                break
            except ContextLost:
                if attempt == ATTEMPTS - 1 or isinstance(frame, GpuRef):
                    raise
                await self._device.ready()
        finishes = [self._passes[name].finish for name in self._results]
        return {
            name: array[()] if finish is None else finish(array)
            for name, array, finish in zip(self._results, found, finishes, strict=True)
        }

    def _replayed(self, frame: Any) -> list[Any]:
        """Replies with the results, in the order of their names."""
        device = self._device
        if self._generation != device.generation:
            self._generation, self._recorded = device.generation, {}
        key = frame.shape, str(frame.dtype)
        if key not in self._recorded:
            if len(self._recorded) == SHAPES:
                del self._recorded[next(iter(self._recorded))]
            self._recorded[key] = self._record(frame)
        target, recording = self._recorded[key]
        if isinstance(frame, GpuRef):
            device.copy(frame, out=target)
            refs = recording.replay()
        else:
            refs = recording.replay(frame=np.ascontiguousarray(frame))
        return [ref.get() for ref in (refs if isinstance(refs, tuple) else (refs,))]

    def _record(self, frame: Any) -> tuple[GpuRef, Any]:
        device = self._device
        target = device.zeros(frame.shape, frame.dtype)
        found: dict[str, GpuRef] = {"frame": target}
        with device.record(frame=target) as recording:
            for name in self._order:
                one = self._passes[name]
                found[name] = one.run(device, *(found[taken] for taken in one.inputs))
                if not isinstance(found[name], GpuRef):
                    raise TypeError(f"pass {name!r} returned {found[name]!r:.80}; return a ref, without await")
            recording.returns(*(found[name] for name in self._results))
        return target, recording

    @messages.Analyze.handles
    async def _on_analyze(self, m: messages.Analyze) -> Any:
        return await self.analyze(m.frame, roi=m.roi, tiles=m.tiles)


def _part(shape: tuple[int, ...], roi: Roi) -> tuple[slice, slice]:
    y0, y1, x0, x1 = (count(f"roi[{n}]", value, least=0) for n, value in enumerate(roi))
    if not (y0 < y1 <= shape[0] and x0 < x1 <= shape[1]):
        raise ShapeError(f"roi is {roi}; pass (top, bottom, left, right) inside the frame of {shape[0]} by {shape[1]}")
    return slice(y0, y1), slice(x0, x1)
