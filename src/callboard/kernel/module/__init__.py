"""Operations of ``dev.module``: precompiled kernels, as cubins, PTX, fatbins or LTO-IR."""

from callboard.kernel.exports import export_all as _export_all
from callboard.kernel.module.actor import *
from callboard.kernel.module.image import Image as Image
from callboard.kernel.module.launch import *
from callboard.kernel.module.methods import ModuleHandle as ModuleHandle

_export_all(__name__)
