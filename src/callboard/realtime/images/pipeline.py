"""``ImageFilterPipeline``: a chain of filters on a device."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple, cast, get_args

import numpy as np
from numpy.typing import NDArray

from callboard.core.errors import ContextLost, ShapeError
from callboard.core.ref.handle import GpuRef
from callboard.device.client.handle import Device
from callboard.realtime.base.asking import Asked
from callboard.realtime.base.checks import count, number
from callboard.realtime.base.cpu.recycled import Recycled
from callboard.realtime.base.live import fetched, lent
from callboard.realtime.images import messages
from callboard.realtime.images.kernels import SHAPES, across, correlated, down, split
from callboard.realtime.images.plain import BORDERS
from callboard.realtime.images.separation import Stage, stage_of

__all__ = ["Border", "ImageFilterPipeline", "ImageLayout", "Roi"]

Border = Literal["constant", "replicate", "reflect", "wrap", "mirror"]
"""What is beyond the edge of ``abcd``: ``000|abcd|000`` (or another constant), ``aaa|abcd|ddd``, ``cba|abcd|dcb``,
``bcd|abcd|abc``, ``dcb|abcd|cba`` (which OpenCV calls reflect 101)."""
ImageLayout = Literal["NHWC", "NCHW"]
"""Where channels are: last, as of OpenCV and Pillow, or before rows and columns, as of PyTorch and ONNX."""
Roi = tuple[int, int, int, int]
"""First row, end of the rows, first column, end of the columns."""
DTYPES = "uint8", "uint16", "float32"
TYPES = frozenset(map(np.dtype, DTYPES))
TWO_LAUNCHES_FROM = 7
"""Extent from which the two passes of a separable kernel are two launches of a GPU."""
ATTEMPTS = 3
"""Contexts that a frame may lose before it fails."""
_CURES = "; channels first: ImageFilterPipeline(..., layout='NCHW')", "; channels last: leave out layout='NCHW'"


class ImageFilterPipeline(Asked):
    """Correlates images with kernels, one after the other. A lost device costs no frame: it is filtered again.

    ::

        blur = cb.ImageFilterPipeline(gpu, np.full((5, 5), 1 / 25), border="reflect")
        smooth = await blur.process(photo)

    Sums are in f32. The result of each stage is rounded to the nearest integer, at a half to the even one, and kept
    within the range of the dtype, as OpenCV does. Kernels that are an outer product run in two passes, of a row and
    a column.
    A kernel is not turned: ``kernel[::-1, ::-1]`` makes a convolution of the correlation.

    Args:
        device: Open.
        kernels: One kernel ``[k, k]``, or a sequence of them; odd extents.
        border: Of all stages.
        fill: The constant beyond the edge with ``border="constant"``.
        layout: Of images and results. ``"NCHW"`` is turned on the way in and out, which is a copy each.

    Class attributes:
        Process, ProcessGpu, UpdateKernel: The messages that :meth:`ask` takes.

    Raises:
        ShapeError, TypeError, ValueError: An argument does not fit.
    """

    Process: ClassVar = messages.Process
    ProcessGpu: ClassVar = messages.ProcessGpu
    UpdateKernel: ClassVar = messages.UpdateKernel

    def __init__(
        self,
        device: Device,
        kernels: Any,
        *,
        border: Border = "constant",
        fill: float = 0.0,
        layout: ImageLayout = "NHWC",
    ) -> None:
        super().__init__(device)
        if border not in BORDERS:
            raise ValueError(f"border is {border!r}; use one of {', '.join(map(repr, BORDERS))}")
        if layout not in get_args(ImageLayout):
            raise ValueError(f"layout is {layout!r}; use 'NHWC' or 'NCHW'")
        self._first = layout == "NCHW"
        if isinstance(kernels, str) or not hasattr(kernels, "__len__"):
            raise TypeError(f"kernels is {kernels!r:.80}; pass a kernel [k, k], or a sequence of them")
        several = [kernels] if np.ndim(kernels[0] if len(kernels) else kernels) < 2 else list(kernels)
        self._stages = [stage_of(f"kernels[{n}]", one) for n, one in enumerate(several)]
        self._border, self._fill = BORDERS[border], number("fill", fill)
        self._weights: list[_Weights] = []
        self._generation = -1
        self._copies = Recycled()

    async def process(self, image: Any, *, roi: Roi | None = None) -> NDArray[Any]:
        """Filter an image of the host.

        Args:
            image: ``[h, w]``, ``[h, w, c]`` with 1 to 4 channels, or a batch ``[b, h, w, c]``; u8, u16 or f32. With
                the layout ``"NCHW"``: ``[h, w]``, ``[c, h, w]`` or ``[b, c, h, w]``.
            roi: Filter and return a part only; its neighbours in the image count.

        Raises:
            ShapeError, TypeError, ValueError: It is no such image, or has no such part.
        """
        if isinstance(image, GpuRef):
            raise TypeError(
                f"image is on the device ({image.layout}); process_gpu takes it, and leaves the result there"
            )
        array = np.asarray(image)
        turned = self._first and array.ndim > 2
        if turned:
            array = np.moveaxis(array, -3, -1)
        shape = _shape_of(array, self._first)
        whole = array.reshape(shape)
        part, inner = self._part(shape, roi)
        sent = self._copies.copy(whole[:, part[0], part[1]])  # the caller may write the next one into it
        found = await self._found(sent)
        found = found[:, inner[0], inner[1]]
        found = found[0, :, :, 0] if array.ndim == 2 else found[0] if array.ndim == 3 else found
        return np.ascontiguousarray(np.moveaxis(found, -1, -3)) if turned else found

    async def _found(self, sent: NDArray[Any]) -> NDArray[Any]:
        losses = 0
        while True:
            try:
                return await fetched(self._device, self._filtered(lent(self._device, sent)))
            except ContextLost:
                self._generation = -1  # the weights are lost, too
                losses += 1
                if losses == ATTEMPTS:
                    raise

    def process_gpu(self, image: GpuRef) -> GpuRef:
        """Filter an image that is on the device; the result stays there. It returns at once, as every op.

        The first call puts the kernels on the device, which a recording cannot: filter an image before you record.

        Args:
            image: As for :meth:`process`, without gaps.
        """
        if not isinstance(image, GpuRef):
            raise TypeError(f"image is {type(image).__name__}; process takes images of the host")
        axes = len(image.shape)
        if not self._first or axes == 2:
            return self._filtered(image.reshape(_shape_of(image, self._first))).reshape(image.shape)
        xp, ahead = self._device.xp, range(axes - 3)
        last = self._device.copy(xp.permute_dims(image, (*ahead, axes - 2, axes - 1, axes - 3)))
        found = self._filtered(last.reshape(_shape_of(last, True))).reshape(last.shape)
        return self._device.copy(xp.permute_dims(found, (*ahead, axes - 1, axes - 3, axes - 2)))

    def update_kernel(self, kernel: Any, stage: int = 0) -> None:
        """Filter with another kernel from the next image on.

        Args:
            kernel: Odd extents.
            stage: Which one it replaces.
        """
        at = count("stage", stage, least=0, most=len(self._stages) - 1) if len(self._stages) > 1 or stage else 0
        self._stages[at] = stage_of("kernel", kernel)
        self._generation = -1

    @property
    def kernels(self) -> Sequence[NDArray[np.float32]]:
        """The present kernels."""
        return [stage.weights.copy() for stage in self._stages]

    @messages.Process.handles
    async def _on_process(self, m: messages.Process) -> Any:
        return await self.process(m.image, roi=m.roi)

    @messages.ProcessGpu.handles
    async def _on_process_gpu(self, m: messages.ProcessGpu) -> Any:
        return await self.process_gpu(m.image)

    @messages.UpdateKernel.handles
    async def _on_update(self, m: messages.UpdateKernel) -> None:
        self.update_kernel(m.kernel, m.stage)

    def _filtered(self, image: GpuRef) -> GpuRef:
        if self._generation != self._device.generation:
            self._generation, self._weights = self._device.generation, [self._put(one) for one in self._stages]
        for stage, weights in zip(self._stages, self._weights, strict=True):
            if weights.pair is not None and (len(stage.row), image.shape[-1]) in SHAPES:
                image = split(image, weights.pair, self._border, self._fill)
            elif weights.row is not None:
                first = across(image, weights.row, self._border, self._fill)
                beyond = self._fill * float(stage.row.sum())
                target = self._device.empty(image.shape, image.dtype)
                image = down(first, weights.column, target, self._border, beyond)
            else:
                image = correlated(image, weights.whole, self._border, self._fill)
        return image

    def _put(self, stage: Stage) -> "_Weights":
        put, (ky, kx) = self._device.put, stage.weights.shape
        whole = put(stage.weights)
        if not stage.row.size or self._device.backend == "cpu":  # where each filter finds that out
            return _Weights(whole)
        if ky == kx < TWO_LAUNCHES_FROM:
            return _Weights(whole, pair=put(np.stack([stage.column, stage.row])))
        if max(ky, kx) < TWO_LAUNCHES_FROM or min(ky, kx) == 1:
            return _Weights(whole)
        return _Weights(whole, column=put(stage.column[:, None]), row=put(stage.row[None]))

    def _part(self, shape: tuple[int, ...], roi: Roi | None) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
        """The part of the image that is needed, and where the result is in it."""
        if roi is None:
            return (slice(None), slice(None)), (slice(None), slice(None))
        _, h, w, _ = shape
        y0, y1, x0, x1 = (count(f"roi[{n}]", value, least=0) for n, value in enumerate(roi))
        if not (y0 < y1 <= h and x0 < x1 <= w):
            raise ShapeError(f"roi is {roi}; pass (top, bottom, left, right) inside the image of {h} by {w}")
        needed: list[slice] = []
        inner: list[slice] = []
        for axis, (start, end, extent) in enumerate(((y0, y1, h), (x0, x1, w))):
            radius = sum(stage.weights.shape[axis] // 2 for stage in self._stages)
            low, high = max(0, start - radius), min(extent, end + radius)
            if self._border == BORDERS["wrap"] and (start < radius or end + radius > extent):
                low, high = 0, extent  # the other side counts
            needed.append(slice(low, high))
            inner.append(slice(start - low, end - low))
        return (needed[0], needed[1]), (inner[0], inner[1])


class _Weights(NamedTuple):
    """A stage's weights on the device.

    Attributes:
        whole: All of them.
        pair: The column and the row, f32 ``[2, k]``, for one launch.
        column, row: For a launch each.
    """

    whole: GpuRef
    pair: GpuRef | None = None
    column: GpuRef | None = None
    row: GpuRef | None = None


def _shape_of(image: Any, first: bool) -> tuple[int, int, int, int]:
    """As ``[b, h, w, c]``; ``first``: the caller has channels first, and they have been moved."""
    shape = tuple(image.shape)
    dtype = image.dtype.np if isinstance(image, GpuRef) else image.dtype
    if dtype not in TYPES and dtype.name not in DTYPES:  # as of another byte order
        raise TypeError(f"image has dtype {dtype.name}; pass one of {', '.join(DTYPES)}, such as image.astype('f4')")
    if not 2 <= len(shape) <= 4 or (len(shape) > 2 and not 1 <= shape[-1] <= 4) or 0 in shape:
        given = [*shape[:-3], shape[-1], *shape[-3:-1]] if first and len(shape) > 2 else list(shape)
        wanted = "[c, h, w] or [b, c, h, w]" if first else "[h, w, c] or [b, h, w, c]"
        cure = _CURES[first] if len(shape) in (3, 4) and given[-1 if first else -3] <= 4 else ""
        raise ShapeError(f"image has shape {given}; pass [h, w], {wanted}, 1 to 4 channels, no extent 0{cure}")
    full = (1, *shape, 1) if len(shape) == 2 else (1, *shape) if len(shape) == 3 else shape
    return cast(tuple[int, int, int, int], full)
