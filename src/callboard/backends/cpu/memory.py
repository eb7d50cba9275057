"""``CpuMemory``: fills and copies on the CPU."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.stream import CpuStream
from callboard.backends.cpu.views import viewer
from callboard.core.backend import Status
from callboard.core.layout import Layout
from callboard.core.library import Library, launches, prepares
from callboard.core.op import Op
from callboard.core.operand import Operand
from callboard.kernel.memory import Copy, Download, Empty, Fill, Upload

__all__ = ["CpuMemory"]

Viewer = Callable[[int], "np.ndarray[Any, Any]"]


def layout_of_out(op: Op[Any, Any]) -> Layout:
    """Return the layout of the given output, or of the one that the host allocates."""
    given: Operand | None = op.out  # type: ignore[attr-defined]
    return op.infer()["out"] if given is None else given.layout


def complex_into_real(op: Fill) -> str | None:
    if isinstance(op.fill_value, Operand) and op.fill_value.dtype.is_complex and not op.out.dtype.is_complex:
        return f"fill_value is {op.fill_value.layout!r} and out is {op.out.layout!r}; take its real part first"
    return None


class CpuMemory(Library):
    """Serves :mod:`callboard.kernel.memory` with NumPy."""

    name = "memory"
    brief = True

    @launches(Empty)
    def empty(self, stream: CpuStream, plan: Empty, out: int) -> None:
        """Do nothing: the host has allocated it."""

    @prepares(Fill, inline=True)
    def plan_fill(self, op: Fill) -> tuple[Viewer, Viewer | None]:
        value = viewer(op.fill_value.layout) if isinstance(op.fill_value, Operand) else None
        return viewer(op.out.layout), value

    @launches(Fill, refuses=complex_into_real)
    def fill(self, stream: CpuStream, plan: tuple[Viewer, Viewer | None], out: int, fill_value: Any) -> Status:
        view_out, view_value = plan
        value = fill_value if view_value is None else view_value(fill_value)
        return stream.run(self.name, assign, view_out(out), value)

    @prepares(Copy, inline=True)
    def plan_copy(self, op: Copy) -> tuple[Viewer, Viewer]:
        return viewer(op.src.layout), viewer(layout_of_out(op))

    @launches(Copy)
    def copy(self, stream: CpuStream, plan: tuple[Viewer, Viewer], src: int, out: int) -> Status:
        view_src, view_out = plan
        return stream.run(self.name, np.copyto, view_out(out), view_src(src))

    @prepares(Upload, inline=True)
    def plan_upload(self, op: Upload) -> tuple[Viewer, Viewer]:
        return viewer(op.host.layout), viewer(layout_of_out(op))

    @launches(Upload)
    def upload(self, stream: CpuStream, plan: tuple[Viewer, Viewer], host: int, out: int) -> Status:
        view_host, view_out = plan
        return stream.run(self.name, np.copyto, view_out(out), view_host(host))

    @prepares(Download, inline=True)
    def plan_download(self, op: Download) -> tuple[Viewer, Viewer]:
        return viewer(op.src.layout), viewer(op.host.layout)

    @launches(Download)
    def download(
        self, stream: CpuStream, plan: tuple[Viewer, Viewer], src: int, host: int, after: int | None
    ) -> Status:
        view_src, view_host = plan
        return stream.run(self.name, np.copyto, view_host(host), view_src(src))


def assign(out: "np.ndarray[Any, Any]", value: Any) -> None:
    """``out[...] = value``, converted as NumPy converts; a Python integer as one of 64 bits."""
    out[...] = np.asarray(value) if type(value) is int else value
