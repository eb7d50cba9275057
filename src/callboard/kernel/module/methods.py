"""The methods of ``dev.module``."""

import os
from collections.abc import Iterable

from callboard.core.mode import Mode
from callboard.kernel.api import Api
from callboard.kernel.module.image import Image, image_of
from callboard.kernel.module.launch import Inspect, Launch, Link
from callboard.kernel.nvrtc.handles import Answer, Code

__all__ = ["Methods", "ModuleHandle"]

Binary = bytes | bytearray | str | os.PathLike[str]


class ModuleHandle(Code):
    """Binaries whose kernels can be launched: ``module.kernel("step", "inout x: f32[n]")``.

    Valid in every generation: it holds the binaries, which are loaded again where they are needed.
    """


class Methods(Api[Mode]):
    """Kernels that are compiled already."""

    __slots__ = ()

    covers = frozenset({"inspect", "launch", "link"})

    def load(self, *images: Binary, options: Iterable[str] = ()) -> ModuleHandle:
        """A module of one binary, or of several, which are linked: ``dev.module.load("kernels.cubin")``.

        They are loaded off the admitting thread when a kernel is first launched or inspected; an invalid binary fails
        that op with :class:`~callboard.LibraryError`.

        Args:
            images: The path of a file, bytes, or PTX text: a cubin, PTX, a fatbin, LTO-IR.
            options: Linker options.

        Raises:
            TypeError, ShapeError: None of these.
            OSError: A file cannot be read.
        """
        fields = {"images": _images(images), "options": tuple(options)}
        return ModuleHandle(self._submit, Launch, Inspect, fields)

    def link(self, *images: Binary, options: Iterable[str] = ()) -> Answer[bytes]:
        """Link binaries to one cubin for this device: ``cubin = await dev.module.link(first, second)``.

        Args:
            images: Binaries as for :meth:`load`; also objects and libraries.
            options: Options of nvJitLink besides the architecture.

        Raises:
            TypeError, ShapeError, OSError: See :meth:`load`.
        """
        answer = self._submit(Link(images=_images(images), options=tuple(options)))
        return Answer(answer, lambda array: bytes(array.tobytes()))


def _images(images: tuple[Binary, ...]) -> tuple[Image, ...]:
    if not images:
        raise TypeError("no image is given; pass the path of a file, bytes, or PTX text")
    return tuple(map(image_of, images))
