"""The messages of ``dev.module``: launch a kernel of a binary, ask about it, link binaries."""

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.core.layout import BoundedExtent, layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import Out
from callboard.core.ref import GpuRef
from callboard.kernel.module.actor import ModuleActor
from callboard.kernel.module.image import Image
from callboard.kernel.nvrtc.compile import MAX_IMAGE, Inspected
from callboard.kernel.nvrtc.launch import Launched

__all__ = ["Inspect", "Launch", "Link"]


class Launch(Launched, tag="module.launch"):
    """A kernel of a binary; of several, or of LTO-IR, after they have been linked.

    Args:
        spec: Name, parameters and threads.
        images: The binaries.
        options: Linker options.
        ins: Arrays that it reads, without gaps.
        inouts: Arrays that it reads and writes, or that it writes only partly.
        outs: Arrays that it writes completely; new ones of ``spec.shapes`` when None.
        numbers: Numbers passed by value; integers for integer parameters.
    """

    images: tuple[Image, ...]
    options: tuple[str, ...] = ()


class Inspect(Inspected, tag="module.inspect"):
    """Attributes of a kernel of a binary, and how well blocks of one size fill the device, as i64 numbers.

    Args:
        images: The binaries.
        options: Linker options.
        name: Name of the kernel.
        threads: Threads of a block.
        shared: Bytes of dynamic shared memory of a block.
        out: i64; a new array when None.
    """

    images: tuple[Image, ...]
    options: tuple[str, ...] = ()


class Link(Op[ModuleActor, GpuRef], tag="module.link"):
    """Link binaries to one cubin for this device; answers its bytes.

    Args:
        images: The binaries: cubins, PTX, fatbins, LTO-IR, objects, libraries.
        options: Linker options (nvJitLink) besides the architecture.
        out: Left out: a new array of u8.
    """

    images: tuple[Image, ...]
    options: tuple[str, ...] = ()
    out: Out | None = None

    def infer(self) -> Outputs:
        if self.out is not None:
            raise ShapeError("module.link: out is given, but only the linker determines its length: leave it out")
        return {"out": layout_of(DTYPES["u8"], (BoundedExtent(MAX_IMAGE),))}
