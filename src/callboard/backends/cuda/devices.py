"""The CUDA devices available to this process."""

import importlib.util
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from callboard.backends.cuda.nvml import Gpu, gpus
from callboard.core.backend import DeviceInfo
from callboard.core.errors import BackendUnavailable

__all__ = ["cuda_devices", "missing_packages", "visible"]

PACKAGES = {"cuda.bindings": "cuda-bindings", "cuda.pathfinder": "cuda-pathfinder", "nvmath": "nvmath-python"}
"""Packages imported by a host, and the distribution of each."""

_log = logging.getLogger("callboard.cuda")


def cuda_devices(library: Any = None, environ: Mapping[str, str] | None = None) -> list[DeviceInfo]:
    """The devices that ``CUDA_VISIBLE_DEVICES`` leaves visible; MIG slices stand for their GPU where MIG is on.

    Args:
        library: Stands in for ``libnvidia-ml.so.1``.
        environ: Stands in for the environment.

    Raises:
        BackendUnavailable: There is no usable device; the text names the reason.
    """
    found = gpus(library)
    if not found:
        raise BackendUnavailable("the NVIDIA driver is installed and finds no GPU (check the output of nvidia-smi)")
    chosen = (os.environ if environ is None else environ).get("CUDA_VISIBLE_DEVICES")
    usable = visible(found, chosen)
    if not usable:
        names = ", ".join(f"{g.uuid} ({g.name})" for g in _leaves(found)) or "GPUs in MIG mode without a MIG device"
        raise BackendUnavailable(
            f"no GPU is visible: CUDA_VISIBLE_DEVICES is {chosen!r}; there are {names}"
            if chosen is not None
            else f"no GPU can be used: there are {names}"
        )
    missing = missing_packages()
    if missing:
        raise BackendUnavailable(
            f"{usable[0].name} is there, and the Python package{'s' * (len(missing) > 1)} {', '.join(missing)} "
            f'{"are" if len(missing) > 1 else "is"} missing: pip install "callboard[cuda13]"'
        )
    return [
        DeviceInfo("cuda", index, gpu.uuid, gpu.name, gpu.total_bytes, gpu.compute_capability)
        for index, gpu in enumerate(usable)
    ]


def missing_packages() -> list[str]:
    """Distributions of :data:`PACKAGES` that are not installed; imports none of them."""
    return [distribution for module, distribution in PACKAGES.items() if not _is_there(module)]


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False  # its parent package is missing, or broken


def visible(found: Sequence[Gpu], chosen: str | None) -> list[Gpu]:
    """The GPUs selected by ``CUDA_VISIBLE_DEVICES``.

    Follows the rules of the CUDA driver: entries are indices or prefixes of UUIDs, and the first entry that names no
    device ends the list. Indices follow the order of PCI addresses, as in ``nvidia-smi``; a warning is logged if CUDA
    itself may number devices differently (different GPUs and no ``CUDA_DEVICE_ORDER=PCI_BUS_ID``).
    """
    if chosen is None:
        return _leaves(found)
    counts = any(entry.strip().isdigit() for entry in chosen.split(","))
    if counts and len({g.name for g in found}) > 1 and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        _log.warning(
            "CUDA_VISIBLE_DEVICES=%s counts GPUs of different kinds: callboard counts as nvidia-smi does; set "
            "CUDA_DEVICE_ORDER=PCI_BUS_ID so that every library does, or name UUIDs",
            chosen,
        )
    usable: dict[str, Gpu] = {}
    for entry in (e.strip() for e in chosen.split(",")):
        named = _named(found, entry)
        if not named:
            break
        usable.update((gpu.uuid, gpu) for gpu in named)
    return list(usable.values())


def _named(found: Sequence[Gpu], entry: str) -> list[Gpu]:
    if entry.isdigit():
        return _leaves(found[int(entry) : int(entry) + 1])
    if not entry.startswith(("GPU-", "MIG-")):
        return []
    wholes = [gpu for gpu in found if gpu.uuid.startswith(entry)]
    return _leaves(wholes) if len(wholes) == 1 else [g for g in _leaves(found) if g.uuid.startswith(entry)][:1]


def _leaves(found: Sequence[Gpu]) -> list[Gpu]:
    """GPUs, or their slices where MIG is on."""
    return [leaf for gpu in found for leaf in ((gpu,) if gpu.slices is None else gpu.slices)]
