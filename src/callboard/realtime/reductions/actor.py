"""``ReductionAnalysisActor``: sums, means and extremes of frames, also channel by channel, on a device."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from callboard.core.errors import ContextLost, ShapeError
from callboard.core.ref.handle import GpuRef
from callboard.device.client.handle import Device
from callboard.realtime.base.asking import Asked
from callboard.realtime.base.checks import count
from callboard.realtime.reductions import messages

__all__ = ["ReductionAnalysisActor", "ReductionKind"]

ReductionKind = Literal["sum", "mean", "min", "max", "arg_min", "arg_max"]
"""What is computed; ``"arg_min"`` and ``"arg_max"`` give the first index, as an integer."""
NAMES = {"arg_min": "argmin", "arg_max": "argmax"}
ATTEMPTS = 3
"""Contexts that a frame may lose before it fails."""


class ReductionAnalysisActor(Asked):
    """Reduces frames on a device. A lost device costs no frame of the host: it is sent and reduced again.

    ::

        analysis = cb.ReductionAnalysisActor(gpu)
        brightest = await analysis.reduce("max", frame)
        red, green, blue = await analysis.reduce_channels("mean", frame, 3)

    Sums and means of integers are exact; those of f32 are as exact as ``device.xp.sum`` is. A NaN is the result
    wherever it is among the data.

    Args:
        device: Open.

    Class attributes:
        Reduce, ReduceChannels: The messages that :meth:`ask` takes.

    Raises:
        TypeError: ``device`` is none.
    """

    Reduce: ClassVar = messages.Reduce
    ReduceChannels: ClassVar = messages.ReduceChannels

    def __init__(self, device: Device) -> None:
        super().__init__(device)

    async def reduce(self, kind: ReductionKind, data: Any) -> Any:
        """One number of all data: a NumPy scalar.

        Args:
            kind: See :data:`ReductionKind`.
            data: An array of the host, or on the device, of any shape; indices count its elements in C order.

        Raises:
            ShapeError: There are no data.
            TypeError: The data are no numbers.
            ValueError: No such kind.
        """
        return (await self.several([kind], data))[0]

    async def reduce_channels(self, kind: ReductionKind, data: Any, channels: int) -> NDArray[Any]:
        """One number for each channel, ``[channels]``.

        Args:
            kind: See :data:`ReductionKind`; indices count the items of a channel.
            data: Interleaved: item ``i`` of channel ``c`` is element ``i * channels + c``.
            channels: At least 1; divides the number of elements.
        """
        channels = count("channels", channels)
        size = int(np.prod(np.shape(data) if not isinstance(data, GpuRef) else data.shape))
        if size % channels:
            raise ShapeError(f"data has {size} elements, which {channels} channels do not divide")
        return np.asarray((await self.several([kind], data, channels))[0])

    async def several(self, kinds: Sequence[ReductionKind], data: Any, channels: int | None = None) -> list[Any]:
        """Some reductions of one frame, which is sent once.

        Args:
            kinds: See :data:`ReductionKind`.
            data: See :meth:`reduce`.
            channels: See :meth:`reduce_channels`; None: all elements are of one.
        """
        for kind in kinds:
            if kind not in get_args(ReductionKind):
                raise ValueError(f"kind is {kind!r}; use one of {', '.join(map(repr, get_args(ReductionKind)))}")
        sent = data if isinstance(data, GpuRef) else np.array(data, order="C")  # the caller may write to it
        if not isinstance(sent, GpuRef) and sent.dtype.kind not in "fiub":
            raise TypeError(f"data has dtype {sent.dtype}; pass real numbers")
        if 0 in sent.shape:
            raise ShapeError(f"data has shape {list(sent.shape)}; pass at least one element")
        for attempt in range(ATTEMPTS):
            try:
                return await self._reduced(kinds, sent, channels)
            except ContextLost:
                if attempt == ATTEMPTS - 1 or isinstance(sent, GpuRef):
                    raise
                await self._device.ready()
        raise AssertionError

    async def _reduced(self, kinds: Sequence[str], data: Any, channels: int | None) -> list[Any]:
        ref = data if isinstance(data, GpuRef) else self._device.put(data)
        frame: Any = ref.reshape(-1, channels) if channels else ref.reshape(-1)
        xp: Any = self._device.xp
        replies = [getattr(xp, NAMES.get(kind, kind))(frame, axis=0).get() for kind in kinds]
        found = [np.asarray(await reply) for reply in replies]
        return [one if channels else one[()] for one in found]

    @messages.Reduce.handles
    async def _on_reduce(self, m: messages.Reduce) -> Any:
        return await self.reduce(m.kind, m.data)

    @messages.ReduceChannels.handles
    async def _on_channels(self, m: messages.ReduceChannels) -> Any:
        return await self.reduce_channels(m.kind, m.data, m.channels)
