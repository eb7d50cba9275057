"""Operations of ``dev.nvrtc``: user kernels in CUDA C++, compiled at run time."""

from callboard.kernel.exports import export_all as _export_all
from callboard.kernel.nvrtc.actor import *
from callboard.kernel.nvrtc.compile import *
from callboard.kernel.nvrtc.decorated import Kernel as Kernel
from callboard.kernel.nvrtc.decorated import kernel as kernel
from callboard.kernel.nvrtc.geometry import Geometry as Geometry
from callboard.kernel.nvrtc.geometry import LaunchSpec as LaunchSpec
from callboard.kernel.nvrtc.handles import KernelHandle as KernelHandle
from callboard.kernel.nvrtc.handles import Program as Program
from callboard.kernel.nvrtc.launch import *
from callboard.kernel.nvrtc.source import Compiled as Compiled
from callboard.kernel.nvrtc.source import Source as Source
from callboard.kernel.nvrtc.tensormap import TensorMap as TensorMap
from callboard.kernel.nvrtc.tensormap import tensor_map as tensor_map

_export_all(__name__)
