"""Kernels that are compiled already, in cubins, PTX, fatbins and LTO-IR: what can be asked of ``dev.module``."""

from callboard.kernel.module.actor import ModuleActor
from callboard.kernel.module.image import Image
from callboard.kernel.module.launch import Inspect, Launch, Link
from callboard.kernel.module.methods import ModuleHandle

__all__ = ["Image", "Inspect", "Launch", "Link", "ModuleActor", "ModuleHandle"]
