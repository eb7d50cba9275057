"""Plans of TensorRT and TensorRT-RTX: built, described and refused in a child process."""

from callboard.kernel.engine.trt.runtime import TrtBuild as TrtBuild
from callboard.kernel.engine.trt.runtime import TrtRuntime as TrtRuntime

__all__ = ["TrtBuild", "TrtRuntime"]
