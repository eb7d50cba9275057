"""Operations of ``dev.module``: precompiled kernels, as cubins, PTX, fatbins or LTO-IR."""

from callboard.kernel.module.actor import ModuleActor
from callboard.kernel.module.image import Image
from callboard.kernel.module.launch import Inspect, Launch, Link
from callboard.kernel.module.methods import ModuleHandle

__all__ = ["Image", "Inspect", "Launch", "Link", "ModuleActor", "ModuleHandle"]
