"""``CudaImage``: ``device.image`` on CUDA, with one kernel that NVRTC compiles when the op is first asked for."""

import ctypes
from collections.abc import Callable
from typing import Any

from callboard.backends.cuda.launching import THREADS, kernel_launcher, linear_grid
from callboard.core.library import Library, launches, prepares
from callboard_image.messages import Grayscale

__all__ = ["CudaImage"]

SOURCE = b"""
struct Args { const float *image; float *out; long long count; };

extern "C" __global__ void grayscale(const Args args) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < args.count; i += gridDim.x * blockDim.x) {
        const float *p = args.image + 3 * i;
        args.out[i] = 0.2126f * p[0] + 0.7152f * p[1] + 0.0722f * p[2];
    }
}
"""


class Args(ctypes.Structure):
    """``Args`` of the kernel."""

    _fields_ = (("image", ctypes.c_void_p), ("out", ctypes.c_void_p), ("count", ctypes.c_longlong))


class CudaImage(Library):
    """Executes the messages of :mod:`callboard_image.messages`."""

    name = "image"

    @prepares(Grayscale)
    def plan_grayscale(self, op: Grayscale) -> tuple[Args, Callable[[int], None]]:
        """The kernel, compiled, with its arguments; runs once for each shape."""
        device: Any = self.device
        args = Args(count=op.infer()["out"].size)
        function = device.kernels.compile("image", SOURCE, "grayscale")
        return args, kernel_launcher(device.driver, function, linear_grid(args.count), (THREADS, 1), args)

    @launches(Grayscale)
    def grayscale(self, stream: Any, plan: tuple[Args, Callable[[int], None]], image: int, out: int) -> None:
        """Enqueue the kernel on the stream that is given."""
        args, launch = plan
        args.image, args.out = image, out
        if args.count:
            launch(stream.native)
