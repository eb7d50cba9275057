"""Pooling on a GPU, by cuDNN's C interface: its graph interface has none."""

from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.dnn.legacy import INT, PTR, Destroyed, ints, scaling
from callboard.core.library import Entry
from callboard.kernel.dnn.layouts import channels_first
from callboard.kernel.dnn.pooling import AvgPool, windows_of

if TYPE_CHECKING:
    from callboard.backends.cuda.dnn.library import CudaDnn
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["TABLE"]

INCLUDE_PAD, EXCLUDE_PAD, PROPAGATE_NAN = 1, 2, 1


class Average:
    """A plan: ``plan(stream, x, out)``."""

    def __init__(self, library: "CudaDnn", op: AvgPool) -> None:
        self._destroyed = Destroyed()
        made = op.infer()["out"] if op.out is None else op.out.layout
        self._empty = not made.size
        if self._empty:
            return
        cudnn, windows = library.cudnn, windows_of(op, op.x.ndim - 2)
        x, out = channels_first(op.x.layout, op.layout), channels_first(made, op.layout)
        more = x.ndim == 3  # cuDNN has no pooling along one axis only
        window = (*windows.extent, *[1] * more)
        padding = (*(before for before, _ in windows.padding), *[0] * more)
        stride = (*windows.stride, *[1] * more)
        self._one, self._zero = scaling(x.dtype)
        self._x, self._out = cudnn.packed(x), cudnn.packed(out)
        self._pooling = cudnn.descriptor("Pooling", self._destroyed)
        mode = INCLUDE_PAD if op.count_include_pad else EXCLUDE_PAD
        set_pooling = cudnn.plain("cudnnSetPoolingNdDescriptor", PTR, INT, INT, INT, PTR, PTR, PTR)
        set_pooling(self._pooling, mode, PROPAGATE_NAN, len(window), ints(window), ints(padding), ints(stride))
        self._forward = cudnn.function("cudnnPoolingForward", PTR, PTR, PTR, PTR, PTR, PTR, PTR)

    def __call__(self, stream: "CudaStream", x: int, out: int) -> None:
        if not self._empty:
            self._forward(stream, self._pooling, self._one, self._x, x, self._zero, self._out, out)

    def close(self) -> None:
        self._destroyed.close()


def refuses(op: Any) -> str | None:
    """CuDNN pads both sides of an axis alike."""
    if any(before != after for before, after in windows_of(op, op.x.ndim - 2).padding):
        return f"padding {op.padding!r} differs between the sides of an axis; pad the array first"
    return None


TABLE = {
    AvgPool: Entry(Average, refuses=refuses),
}
