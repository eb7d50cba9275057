"""``CpuImage``: ``device.image`` on the CPU, with NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.stream import CpuStream
from callboard.backends.cpu.views import viewer
from callboard.core.backend import Status
from callboard.core.library import Library, launches, prepares
from callboard_image.messages import Grayscale

__all__ = ["CpuImage"]

Viewer = Callable[[int], "np.ndarray[Any, Any]"]
WEIGHTS = np.array([0.2126, 0.7152, 0.0722], "f4")


class CpuImage(Library):
    """Executes the messages of :mod:`callboard_image.messages`."""

    name = "image"

    @prepares(Grayscale, inline=True)
    def plan_grayscale(self, op: Grayscale) -> tuple[Viewer, Viewer]:
        """Views of the image and of the result, by address."""
        return viewer(op.image.layout), viewer(op.infer()["out"])

    @launches(Grayscale)
    def grayscale(self, stream: CpuStream, plan: tuple[Viewer, Viewer], image: int, out: int) -> Status:
        """Enqueue the product on the stream's thread; the address of each array comes with the call."""
        view_image, view_out = plan
        return stream.run(self.name, np.matmul, view_image(image), WEIGHTS, view_out(out))
