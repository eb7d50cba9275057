"""Images with more padding on one side than on the other.

cuDNN 9.19 offers engines for the gradients of such convolutions that pad both sides by the number of one of them, and
return wrong numbers. The padding beyond the smaller side is therefore stored: cuDNN gets an image with those zeros,
padded equally.
"""

from typing import TYPE_CHECKING, NamedTuple

from callboard.backends.cuda.copies import copier
from callboard.backends.cuda.plans import PlanMemory
from callboard.core.layout import Layout, layout_of
from callboard.kernel.dnn.checks import DataLayout
from callboard.kernel.dnn.conv import Geometry

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["Widened", "WidenedImage", "is_even", "widened"]


class Widened(NamedTuple):
    """An image with zeros around it.

    Attributes:
        whole: Layout of the whole, row-major.
        inner: The layout of the image within it.
        offset: Bytes from its start to the image's.
        padding: Padding that remains to be applied, equal on both sides.
    """

    whole: Layout
    inner: Layout
    offset: int
    padding: tuple[tuple[int, int], ...]


def is_even(g: Geometry) -> bool:
    """True if both sides of each axis have equal padding."""
    return all(before == behind for before, behind in g.padding)


def widened(image: Layout, g: Geometry, layout: DataLayout) -> Widened:
    """The image of a convolution with the zeros that make its padding even."""
    alike = [min(pair) for pair in g.padding]
    more = [(before - n, behind - n) for (before, behind), n in zip(g.padding, alike, strict=True)]
    pairs = [(0, 0), (0, 0), *more] if layout == "NCHW" else [(0, 0), *more, (0, 0)]
    whole = layout_of(image.dtype, tuple(n + sum(pair) for n, pair in zip(image.shape, pairs, strict=True)))
    first = sum(before * step for (before, _), step in zip(pairs, whole.strides, strict=True))
    inner = layout_of(image.dtype, image.shape, whole.strides)
    return Widened(whole, inner, first * image.dtype.itemsize, tuple((n, n) for n in alike))


class WidenedImage:
    """A padded image in the memory of a plan.

    Args:
        memory: Memory of the plan.
        image: The layout of the image in the caller's array.
        wide: Layouts from :func:`widened`.
    """

    def __init__(self, memory: PlanMemory, image: Layout, wide: Widened) -> None:
        self._driver, self._wide = memory.device.driver, wide
        self._span = memory.take(wide.whole.nbytes)
        device: CudaDevice = memory.device
        self._bring = copier(device.driver, device.kernels, image, wide.inner)
        self._deliver = copier(device.driver, device.kernels, wide.inner, image)

    @property
    def address(self) -> int:
        """Address of the image with its zeros."""
        return self._span.ptr

    def fill(self, native: int, image: int) -> None:
        """Enqueue that it holds an image, and zeros around it."""
        driver, nbytes = self._driver, self._wide.whole.nbytes
        driver.check(driver.memset_8(self._span.ptr, 0, nbytes, native), "cuMemsetD8Async")
        self._bring(native, image, self._span.ptr + self._wide.offset)

    def deliver(self, native: int, image: int) -> None:
        """Enqueue the copy of its inner part."""
        self._deliver(native, self._span.ptr + self._wide.offset, image)
