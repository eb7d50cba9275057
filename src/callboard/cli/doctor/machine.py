"""Findings without a context host: packages, NVIDIA's driver, limits."""

import contextlib
import ctypes
import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

from callboard.cli.doctor.findings import Finding

__all__ = ["PACKAGES", "driver", "has_nvidia_gpu", "limits", "packages", "system"]

PACKAGES = (
    *("callboard", "numpy", "scipy", "msgspec", "ml-dtypes", "cloudpickle", "threadpoolctl", "uvloop"),
    *("cuda-bindings", "cuda-pathfinder", "nvmath-python", "nvidia-cublas", "nvidia-cublas-cu12"),
    *("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", "cutensor-cu13", "cutensor-cu12"),
    *("nvidia-cudss-cu13", "nvidia-cudss-cu12", "cupy-cuda13x", "cupy-cuda12x", "torch"),
)


def system() -> dict[str, str]:
    """The operating system and the interpreter."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "python": platform.python_version(),
        "executable": sys.executable,
    }


def packages() -> dict[str, str | None]:
    """Versions of :data:`PACKAGES`; none is imported."""
    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def driver() -> Finding:
    """NVIDIA's driver, asked through NVML (``libcuda`` stays out of this process)."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as e:
        if not has_nvidia_gpu():
            return Finding(name="NVIDIA driver", error="not there, and no NVIDIA GPU either", needed=False)
        return Finding(name="NVIDIA driver", error=f"not there: {e}; install the driver of this machine's GPU")
    if status := nvml.nvmlInit_v2():
        return Finding(name="NVIDIA driver", error=f"does not answer (NVML error {status}); look at nvidia-smi")
    try:
        text, cuda = ctypes.create_string_buffer(96), ctypes.c_int()
        nvml.nvmlSystemGetDriverVersion(text, ctypes.c_uint(len(text)))
        nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(cuda))
    finally:
        nvml.nvmlShutdown()
    version = f"{text.value.decode(errors='replace')}, CUDA up to {cuda.value // 1000}.{cuda.value % 1000 // 10}"
    return Finding(name="NVIDIA driver", detail=version)


def has_nvidia_gpu(devices: Path = Path("/sys/bus/pci/devices")) -> bool:
    """True if a device of this machine is NVIDIA's, by its PCI vendor; True on Windows, where this is not checked."""
    if Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists():  # a container without sysfs; WSL
        return True
    try:
        vendors = [(device / "vendor").read_text("ascii").strip() for device in devices.iterdir()]
    except OSError:
        return platform.system() == "Windows"
    return "0x10de" in vendors


def limits() -> list[Finding]:
    """Kernel features that process isolation needs, and resource limits."""
    found = [
        _tried("memfd (shared memory)", _memfd, 'arrays cannot be shared with a process: use isolation="thread"'),
        _tried("pidfd", _pidfd, 'process isolation needs Linux 5.4 or later: use isolation="thread"'),
    ]
    with contextlib.suppress(ImportError):  # Windows has no resource module
        import resource

        reserves = "a CUDA context reserves tens of GiB: ulimit -v unlimited"
        for name, limit, low, cure in (
            ("open files", resource.RLIMIT_NOFILE, 256, "a host takes about ten: ulimit -n 1024"),
            ("address space, bytes", resource.RLIMIT_AS, 64 << 30, reserves),
            ("locked memory, bytes", resource.RLIMIT_MEMLOCK, 0, ""),
        ):
            soft = resource.getrlimit(limit)[0]
            small = soft != resource.RLIM_INFINITY and soft < low and (limit != resource.RLIMIT_AS or has_nvidia_gpu())
            text = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft:,}"
            found.append(Finding(name=name, detail=text, error=f"{text} is little; {cure}" if small else None))
    return found


def _tried(name: str, attempt: Callable[[], None], cure: str) -> Finding:
    try:
        attempt()
    except (OSError, AttributeError) as e:
        return Finding(name=name, error=f"{e}; {cure}")
    return Finding(name=name)


def _memfd() -> None:
    descriptor = os.memfd_create("callboard-doctor")
    try:
        os.posix_fallocate(descriptor, 0, 1 << 16)
    finally:
        os.close(descriptor)


def _pidfd() -> None:
    os.close(os.pidfd_open(os.getpid()))
