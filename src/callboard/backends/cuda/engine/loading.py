"""The CUDA build of ONNX Runtime, and the libraries of NVIDIA that it needs."""

import contextlib
import ctypes
from pathlib import Path
from typing import Any

from callboard.core.errors import BackendUnavailable

__all__ = ["PROVIDER", "load_runtime", "not_opened"]

PROVIDER = "CUDAExecutionProvider"
CURE = (
    "install its CUDA build: pip uninstall onnxruntime, then pip install 'callboard[onnx-cuda13]' (both are the module "
    'onnxruntime); or use engine="callboard"'
)
NEEDED = ("cudart", "nvrtc", "cublasLt", "cublas", "curand", "cufft", "cudnn")
"""By cuda.pathfinder's names. ONNX Runtime itself looks for them on the system's path only."""


def load_runtime() -> Any:
    """The module ``onnxruntime``, with the libraries that its CUDA provider needs in this process.

    Raises:
        BackendUnavailable: It is not installed, or a build without CUDA.
    """
    try:
        import onnxruntime
    except ImportError as e:
        raise BackendUnavailable(f"ONNX Runtime is not installed; {CURE}") from e
    if PROVIDER not in onnxruntime.get_available_providers():
        raise BackendUnavailable(f"ONNX Runtime {onnxruntime.__version__} is a build without CUDA; {CURE}")
    _load_libraries()
    onnxruntime.set_default_logger_severity(4)
    return onnxruntime


def not_opened(runtime: Any) -> BackendUnavailable:
    """A session has no CUDA provider although the build has one: what that lacks."""
    why = _missing(runtime)
    return BackendUnavailable(
        f"the CUDA provider of ONNX Runtime {runtime.__version__} cannot be loaded{why and f': {why}'}; it needs the "
        "CUDA libraries of the version that it was built for, and cuDNN 9: pip install 'callboard[onnx-cuda13]'; or "
        'use engine="callboard"'
    )


def _load_libraries() -> None:
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib
    except ImportError:
        return
    for name in NEEDED:
        with contextlib.suppress(Exception):  # pathfinder's own; what is missing shows when a session is opened
            load_nvidia_dynamic_lib(name)


def _missing(runtime: Any) -> str:
    """What the dynamic linker says of the provider; empty if nothing."""
    folder = Path(runtime.__file__).parent / "capi"
    try:
        for name in ("shared", "cuda"):
            ctypes.CDLL(str(folder / f"libonnxruntime_providers_{name}.so"), ctypes.RTLD_GLOBAL)
    except OSError as e:
        return str(e)
    return ""
