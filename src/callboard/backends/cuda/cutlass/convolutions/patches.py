"""Convolutions in steps: the images' patches, a product of cuBLASLt, and kernels of the epilogue."""

import ctypes
from collections.abc import Callable
from ctypes import c_int64, c_void_p
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.cutlass.engines import InSteps, Product, launcher, product_message
from callboard.backends.cuda.cutlass.rules import conv_factors
from callboard.core.layout import layout_of
from callboard.kernel.cutlass import Conv

if TYPE_CHECKING:
    from callboard.backends.cuda.cutlass.library import CudaCutlass
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["in_patches"]


class PatchArgs(ctypes.Structure):
    """``PatchArgs`` of ``data/cutlass.cu``."""

    _fields_ = (
        ("src", c_void_p),
        ("out", c_void_p),
        *((name, c_int64) for name in ("images", "h", "w", "c", "p", "q", "r", "s")),
        *((name, c_int64) for name in ("down", "right", "top", "left", "far", "wide")),
    )


def in_patches(library: "CudaCutlass", op: Conv) -> InSteps:
    """``fprop``, ``wgrad``: patches, product, epilogue. ``dgrad``: product, sums over patches, epilogue."""
    problem = op.problem()
    a, b, shape = conv_factors(op, problem)
    images, filters, small = op.shapes()
    spatial = (problem.result.shape if small is None else small)[1:3]
    args = PatchArgs(0, 0, *images, *spatial, *filters[1:3], *op.stride, *op.padding, *op.dilation)
    back = op.kind == "dgrad"
    message = product_message(a, b, layout_of(op.accumulated, shape))
    moved = (a if op.kind == "fprop" else b).nbytes  # the patches, or with dgrad their sums
    size = layout_of(op.accumulated, shape).nbytes if back else moved

    def make(sums: int, patches: int) -> tuple[Any, Callable[[], None], str]:
        items = problem.result.size if back else size // op.a.dtype.itemsize
        name = f"gathered_{op.accumulated.name}" if back else f"patches_{op.a.dtype.itemsize}"
        move = launcher(library, name, -(-items // 256), args)
        product = Product(library, message, patches if back else sums)

        def forward(stream: "CudaStream", dynamic: Any) -> None:
            x, w = dynamic[:2]
            args.src, args.out = (x if op.kind == "fprop" else w), patches
            move(stream.native)
            product(stream, *((patches, w) if op.kind == "fprop" else (x, patches)))

        def backward(stream: "CudaStream", dynamic: Any) -> None:
            product(stream, *dynamic[:2])
            args.src, args.out = patches, sums
            move(stream.native)

        return (backward if back else forward), product.close, "custom kernel: patches; cublaslt: the product"

    return InSteps(library, op, problem, (size,), make)
