"""Operations of ``dev.nvrtc``: user kernels in CUDA C++, compiled at run time."""

from callboard.kernel.nvrtc.actor import NvrtcActor
from callboard.kernel.nvrtc.compile import Compile, Inspect, KernelAttributes, Occupancy
from callboard.kernel.nvrtc.decorated import Kernel, kernel
from callboard.kernel.nvrtc.geometry import Geometry, LaunchSpec
from callboard.kernel.nvrtc.handles import KernelHandle, Program
from callboard.kernel.nvrtc.launch import Launch
from callboard.kernel.nvrtc.source import Compiled, Source
from callboard.kernel.nvrtc.tensormap import TensorMap, tensor_map

__all__ = [
    "Compile",
    "Compiled",
    "Geometry",
    "Inspect",
    "Kernel",
    "KernelAttributes",
    "KernelHandle",
    "Launch",
    "LaunchSpec",
    "NvrtcActor",
    "Occupancy",
    "Program",
    "Source",
    "TensorMap",
    "kernel",
    "tensor_map",
]
