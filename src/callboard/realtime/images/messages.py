"""Messages of :class:`.ImageFilterPipeline`."""

from typing import TYPE_CHECKING, Any

from callboard.actors import Request

if TYPE_CHECKING:
    from callboard.realtime.images.pipeline import ImageFilterPipeline  # noqa: F401 -- in the types below

__all__ = ["Process", "ProcessGpu", "UpdateKernel"]


class Process(Request["ImageFilterPipeline", Any]):
    """Filter an image of the host; see :meth:`.ImageFilterPipeline.process`."""

    image: Any
    roi: tuple[int, int, int, int] | None = None


class ProcessGpu(Request["ImageFilterPipeline", Any]):
    """Filter an image on the device; see :meth:`.ImageFilterPipeline.process_gpu`."""

    image: Any


class UpdateKernel(Request["ImageFilterPipeline", None]):
    """Replace a kernel; see :meth:`.ImageFilterPipeline.update_kernel`."""

    kernel: Any
    stage: int = 0
