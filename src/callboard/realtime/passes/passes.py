"""``AnalysisPass``: a function of a frame and of the results of other passes."""

from collections.abc import Callable
from typing import Any

import msgspec

from callboard.core.ref.handle import GpuRef

__all__ = ["AnalysisPass"]


class AnalysisPass(msgspec.Struct, frozen=True, eq=False):
    """A pass of an analysis.

    Attributes:
        run: Called with the device and one ref for each input, once for each shape of frames; calls ops, which are
            recorded, and returns the ref of what they compute, of any shape.
        inputs: ``"frame"``, and names of other passes.
        finish: Makes the result of the array on the host; None: the array is the result.
    """

    run: Callable[..., GpuRef]
    inputs: tuple[str, ...] = ("frame",)
    finish: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        if not callable(self.run):
            raise TypeError(f"run is {self.run!r:.80}; pass a function of a device and refs")
        given: Any = self.inputs
        if isinstance(given, str) or not all(isinstance(one, str) for one in given):
            raise TypeError(f"inputs is {self.inputs!r:.80}; pass a tuple of names")
