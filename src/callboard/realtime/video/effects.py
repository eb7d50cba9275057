"""Effects: functions of frames on a device, with the names of what they take."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from callboard.core.errors import ShapeError
from callboard.core.ref.handle import GpuRef
from callboard.device.client.handle import Device
from callboard.realtime.base.checks import count, number
from callboard.realtime.base.fields import Limits, check_fields
from callboard.realtime.images.pipeline import ImageFilterPipeline
from callboard.realtime.video import kernels

__all__ = ["Effect", "blend", "blur", "edge", "grayscale", "merge", "threshold", "trail"]


class Effect(msgspec.Struct, frozen=True, eq=False):
    """A node of a graph.

    Attributes:
        run: Called with the device and one ref for each input; enqueues ops and returns the ref of the result, without
            waiting. With ``past``, it gets a tuple for each input: the present frame, the one before, and so on; at the
            start of a video, the first frame stands for those before it.
        inputs: Names of other nodes or of the graph's inputs; none: the node before.
        past: Frames before the present one that it takes.
    """

    run: Callable[..., GpuRef]
    inputs: tuple[str, ...] = ()
    past: Annotated[int, Limits(least=0, most=1024)] = 0

    def __post_init__(self) -> None:
        if not callable(self.run):
            raise TypeError(f"run is {self.run!r:.80}; pass a function of a device and refs")
        given: Any = self.inputs
        if isinstance(given, str) or not all(isinstance(one, str) for one in given):
            raise TypeError(f"inputs is {self.inputs!r:.80}; pass a tuple of names")
        check_fields(self)


class Own(Effect, frozen=True, eq=False):
    """An effect of this module. It gives a new array, keeps no ref after its call, and writes to none that it gets."""


def grayscale(*inputs: str) -> Effect:
    """Brightness in each colour."""

    def run(device: Device, frame: GpuRef) -> GpuRef:
        gray: GpuRef = kernels.gray(frame.reshape(-1, _pixels(frame)[2]))
        return gray.reshape(frame.shape)

    return Own(run, inputs)


def edge(*inputs: str) -> Effect:
    """Size of the brightness's gradient, by Sobel's kernels."""
    return Own(lambda device, frame: kernels.edges(frame.reshape(_pixels(frame))).reshape(frame.shape), inputs)


def threshold(level: float, high: float = 255.0, *inputs: str) -> Effect:
    """``high`` where a number is above the level, and 0 elsewhere."""
    low, top = number("level", level), number("high", high)

    def run(device: Device, frame: GpuRef) -> GpuRef:
        limited: GpuRef = kernels.limited(frame.reshape(-1), low, top)
        return limited.reshape(frame.shape)

    return Own(run, inputs)


def blur(size: int = 5, *inputs: str, sigma: float | None = None) -> Effect:
    """A Gaussian of ``size`` by ``size`` pixels, odd, by the kernels of :class:`.ImageFilterPipeline`."""
    extent = count("size", size, most=255)
    width = 0.3 * ((extent - 1) * 0.5 - 1) + 0.8 if sigma is None else number("sigma", sigma, above=0.0)
    line = np.exp(-((np.arange(extent) - extent // 2) ** 2) / (2 * width**2))
    return filtered(np.outer(line, line) / line.sum() ** 2, *inputs)


def filtered(weights: Any, *inputs: str) -> Effect:
    """Any kernel of :class:`.ImageFilterPipeline`; what is beyond the edge is mirrored."""
    pipelines: dict[Device, ImageFilterPipeline] = {}

    def run(device: Device, frame: GpuRef) -> GpuRef:
        if device not in pipelines:
            pipelines[device] = ImageFilterPipeline(device, weights, border="mirror")
        return pipelines[device].process_gpu(frame)

    return Own(run, inputs)


def blend(first: str, second: str, weight: float = 0.5) -> Effect:
    """``weight`` of the first, and the rest of the second."""
    part = number("weight", weight, least=0.0, most=1.0)
    return Own(lambda device, a, b: _combined(a, b, part, 1 - part, 0), (first, second))


def merge(first: str, second: str, mode: Literal["add", "max", "difference"] = "add") -> Effect:
    """Two frames as one, number by number."""
    modes = {"add": 0, "max": 1, "difference": 2}
    if mode not in modes:
        raise ValueError(f"mode is {mode!r}; use one of {', '.join(map(repr, modes))}")
    return Own(lambda device, a, b: _combined(a, b, 1.0, 1.0, modes[mode]), (first, second))


def trail(frames: int = 4, *inputs: str, decay: float = 0.6) -> Effect:
    """Past frames shine through: each one is ``decay`` of what was before it, and the rest itself."""
    part = number("decay", decay, least=0.0, most=1.0)

    def run(device: Device, past: tuple[GpuRef, ...]) -> GpuRef:
        found = past[-1]
        for frame in past[-2::-1]:
            found = _combined(found, frame, part, 1 - part, 0)
        return found

    return Own(run, inputs, count("frames", frames))


def _combined(a: GpuRef, b: GpuRef, wa: float, wb: float, mode: int) -> GpuRef:
    if a.shape != b.shape or a.dtype != b.dtype:
        raise ShapeError(f"frames are {a.layout} and {b.layout}; blend and merge take frames of one shape and dtype")
    combined: GpuRef = kernels.combined(a.reshape(-1), b.reshape(-1), wa, wb, mode)
    return combined.reshape(a.shape)


def _pixels(frame: GpuRef) -> tuple[int, int, int]:
    """As ``[h, w, c]``."""
    shape = frame.shape if len(frame.shape) == 3 else (*frame.shape, 1)
    if len(shape) != 3:
        raise ShapeError(f"a frame has shape {list(frame.shape)}; effects take [h, w] or [h, w, c]")
    return shape[0], shape[1], shape[2]
